"""The decisions of a transaction session: its states, the recovery that each failed state needs, and what an error means.

Pure: no I/O and no clock. `exactly_once.py` carries the decisions out.
"""

from enum import Enum
from typing import NamedTuple

from confluent_kafka import KafkaError

from publisher.errors import Evicted, RecordFailed, RecordRejected
from publisher.kafka.error_codes import BEHIND_UNFIT, EVICTED, FENCED, INIT_LATER, REFUSED, UNFIT_RECORD


class SessionState(Enum):
    """The state of a session between two calls. The last four are failures: only a recovery leads out of them."""

    IDLE = "idle"
    OPEN = "open"
    OFFSETS_SENT = "offsets sent"
    COMMITTING = "committing"
    REJECTED = "failed: a record was rejected"
    EVICTED = "failed: the group rejected the member"
    IN_DOUBT = "failed: the outcome is unknown"
    HUNG = "failed: a call does not return"


class SessionStep(Enum):
    """A call of a session, or a failure that it meets."""

    BEGIN = "begin"
    PRODUCE = "produce"
    SEND_OFFSETS = "send offsets"
    COMMIT = "commit"
    COMMITTED = "committed"
    ABANDON = "abandon an empty transaction"
    REJECT = "reject a record"
    EVICT = "evict the member"
    DOUBT = "lose the outcome"
    HANG = "hang"
    RECOVER = "recover"


class Recovery(NamedTuple):
    """The actions that decide the open transaction after a failure.

    Attributes:
        abort: the producer aborts first. It cannot while one of its calls hangs.
        abort_decides: a confirmed abort is enough: transactions of others need not be waited for.
        replace_producer: a successor takes the id even after a confirmed abort.
        renew_pool: the idle producers get successors too.
        ids_stay_owned: a session that only its ids fence may continue; otherwise another process may have had the ids.
    """

    abort: bool = True
    abort_decides: bool = False
    replace_producer: bool = False
    renew_pool: bool = False
    ids_stay_owned: bool = False


FAILURES: dict[SessionStep, SessionState] = {
    SessionStep.REJECT: SessionState.REJECTED,
    SessionStep.EVICT: SessionState.EVICTED,
    SessionStep.DOUBT: SessionState.IN_DOUBT,
    SessionStep.HANG: SessionState.HUNG,
}
RECOVERIES: dict[SessionState, Recovery] = {
    SessionState.IDLE: Recovery(),
    # librdkafka may skip sequence numbers after a rejected record, so its producer is not used again
    SessionState.REJECTED: Recovery(abort_decides=True, replace_producer=True, ids_stay_owned=True),
    SessionState.EVICTED: Recovery(),
    SessionState.IN_DOUBT: Recovery(replace_producer=True, renew_pool=True),
    SessionState.HUNG: Recovery(abort=False, replace_producer=True, renew_pool=True),
}
"""By the state that a session recovers from. IDLE: the caller failed, not the session."""
TRANSITIONS: dict[tuple[SessionState, SessionStep], SessionState] = {
    (SessionState.IDLE, SessionStep.BEGIN): SessionState.OPEN,
    (SessionState.OPEN, SessionStep.SEND_OFFSETS): SessionState.OFFSETS_SENT,
    (SessionState.OPEN, SessionStep.COMMIT): SessionState.COMMITTING,
    (SessionState.OPEN, SessionStep.ABANDON): SessionState.IDLE,
    (SessionState.OFFSETS_SENT, SessionStep.COMMIT): SessionState.COMMITTING,
    (SessionState.COMMITTING, SessionStep.COMMITTED): SessionState.IDLE,
    **{(state, failure): failed for state in SessionState for failure, failed in FAILURES.items()},
    **{(SessionState.HUNG, failure): SessionState.HUNG for failure in FAILURES},  # the call still hangs
    **{(state, SessionStep.RECOVER): SessionState.IDLE for state in RECOVERIES},
}


def advance(state: SessionState, step: SessionStep) -> SessionState:
    """Return the state after `step`. Raises RuntimeError if the table has no such step: a bug of the caller."""
    try:
        return TRANSITIONS[state, step]
    except KeyError:
        raise RuntimeError(f"the transaction session cannot {step.value!r} while it is {state.value!r}") from None


def failure_step(error: Exception, *, fenced_by_ids: bool) -> SessionStep:
    """Return what an error means for the open transaction.

    A session that only its ids fence searches for a rejected record by itself, so any failed record is one for it. A group's
    member needs certainty: only the broker's own rejection leaves the other producers of the pool usable.
    """
    if isinstance(error, RecordFailed if fenced_by_ids else RecordRejected):
        return SessionStep.REJECT
    return SessionStep.EVICT if isinstance(error, Evicted) else SessionStep.DOUBT


class ErrorVerdict(Enum):
    """What an error at a step requires."""

    REPEAT = "repeat the call"
    RECOVER = "abort, and continue from the committed offsets"
    FENCED = "recover; another producer has this transactional.id"
    EVICTED = "recover; the group has continued without this member"
    UNFIT = "recover; the broker rejects one of the records for good"
    HIDDEN = "recover; a record has failed before, and this call does not report why"
    REFUSED = "the broker's access control does not allow the call"
    GIVE_UP = "no repetition helps"


def verdict(step: SessionStep, error: KafkaError) -> ErrorVerdict:
    """Return what `error` at `step` requires.

    Only a commit is repeated. Repeating send_offsets after a transport error led to wrong states, and once to a call that
    never returned (librdkafka #5456, #5511), so every error there recovers at once.
    """
    if error in REFUSED:
        return ErrorVerdict.REFUSED
    if step is SessionStep.RECOVER:  # init_transactions
        if error.retriable() or error in INIT_LATER:
            return ErrorVerdict.REPEAT
        return ErrorVerdict.FENCED if error in FENCED else ErrorVerdict.GIVE_UP
    if error in FENCED:
        return ErrorVerdict.FENCED
    if error in EVICTED:
        return ErrorVerdict.EVICTED
    if error in UNFIT_RECORD:
        return ErrorVerdict.UNFIT
    if error in BEHIND_UNFIT:
        return ErrorVerdict.HIDDEN
    if step is SessionStep.COMMIT and error.retriable() and not error.fatal() and not error.txn_requires_abort():
        return ErrorVerdict.REPEAT
    return ErrorVerdict.RECOVER
