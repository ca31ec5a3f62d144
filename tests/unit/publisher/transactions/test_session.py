"""Both delivery guarantees pass the conformance suite and its table of states; calls in another thread leave no references."""

import threading
import time
import weakref
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st

from publisher.runtime.abandonable_call import CallThread, call_in_thread
from publisher.runtime.context import Clock, Context
from publisher.transactions.at_least_once import CheckpointSession
from publisher.transactions.exactly_once import TransactionSession
from publisher.transactions.state_machine import TRANSITIONS, ErrorVerdict, SessionState, SessionStep, advance, verdict
from publisher.transactions.transactional_ids import transactional_ids
from tests.conformance.session import SessionConformance, Stage, every_batch_becomes_visible
from tests.unit.publisher.transactions.scripted import ERRORS, Fails, Log, ScriptedCommits, ScriptedProducer, ScriptedQueue


class TestTransactions(SessionConformance):
    """The conformance tests of sessions for transactions."""

    exactly_once = True

    def stage(self, fails: Fails = lambda _: None) -> Stage:
        log = Log()
        session = TransactionSession(
            lambda name: ScriptedProducer(name, log, fails),  # type: ignore[arg-type, return-value]
            transactional_ids("app.r"),
            transaction_seconds=0.0,
            context=Context(Clock(monotonic=lambda: log.now)),
        )
        session.open()
        return Stage(session, log)


class TestCheckpoints(SessionConformance):
    """The conformance tests of sessions for checkpoints."""

    exactly_once = False

    def stage(self, fails: Fails = lambda _: None) -> Stage:
        log = Log()
        commits = ScriptedCommits(log, fails)
        session = CheckpointSession(
            lambda failed, _: ScriptedQueue(log, fails, failed),  # type: ignore[arg-type, return-value]
            commits,  # type: ignore[arg-type]
            confirm_seconds=10.0,
            context=Context(Clock(monotonic=lambda: log.now)),
        )
        session.open()
        return Stage(session, log, commits.answer)


@pytest.mark.parametrize("records_fail", [False, True])
@pytest.mark.parametrize("kind", [TestTransactions, TestCheckpoints])
@given(seed=st.integers(0, 2**32), batches=st.integers(1, 30))
def test_every_batch_becomes_visible_after_any_failures(
    kind: type[SessionConformance], seed: int, batches: int, records_fail: bool
) -> None:
    every_batch_becomes_visible(kind(), seed, batches, records_fail=records_fail)


@given(st.lists(st.sampled_from(SessionStep), max_size=8))
def test_the_table_allows_only_whole_transactions(steps: list[SessionStep]) -> None:
    state = SessionState.IDLE
    for step in steps:
        if (state, step) not in TRANSITIONS:
            with pytest.raises(RuntimeError, match="cannot"):
                advance(state, step)
            return
        state = advance(state, step)
    if steps and steps[-1] is SessionStep.COMMITTED:
        complete = [SessionStep.BEGIN, SessionStep.SEND_OFFSETS, SessionStep.COMMIT, SessionStep.COMMITTED]
        assert complete == steps[-4:] or [complete[0], *complete[2:]] == steps[-3:]


@pytest.mark.parametrize("step", [SessionStep.BEGIN, SessionStep.SEND_OFFSETS])
@pytest.mark.parametrize("error", ERRORS, ids=lambda e: e.name())
def test_only_commits_and_initialisations_are_repeated(step: SessionStep, error: KafkaError) -> None:
    assert verdict(step, error) is not ErrorVerdict.REPEAT


class Client:
    """A client with one call."""

    def answer(self) -> int:
        return 7


def until(holds: Callable[[], bool]) -> None:
    while not holds():
        time.sleep(0.001)


def alive(name: str) -> bool:
    return any(thread.name == name for thread in threading.enumerate())


def test_references_of_a_call_are_released_while_the_thread_waits_for_the_next() -> None:
    thread, client = CallThread("holds"), Client()
    reference = weakref.ref(client)
    future = thread.submit(client.answer)
    assert future.result(10) == 7
    del client, future
    until(lambda: reference() is None)
    assert alive("holds")
    thread.close()
    until(lambda: not alive("holds"))


def test_a_thread_that_is_closed_ends_when_its_call_returns() -> None:
    hangs, thread = threading.Event(), CallThread("hangs")
    future = thread.submit(hangs.wait)
    thread.close()
    assert not future.done()
    hangs.set()
    assert future.result(10)
    until(lambda: not alive("hangs"))


def test_one_call_leaves_no_thread() -> None:
    assert call_in_thread("once", Client().answer).result(10) == 7
    until(lambda: not alive("once"))
