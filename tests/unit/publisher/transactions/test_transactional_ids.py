"""The takeover of transactional ids: when it is abandoned, and the ids of ended owners that a survivor fences."""

import logging
import threading
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from publisher.errors import USAGE, Aborted, Fatal
from publisher.kafka.clients import HandledProducer, KafkaSettings, transactional_producer
from publisher.runtime.context import Context
from publisher.transactions import transactional_ids
from publisher.transactions.transactional_ids import fence, initialised
from tests.unit.publisher.transactions.scripted import Log, ScriptedProducer, retriable

REFUSED = KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


class Broker:
    """Each producer's first `init_transactions` are answered with these errors."""

    def __init__(self, *errors: KafkaError) -> None:
        self.log = Log()
        self.errors = list(errors)

    def make(self, name: str) -> Any:
        self.log.created.append(name)
        return ScriptedProducer(name, self.log, lambda _: (self.errors.pop(0), False) if self.errors else None)


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactional_ids, "PAUSE_SECONDS", 0.0)


@pytest.mark.parametrize("closing", [False, True])
def test_a_takeover_is_abandoned_at_its_time_limit_and_at_the_end_of_the_session(closing: bool) -> None:
    broker, event = Broker(retriable(KafkaError.CONCURRENT_TRANSACTIONS)), threading.Event()
    if closing:
        event.set()
    with pytest.raises(Fatal, match="CONCURRENT"):
        initialised(broker.make, "n/scorer/a/0", lambda: 0.0, event, 10.0 if closing else -1.0)


def test_every_id_of_ended_owners_is_fenced_and_a_failure_delays_no_other(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker(REFUSED)
    with caplog.at_level(logging.WARNING):
        fence(broker.make, ["n/scorer/b", "n/scorer/c"], Context())
    assert sorted(broker.log.created) == [f"n/scorer/{owner}/{k}" for owner in "bc" for k in range(3)]
    assert len(broker.log.live) == 5
    assert [record.message.startswith("could not fence") for record in caplog.records] == [True]


def test_without_ended_owners_no_id_is_fenced() -> None:
    broker = Broker()
    fence(broker.make, [], Context())
    assert broker.log.created == []


def test_a_stop_abandons_the_ids_of_ended_owners_while_the_broker_does_not_answer() -> None:
    release = threading.Event()
    called = threading.Event()
    names: list[str] = []

    def make(name: str) -> Any:
        names.append(name)
        called.set()
        release.wait()
        raise Fatal("released")

    def stop() -> None:
        if called.is_set():
            raise Aborted("a stop was requested")

    try:
        with pytest.raises(Aborted):
            fence(make, [f"n/scorer/{owner}" for owner in "bcdefg"], Context(raise_if_cancelled=stop))
    finally:
        release.set()
    assert len(names) <= transactional_ids.POOL_SIZE


def test_a_timeout_above_the_brokers_names_the_setting_and_the_remedy() -> None:
    class Producer(HandledProducer):
        timeout_setting = "destination.transaction_timeout_ms (90000)"

        def init_transactions(self, *_: float) -> None:
            raise KafkaException(KafkaError(KafkaError.INVALID_TRANSACTION_TIMEOUT))

    with pytest.raises(
        Fatal, match=r"^destination\.transaction_timeout_ms \(90000\) is above the broker's transaction\.max"
    ) as raised:
        initialised(lambda _: Producer({}), "n/scorer/a/0", lambda: 0.0, threading.Event(), 10.0)
    assert raised.value.hint.startswith("lower destination.transaction_timeout_ms, or raise transaction.max.timeout.ms")
    assert raised.value.exit_code == USAGE


def test_the_transaction_timeout_is_named_with_its_section_and_its_value() -> None:
    producer = transactional_producer(
        KafkaSettings(bootstrap_servers="b:1", transaction_timeout_ms=20_000), "n/scorer/a/0", "c"
    )
    assert isinstance(producer, HandledProducer)
    assert producer.timeout_setting == "kafka.transaction_timeout_ms (20000)"
