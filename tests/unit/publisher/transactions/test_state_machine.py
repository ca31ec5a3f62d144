"""The tables of a transaction session: every state has a transition to another, and every failure a recovery."""

import pytest

from publisher.errors import Aborted, Evicted, Fenced, NotAllowed, RecordFailed, RecordRejected
from publisher.transactions.state_machine import (
    FAILURES,
    RECOVERIES,
    TRANSITIONS,
    SessionState,
    SessionStep,
    advance,
    failure_step,
)

ERRORS = [Aborted(""), Fenced(""), Evicted(""), RecordFailed(""), RecordRejected(""), NotAllowed("", "")]


@pytest.mark.parametrize("state", SessionState)
def test_every_state_can_fail_and_every_failure_leads_to_a_state_with_a_recovery(state: SessionState) -> None:
    for failure in FAILURES:
        failed = advance(state, failure)
        assert failed in RECOVERIES
        assert advance(failed, SessionStep.RECOVER) is SessionState.IDLE


def test_nothing_but_a_recovery_leads_out_of_a_failure() -> None:
    for (state, step), after in TRANSITIONS.items():
        if state in FAILURES.values() and step not in FAILURES:
            assert (step, after) == (SessionStep.RECOVER, SessionState.IDLE)


@pytest.mark.parametrize("failure", FAILURES)
def test_a_producer_whose_call_hangs_is_never_aborted(failure: SessionStep) -> None:
    state = advance(SessionState.COMMITTING, SessionStep.HANG)
    assert not RECOVERIES[advance(state, failure)].abort


def test_only_a_rejected_record_leaves_the_ids_with_a_session_that_no_group_fences() -> None:
    assert [state for state, recovery in RECOVERIES.items() if recovery.ids_stay_owned] == [SessionState.REJECTED]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_the_idle_producers_are_reused_only_if_the_group_or_a_record_was_the_reason(error: Exception) -> None:
    recovery = RECOVERIES[advance(SessionState.COMMITTING, failure_step(error, fenced_by_ids=False))]
    assert recovery.renew_pool == (type(error) not in {Evicted, RecordRejected})


def test_a_failed_record_is_a_rejection_for_a_session_that_only_its_ids_fence() -> None:
    failed = RecordFailed("a record has failed before")
    assert failure_step(failed, fenced_by_ids=True) is SessionStep.REJECT
    assert failure_step(failed, fenced_by_ids=False) is SessionStep.DOUBT
