"""The transaction session's decisions: its states as a table, and what an error means at a step. Pure."""

from enum import Enum

from confluent_kafka import KafkaError

from publisher.kafka.error_codes import BEGINS_LATER, BEHIND_UNFIT, EVICTED, FENCED, REFUSED, UNFIT_RECORD


class State(Enum):
    """Where the session stands between two calls."""

    IDLE = "idle"
    OPEN = "open"
    OFFSETS = "offsets sent"
    COMMITTING = "committing"
    BROKEN = "broken"


class Step(Enum):
    """What the session is asked to do next, or what befell it."""

    BEGIN = "begin"
    PRODUCE = "produce"
    SEND_OFFSETS = "send offsets"
    COMMIT = "commit"
    COMMITTED = "committed"
    ABANDON = "abandon an empty transaction"
    FAIL = "fail"
    RECOVER = "recover"


TRANSITIONS: dict[tuple[State, Step], State] = {
    (State.IDLE, Step.BEGIN): State.OPEN,
    (State.OPEN, Step.SEND_OFFSETS): State.OFFSETS,
    (State.OPEN, Step.COMMIT): State.COMMITTING,
    (State.OPEN, Step.ABANDON): State.IDLE,
    (State.OFFSETS, Step.COMMIT): State.COMMITTING,
    (State.COMMITTING, Step.COMMITTED): State.IDLE,
    **{(state, Step.FAIL): State.BROKEN for state in State},
    **{(state, Step.RECOVER): State.IDLE for state in (State.IDLE, State.BROKEN)},
}


def advance(state: State, step: Step) -> State:
    """The state after `step`. Raises RuntimeError for a step that the table does not have: a bug of the caller."""
    try:
        return TRANSITIONS[state, step]
    except KeyError:
        raise RuntimeError(f"the transaction session cannot {step.value!r} while it is {state.value!r}") from None


class Verdict(Enum):
    """What an error at a step asks for."""

    REPEAT = "the same call again"
    RECOVER = "abort, and go on from the committed offsets"
    FENCED = "as RECOVER; another producer has this transactional.id"
    EVICTED = "as RECOVER; the group has gone on without this member"
    UNFIT = "as RECOVER; the broker takes one of the records in no case"
    HIDDEN = "as RECOVER; a record has failed before, and this call does not say why"
    REFUSED = "the broker's access control does not allow it"
    GIVE_UP = "no repetition will help"


def verdict(step: Step, error: KafkaError) -> Verdict:
    """What to do about `error` at `step`.

    Only a commit is repeated: repeating send_offsets after a transport error led to wrong states and once to a call that
    never returned (librdkafka #5456, #5511), so everything there recovers at once.
    """
    if error in REFUSED:
        return Verdict.REFUSED
    if step is Step.RECOVER:  # init_transactions
        if error.retriable() or error in BEGINS_LATER:
            return Verdict.REPEAT
        return Verdict.FENCED if error in FENCED else Verdict.GIVE_UP
    if error in FENCED:
        return Verdict.FENCED
    if error in EVICTED:
        return Verdict.EVICTED
    if error in UNFIT_RECORD:
        return Verdict.UNFIT
    if error in BEHIND_UNFIT:
        return Verdict.HIDDEN
    if step is Step.COMMIT and error.retriable() and not error.fatal() and not error.txn_requires_abort():
        return Verdict.REPEAT
    return Verdict.RECOVER
