"""The transaction session's decisions: its states as a table, and what an error means at a step. Pure."""

from enum import Enum

from confluent_kafka import KafkaError

from publisher.kafka.error_codes import BEGINS_LATER, BEHIND_UNFIT, EVICTED, FENCED, REFUSED, UNFIT_RECORD


class SessionState(Enum):
    """Where the session stands between two calls."""

    IDLE = "idle"
    OPEN = "open"
    OFFSETS = "offsets sent"
    COMMITTING = "committing"
    BROKEN = "broken"


class SessionStep(Enum):
    """What the session is asked to do next, or what befell it."""

    BEGIN = "begin"
    PRODUCE = "produce"
    SEND_OFFSETS = "send offsets"
    COMMIT = "commit"
    COMMITTED = "committed"
    ABANDON = "abandon an empty transaction"
    FAIL = "fail"
    RECOVER = "recover"


TRANSITIONS: dict[tuple[SessionState, SessionStep], SessionState] = {
    (SessionState.IDLE, SessionStep.BEGIN): SessionState.OPEN,
    (SessionState.OPEN, SessionStep.SEND_OFFSETS): SessionState.OFFSETS,
    (SessionState.OPEN, SessionStep.COMMIT): SessionState.COMMITTING,
    (SessionState.OPEN, SessionStep.ABANDON): SessionState.IDLE,
    (SessionState.OFFSETS, SessionStep.COMMIT): SessionState.COMMITTING,
    (SessionState.COMMITTING, SessionStep.COMMITTED): SessionState.IDLE,
    **{(state, SessionStep.FAIL): SessionState.BROKEN for state in SessionState},
    **{(state, SessionStep.RECOVER): SessionState.IDLE for state in (SessionState.IDLE, SessionState.BROKEN)},
}


def advance(state: SessionState, step: SessionStep) -> SessionState:
    """The state after `step`. Raises RuntimeError for a step that the table does not have: a bug of the caller."""
    try:
        return TRANSITIONS[state, step]
    except KeyError:
        raise RuntimeError(f"the transaction session cannot {step.value!r} while it is {state.value!r}") from None


class ErrorVerdict(Enum):
    """What an error at a step asks for."""

    REPEAT = "the same call again"
    RECOVER = "abort, and go on from the committed offsets"
    FENCED = "as RECOVER; another producer has this transactional.id"
    EVICTED = "as RECOVER; the group has gone on without this member"
    UNFIT = "as RECOVER; the broker takes one of the records in no case"
    HIDDEN = "as RECOVER; a record has failed before, and this call does not say why"
    REFUSED = "the broker's access control does not allow it"
    GIVE_UP = "no repetition will help"


def verdict(step: SessionStep, error: KafkaError) -> ErrorVerdict:
    """What to do about `error` at `step`.

    Only a commit is repeated: repeating send_offsets after a transport error led to wrong states and once to a call that
    never returned (librdkafka #5456, #5511), so everything there recovers at once.
    """
    if error in REFUSED:
        return ErrorVerdict.REFUSED
    if step is SessionStep.RECOVER:  # init_transactions
        if error.retriable() or error in BEGINS_LATER:
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
