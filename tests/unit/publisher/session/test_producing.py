"""Which records of a batch the broker refuses."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from publisher.errors import Aborted, RecordRefused
from publisher.session.exactly_once import TransactionSession
from tests.unit.publisher.session.scripted import OFFSETS, RECORD, Log, ScriptedProducer
from tests.unit.publisher.session.test_exactly_once import IDS


class Refusing(ScriptedProducer):
    """The broker refuses the first record while the second is being produced, and says so where a report is asked for."""

    report: Callable[[KafkaError, None], None] | None = None

    def produce(self, _topic: str, value: bytes, *more: Any) -> None:
        if value == b"{}":
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.report = more[2]

    def flush(self, _: float) -> int:
        if self.report:
            self.report(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), None)
        return 0


def test_a_record_that_is_refused_while_others_are_produced_is_named_at_the_second_try() -> None:
    log = Log()
    under_test = TransactionSession(
        lambda name: Refusing(name, log, lambda _: None),  # type: ignore[arg-type, return-value]
        IDS,
        transaction_seconds=0.0,
        clock=lambda: log.now,
    )
    under_test.open()
    large = ("scores", b"large", None, 0, 0, None)
    with pytest.raises(Aborted) as first:
        under_test.publish([large, RECORD], OFFSETS, "metadata")
    assert not isinstance(first.value, RecordRefused)
    under_test.recover()
    with pytest.raises(RecordRefused) as second:
        under_test.publish([large, RECORD], OFFSETS, "metadata")
    assert list(second.value.records) == [large]
    under_test.close()
