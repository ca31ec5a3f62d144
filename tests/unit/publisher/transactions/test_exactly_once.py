"""The calls of the transaction session with producers that fail in every way that a broker can cause."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from publisher.errors import Aborted, Evicted, Fatal, Fenced, RecordRejected
from publisher.kafka.error_codes import EVICTED, FENCED
from publisher.runtime.context import Clock, Context
from publisher.transactions import transactional_ids as transactional_ids_module
from publisher.transactions.exactly_once import SLOW_COMMIT_SECONDS, TransactionSession
from publisher.transactions.transactional_ids import POOL_SIZE, transactional_ids
from tests.unit.publisher.transactions.scripted import ERRORS, OFFSETS, RECORD, Fails, Log, ScriptedProducer, retriable

IDS = transactional_ids("app/scorer/r")
Open = Callable[..., TransactionSession]


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def opened(log: Log) -> Iterator[Open]:
    """Return `opened(fails, context=...)`, which opens a session over the log until the test ends."""
    with contextlib.ExitStack() as ending:

        def make(fails: Fails = lambda _: None, *, start: bool = True, kind: Any = ScriptedProducer, **more: Any) -> Any:
            def producer(name: str) -> Any:
                log.created.append(name)
                return kind(name, log, fails)

            opened_session = TransactionSession(
                producer, IDS, **{"transaction_seconds": 0.0, "context": Context(Clock(monotonic=lambda: log.now)), **more}
            )
            ending.callback(opened_session.close)
            if start:
                opened_session.open()
            return opened_session

        yield make


def test_the_producers_of_the_pool_take_turns(log: Log, opened: Open) -> None:
    under_test = opened()
    assert sorted(log.live) == IDS, "all are initialised before the first batch"
    used: list[str] = []
    for number in range(2 * POOL_SIZE):
        offsets = [TopicPartition("events", 0, number)]
        under_test.publish([("scores", b"%d" % number, None, 0, 0, None)], offsets, "metadata")
        used.append(next(name for name, producer in log.live.items() if [p.offset for p in producer.offsets] == [number]))
    assert sorted(used[:POOL_SIZE]) == IDS
    assert used[POOL_SIZE:] == used[:POOL_SIZE]
    assert log.visible == [b"%d" % n for n in range(2 * POOL_SIZE)]
    assert sorted(log.created) == IDS
    assert under_test.counters.commits == 2 * POOL_SIZE


def test_records_may_be_sent_without_offsets_and_offsets_without_records(log: Log, opened: Open) -> None:
    under_test = opened()
    under_test.publish([RECORD])
    under_test.publish([], OFFSETS, "metadata")
    assert (log.visible, log.committed) == ([b"{}"], [1])


def test_the_wait_for_transactions_of_others_has_an_age_too(log: Log, opened: Open) -> None:
    ages: list[float | None] = []
    log.now = 7.0
    under_test: TransactionSession = opened(
        wait_until_decided=lambda _: ages.append(under_test.counters.open_since), start=False
    )
    under_test.open()
    under_test.recover()
    assert ages == [7.0, 7.0]
    assert under_test.counters.open_since is None


def test_the_age_of_the_open_transaction_is_known_until_it_is_decided(log: Log, opened: Open) -> None:
    failures = iter([None, (retriable(KafkaError._TIMED_OUT), False)])
    ages: list[float | None] = []

    def fails(call: str) -> tuple[KafkaError, bool] | None:
        if call in ("produce", "commit"):
            ages.append(under_test.counters.open_since)
        return next(failures) if call == "commit" else None

    under_test = opened(fails)
    log.now = 5.0
    under_test.publish([RECORD], OFFSETS, "metadata")
    ages.append(under_test.counters.open_since)
    log.now = 7.0
    with pytest.raises(Aborted):
        under_test.publish([RECORD], OFFSETS, "metadata")
    ages.append(under_test.counters.open_since)
    under_test.recover()
    ages.append(under_test.counters.open_since)
    assert ages == [5.0, 5.0, None, 7.0, 7.0, 7.0, None]


def test_an_id_whose_producer_is_fenced_while_it_begins_gets_another(
    log: Log, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactional_ids_module, "FENCED_SECONDS", 0.0)
    fenced = [(KafkaError(KafkaError._FENCED, fatal=True), False)] * 2
    under_test = opened(lambda at: fenced.pop() if at == "init" and fenced else None)
    assert len(log.created) == POOL_SIZE + 2
    under_test.publish([RECORD], OFFSETS, "metadata")
    assert log.visible == [b"{}"]


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: e.name())
@pytest.mark.parametrize("call", ["offsets", "commit"])
@pytest.mark.parametrize("applied", [False, True])
def test_a_failure_has_its_error_class_and_replaces_the_producers(
    log: Log, opened: Open, error: KafkaError, call: str, applied: bool
) -> None:
    broken = [True]
    under_test = opened(lambda at: (error, applied) if at == call and broken[0] else None)
    with pytest.raises(Aborted) as caught:
        under_test.publish([RECORD], OFFSETS, "metadata")
    assert isinstance(caught.value, Fenced) == (error in FENCED)
    assert isinstance(caught.value, Evicted) == (error in EVICTED)
    broken[0] = False
    visible_count = len(log.visible)
    assert visible_count == (call == "commit" and applied)
    under_test.recover()
    refused = error in EVICTED  # by the group alone: otherwise all producers of the pool are replaced
    under_test.open()
    assert len(log.created) == (
        POOL_SIZE + visible_count if refused else 2 * POOL_SIZE
    )  # an abort without an open transaction is unexpected


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_a_producer_whose_abort_was_slow_gets_a_successor(log: Log, opened: Open, seconds: float) -> None:

    def fails(call: str) -> tuple[KafkaError, bool] | None:
        log.now += seconds if call == "abort" else 0.0
        return (KafkaError(KafkaError.ILLEGAL_GENERATION), False) if call == "offsets" and not log.now else None

    under_test = opened(fails)
    log.now = 0.0
    with pytest.raises(Aborted):
        under_test.publish([RECORD], OFFSETS, "metadata")
    under_test.recover()
    under_test.open()
    assert len(log.created) == POOL_SIZE + (seconds > 0)


def test_a_commit_is_repeated_while_its_outcome_can_be_determined(log: Log, opened: Open) -> None:
    failures = [retriable(KafkaError._TIMED_OUT)] * 3
    under_test = opened(lambda at: (failures.pop(), True) if at == "commit" and failures else None, transaction_seconds=10.0)
    under_test.publish([RECORD], OFFSETS, "metadata")
    assert log.visible == [b"{}"]


@pytest.mark.parametrize("call", ["offsets", "commit"])
def test_a_call_that_never_returns_is_abandoned(log: Log, opened: Open, call: str) -> None:
    hanging, released = [True], threading.Event()

    def fails(at: str) -> None:
        if at == call and hanging:
            hanging.clear()
            released.wait()

    under_test = opened(fails, hang_seconds=0.0, context=Context())
    with pytest.raises(Aborted, match="not returned"):
        under_test.publish([RECORD], OFFSETS, "metadata")
    under_test.recover()
    under_test.publish([RECORD], OFFSETS, "metadata")
    assert log.visible == [b"{}"]
    released.set()


def test_a_session_waits_for_unavailable_brokers_until_the_owner_stops_it(opened: Open) -> None:
    unavailable, checked = [False], threading.Event()

    def fails(at: str) -> tuple[KafkaError, bool] | None:
        return (retriable(KafkaError._TRANSPORT), False) if unavailable[0] and at in {"init", "commit"} else None

    def stop_at_second_check() -> None:
        if checked.is_set():
            raise Aborted("asked to stop")
        checked.set()

    under_test = opened(fails, context=Context(raise_if_cancelled=stop_at_second_check))
    unavailable[0] = True
    with pytest.raises(Aborted):
        under_test.publish([RECORD], OFFSETS, "metadata")
    with pytest.raises(Aborted, match="asked to stop"):
        under_test.recover()


def test_no_producer_is_trusted_after_partitions_were_lost(log: Log, opened: Open) -> None:
    under_test = opened()
    under_test.release([TopicPartition("events", 0)], lost=False)
    assert len(log.created) == POOL_SIZE
    under_test.release([TopicPartition("events", 0)], lost=True)
    under_test.open()
    assert len(log.created) == 2 * POOL_SIZE
    under_test.publish([RECORD], OFFSETS, "metadata")


def test_a_slow_commit_replaces_the_producer(log: Log, opened: Open) -> None:

    def fails(at: str) -> None:
        log.now += SLOW_COMMIT_SECONDS if at == "commit" else 0.0

    under_test = opened(fails)
    under_test.publish([RECORD], OFFSETS, "metadata")
    for _ in range(POOL_SIZE):
        under_test.publish([RECORD], OFFSETS, "metadata")
    assert under_test.counters.rotations == POOL_SIZE + 1
    under_test.open()
    assert len(log.created) >= 2 * POOL_SIZE
    assert len(log.visible) == POOL_SIZE + 1


def test_a_permanent_refusal_ends_the_start(opened: Open) -> None:
    refused = KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    with pytest.raises(Fatal, match="app/scorer/r/"):
        opened(lambda at: (refused, False) if at == "init" else None)


class Refusing(ScriptedProducer):
    """The broker refuses the first record while the second is being produced, and reports it at the next poll or flush."""

    report: Callable[[KafkaError, None], None] | None = None

    def produce(self, _topic: str, value: bytes, *more: Any) -> None:
        if value == b"{}":
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.report = more[2]

    def flush(self, _: float) -> int:
        if self.report:
            self.report(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), None)
        return 0


def test_a_record_refused_while_others_are_produced_is_named_at_the_second_try(opened: Open) -> None:
    under_test = opened(kind=Refusing)
    large = ("scores", b"large", None, 0, 0, None)
    with pytest.raises(Aborted) as first:
        under_test.publish([large, RECORD], OFFSETS, "metadata")
    assert not isinstance(first.value, RecordRejected)
    under_test.recover()
    with pytest.raises(RecordRejected) as second:
        under_test.publish([large, RECORD], OFFSETS, "metadata")
    assert list(second.value.records) == [large]
