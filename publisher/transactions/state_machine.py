"""The decisions of a transaction session: its states, the recovery that each failed state needs, and the meanings of errors.

Pure: no I/O and no clock. `exactly_once.py` carries the decisions out.
"""

from enum import Enum
from typing import NamedTuple

from confluent_kafka import KafkaError

from publisher.errors import Evicted, RecordFailed, RecordRejected
from publisher.kafka.error_codes import BEHIND_UNFIT, EVICTED, FENCED, INIT_LATER, REFUSED, UNFIT_RECORD


class SessionState(Enum):
    """The state of a session between two calls. The last four states are failed states, which only `recover` ends."""

    IDLE = "idle"
    OPEN = "open"
    OFFSETS_SENT = "offsets sent"
    COMMITTING = "committing"
    REJECTED = "failed: a record was rejected"
    EVICTED = "failed: the group rejected the member"
    IN_DOUBT = "failed: the outcome is unknown"
    HUNG = "failed: a call does not return"


class SessionStep(Enum):
    """A transition between two states of a session, caused by a method of the session or by a failure."""

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
    """The actions that end the open transaction after a failure.

    Attributes:
        abort: whether the producer first aborts the transaction. This is impossible while a call of the producer hangs.
        abort_decides: whether a confirmed abort completes the recovery. Otherwise the recovery also waits until no other
            transaction is open (`wait_for_open_transactions.py`).
        replace_producer: whether a new producer takes over the transactional id even after a confirmed abort.
        renew_pool: whether new producers also replace the idle producers.
        ids_stay_owned: whether it is certain that the session still owns its transactional ids. If it is not certain, another
            process may have taken over the ids, and a session with an ownership record must not continue.
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
"""The recovery from each state. A recovery from IDLE means that the caller has failed, not the session."""
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
    """Return the state after `step`. Raises RuntimeError if `state` does not allow the step, which is a bug of the caller."""
    try:
        return TRANSITIONS[state, step]
    except KeyError:
        raise RuntimeError(f"the transaction session cannot {step.value!r} while it is {state.value!r}") from None


def failure_step(error: Exception, *, fenced_by_ids: bool) -> SessionStep:
    """Return the step that follows an error of the open transaction: REJECT, EVICT or DOUBT (see `SessionStep`).

    Args:
        error: the error.
        fenced_by_ids: whether transactional ids fence the session, as for a relay; otherwise the consumer group does.
    """
    # A relay finds the rejected record itself, so every RecordFailed is a REJECT. For a session that sends consumer offsets,
    # only RecordRejected is one: after other failures the remaining producers of the pool are not usable.
    if isinstance(error, RecordFailed if fenced_by_ids else RecordRejected):
        return SessionStep.REJECT
    return SessionStep.EVICT if isinstance(error, Evicted) else SessionStep.DOUBT


class ErrorVerdict(Enum):
    """The action that a Kafka error at a step of a transaction requires."""

    REPEAT = "repeat the call"
    RECOVER = "abort, and continue from the committed offsets"
    FENCED = "recover; another producer has this transactional.id"
    EVICTED = "recover; the group has continued without this member"
    UNFIT = "recover; the broker rejects one of the records for good"
    HIDDEN = "recover; a record has failed before, and this call does not report why"
    REFUSED = "the broker's access control does not allow the call"
    GIVE_UP = "no repetition helps"


def verdict(step: SessionStep, error: KafkaError) -> ErrorVerdict:
    """Return the action that a Kafka error at a step of a transaction requires."""
    # Only a commit and `init_transactions` (the step RECOVER) may be repeated. After an error of `send_offsets` the session
    # recovers at once: when `send_offsets` was repeated after a transport error, librdkafka entered wrong states, and one call
    # never returned (librdkafka #5456, #5511).
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
