"""Both ways of delivery keep to the one protocol; and when recoveries are too many."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from publisher.session.at_least_once import CheckpointSession
from publisher.session.exactly_once import TransactionSession
from publisher.session.transactional_ids import transactional_ids
from tests.conformance.session import SessionConformance, Stage, every_batch_becomes_visible
from tests.unit.publisher.session.scripted import Fails, Log, ScriptedCommits, ScriptedProducer, ScriptedQueue


class TestTransactions(SessionConformance):
    exactly_once = True

    def stage(self, fails: Fails = lambda _: None) -> Stage:
        log = Log()
        session = TransactionSession(
            lambda name: ScriptedProducer(name, log, fails),  # type: ignore[arg-type, return-value]
            transactional_ids("app.r"),
            transaction_seconds=0.0,
            clock=lambda: log.now,
        )
        session.open()
        return Stage(session, log)


class TestCheckpoints(SessionConformance):
    exactly_once = False

    def stage(self, fails: Fails = lambda _: None) -> Stage:
        log = Log()
        commits = ScriptedCommits(log, fails)
        session = CheckpointSession(
            lambda failed, _: ScriptedQueue(log, fails, failed),  # type: ignore[arg-type, return-value]
            commits,  # type: ignore[arg-type]
            confirm_seconds=10.0,
            clock=lambda: log.now,
        )
        session.open()
        return Stage(session, log, commits.answer)


@pytest.mark.parametrize("records_fail", [False, True])
@pytest.mark.parametrize("kind", [TestTransactions, TestCheckpoints])
@given(seed=st.integers(0, 2**32), batches=st.integers(1, 30))
def test_whatever_fails_every_batch_becomes_visible(
    kind: type[SessionConformance], seed: int, batches: int, records_fail: bool
) -> None:
    every_batch_becomes_visible(kind(), seed, batches, records_fail=records_fail)
