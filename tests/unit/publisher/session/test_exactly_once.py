"""The transaction session against producers that fail in every way a broker can make them fail.

What a real broker does with these calls is the end-to-end tests' business; here is shown what the session asks for.
"""

import threading
import time
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from publisher.errors import Aborted, Evicted, Fatal, Fenced
from publisher.kafka.error_codes import EVICTED, FENCED
from publisher.session import transactional_ids as transactional_ids_module
from publisher.session.exactly_once import SLOW_COMMIT_SECONDS, TransactionSession
from publisher.session.transactional_ids import POOL_SIZE, transactional_ids
from tests.unit.publisher.session.scripted import ERRORS, OFFSETS, RECORD, Fails, Log, ScriptedProducer, retriable

IDS = transactional_ids("app/scorer/r")


def session(log: Log, fails: Fails = lambda _: None, *, seconds: float = 0.0, **more: Any) -> TransactionSession:
    def make(name: str) -> Any:
        log.made.append(name)
        return ScriptedProducer(name, log, fails)

    return TransactionSession(make, IDS, transaction_seconds=seconds, **{"clock": lambda: log.now, **more})


def test_the_producers_of_the_pool_take_turns() -> None:
    log = Log()
    under_test = session(log)
    under_test.open()
    assert sorted(log.live) == IDS, "all are initialised before the first batch"
    used: list[str] = []
    for number in range(2 * POOL_SIZE):
        offsets = [TopicPartition("events", 0, number)]
        under_test.publish([("scores", b"%d" % number, None, 0, 0, None)], offsets, "metadata")
        used.append(next(name for name, producer in log.live.items() if [p.offset for p in producer.offsets] == [number]))
    assert sorted(used[:POOL_SIZE]) == IDS
    assert used[POOL_SIZE:] == used[:POOL_SIZE]
    assert log.visible == [b"%d" % n for n in range(2 * POOL_SIZE)]
    assert sorted(log.made) == IDS
    assert under_test.counters.commits == 2 * POOL_SIZE
    under_test.close()


def test_records_may_go_without_offsets_and_offsets_without_records() -> None:
    log = Log()
    under_test = session(log)
    under_test.open()
    under_test.publish([RECORD])
    under_test.publish([], OFFSETS, "metadata")
    assert (log.visible, log.committed) == ([b"{}"], [1])
    under_test.close()


def test_the_wait_for_transactions_of_others_has_an_age_too() -> None:
    log = Log()
    seen: list[float | None] = []
    log.now = 7.0
    under_test: TransactionSession = session(log, decided=lambda _: seen.append(under_test.counters.open_since))
    under_test.open()
    under_test.recover()
    assert seen == [7.0, 7.0]
    assert under_test.counters.open_since is None
    under_test.close()


def test_the_age_of_the_open_transaction_is_known_until_it_is_decided() -> None:
    log, failures = Log(), iter([None, (retriable(KafkaError._TIMED_OUT), False)])
    seen: list[float | None] = []

    def fails(call: str) -> tuple[KafkaError, bool] | None:
        if call in ("produce", "commit"):
            seen.append(under_test.counters.open_since)
        return next(failures) if call == "commit" else None

    under_test = session(log, fails)
    under_test.open()
    log.now = 5.0
    under_test.publish([RECORD], OFFSETS, "metadata")
    seen.append(under_test.counters.open_since)
    log.now = 7.0
    with pytest.raises(Aborted):
        under_test.publish([RECORD], OFFSETS, "metadata")
    seen.append(under_test.counters.open_since)
    under_test.recover()
    seen.append(under_test.counters.open_since)
    assert seen == [5.0, 5.0, None, 7.0, 7.0, 7.0, None]
    under_test.close()


def test_an_id_whose_producer_is_fenced_while_it_begins_gets_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactional_ids_module, "FENCED_SECONDS", 0.0)
    log, fenced = Log(), [(KafkaError(KafkaError._FENCED, fatal=True), False)] * 2
    under_test = session(log, lambda at: fenced.pop() if at == "init" and fenced else None)
    under_test.open()
    assert len(log.made) == POOL_SIZE + 2
    under_test.publish([RECORD], OFFSETS, "metadata")
    assert log.visible == [b"{}"]
    under_test.close()


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: e.name())
@pytest.mark.parametrize("call", ["offsets", "commit"])
@pytest.mark.parametrize("done", [False, True])
def test_after_any_failure_nothing_goes_on_before_a_recovery(error: KafkaError, call: str, done: bool) -> None:
    log, broken = Log(), [True]
    under_test = session(log, lambda at: (error, done) if at == call and broken[0] else None)
    under_test.open()
    with pytest.raises(Aborted) as caught:
        under_test.publish([RECORD], OFFSETS, "metadata")
    assert isinstance(caught.value, Fenced) == (error in FENCED)
    assert isinstance(caught.value, Evicted) == (error in EVICTED)
    with pytest.raises(RuntimeError, match="cannot"):
        under_test.publish([RECORD], OFFSETS, "metadata")
    broken[0] = False
    before = len(log.visible)
    assert before == (call == "commit" and done)
    under_test.recover()
    under_test.publish([RECORD], OFFSETS, "metadata")
    assert len(log.visible) == before + 1
    refused = error in EVICTED  # by the group alone: else no producer of the pool is trusted any more
    under_test.open()
    assert len(log.made) == (POOL_SIZE + before if refused else 2 * POOL_SIZE)  # nothing was left to abort: that is odd
    assert under_test.counters.aborts == 1
    under_test.close()


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_a_producer_whose_abort_was_slow_gets_a_successor(seconds: float) -> None:
    log = Log()

    def fails(call: str) -> tuple[KafkaError, bool] | None:
        log.now += seconds if call == "abort" else 0.0
        return (KafkaError(KafkaError.ILLEGAL_GENERATION), False) if call == "offsets" and not log.now else None

    under_test = session(log, fails)
    under_test.open()
    log.now = 0.0
    with pytest.raises(Aborted):
        under_test.publish([RECORD], OFFSETS, "metadata")
    under_test.recover()
    under_test.open()
    assert len(log.made) == POOL_SIZE + (seconds > 0)
    under_test.close()


def test_a_commit_is_repeated_while_its_outcome_can_still_be_had() -> None:
    log, failures = Log(), [retriable(KafkaError._TIMED_OUT)] * 3
    under_test = session(log, lambda at: (failures.pop(), True) if at == "commit" and failures else None, seconds=10.0)
    under_test.open()
    under_test.publish([RECORD], OFFSETS, "metadata")
    assert log.visible == [b"{}"]
    under_test.close()


def test_send_offsets_is_never_repeated() -> None:
    calls: list[str] = []

    def fails(at: str) -> tuple[KafkaError, bool] | None:
        calls.append(at)
        return (retriable(KafkaError._TRANSPORT), False) if at == "offsets" else None

    under_test = session(Log(), fails)
    under_test.open()
    with pytest.raises(Aborted):
        under_test.publish([RECORD], OFFSETS, "metadata")
    assert calls.count("offsets") == 1
    under_test.close()


@pytest.mark.parametrize("call", ["offsets", "commit"])
def test_a_call_that_never_returns_is_left_to_itself(call: str) -> None:
    log, hanging, again = Log(), [True], threading.Event()

    def fails(at: str) -> None:
        if at == call and hanging:
            hanging.clear()
            again.wait()

    under_test = session(log, fails, hang_seconds=0.0, clock=time.monotonic)
    under_test.open()
    with pytest.raises(Aborted, match="not returned"):
        under_test.publish([RECORD], OFFSETS, "metadata")
    under_test.recover()
    under_test.publish([RECORD], OFFSETS, "metadata")
    assert log.visible == [b"{}"]
    again.set()
    under_test.close()


def test_brokers_that_are_away_are_waited_for_until_the_owner_gives_up() -> None:
    log, away, asked = Log(), [False], threading.Event()

    def fails(at: str) -> tuple[KafkaError, bool] | None:
        return (retriable(KafkaError._TRANSPORT), False) if away[0] and at in {"init", "commit"} else None

    def waiting() -> None:
        if asked.is_set():
            raise Aborted("asked to stop")
        asked.set()

    under_test = session(log, fails, waiting=waiting)
    under_test.open()
    away[0] = True
    with pytest.raises(Aborted):
        under_test.publish([RECORD], OFFSETS, "metadata")
    with pytest.raises(Aborted, match="asked to stop"):
        under_test.recover()
    under_test.close()


def test_no_producer_is_trusted_after_partitions_were_lost() -> None:
    log = Log()
    under_test = session(log)
    under_test.open()
    under_test.release([TopicPartition("events", 0)], lost=False)
    assert len(log.made) == POOL_SIZE
    under_test.release([TopicPartition("events", 0)], lost=True)
    under_test.open()
    assert len(log.made) == 2 * POOL_SIZE
    under_test.publish([RECORD], OFFSETS, "metadata")
    under_test.close()


def test_a_slow_commit_costs_the_producer_its_place() -> None:
    log = Log()

    def fails(at: str) -> None:
        log.now += SLOW_COMMIT_SECONDS if at == "commit" else 0.0

    under_test = session(log, fails)
    under_test.open()
    under_test.publish([RECORD], OFFSETS, "metadata")
    for _ in range(POOL_SIZE):
        under_test.publish([RECORD], OFFSETS, "metadata")
    assert under_test.counters.rotations == POOL_SIZE + 1
    under_test.open()
    assert len(log.made) >= 2 * POOL_SIZE
    assert len(log.visible) == POOL_SIZE + 1
    under_test.close()


def test_what_the_broker_refuses_for_good_ends_the_start() -> None:
    refused = KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    under_test = session(Log(), lambda at: (refused, False) if at == "init" else None)
    with pytest.raises(Fatal, match="app/scorer/r/"):
        under_test.open()
    under_test.close()
