"""The reasons for which events are dead-lettered, and the exceptions that carry them."""

from enum import StrEnum
from typing import Any, Self


class Reason(StrEnum):
    """A stable code: the value of the header `dead.reason`."""

    TOMBSTONE = "tombstone"
    OVERSIZE = "oversize"
    NOT_UTF8 = "not-utf8"
    MALFORMED = "malformed"
    UNKNOWN_SCHEMA = "unknown-schema"
    MISSING_FIELD = "missing-field"
    WRONG_TYPE = "wrong-type"
    OUT_OF_RANGE = "out-of-range"
    NOT_FINITE = "not-finite"
    BAD_DEADLINE = "bad-deadline"
    INFERENCE_FAILED = "inference-failed"
    SCORE_NOT_FINITE = "score-not-finite"
    SCORE_OVERSIZE = "score-oversize"
    CRASHES_SCORER = "crashes-scorer"
    INTERNAL_ERROR = "internal-error"
    RECORD_REFUSED = "record-refused"
    UNREADABLE_BATCH = "unreadable-batch"


class Poison(Exception):
    """One event cannot be scored and is dead-lettered with this reason. The other events of its batch are unaffected."""

    def __init__(self, reason: Reason, error: str) -> None:
        super().__init__(error)
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the arguments that rebuild the exception in another process."""
        return type(self), (self.reason, str(self))

    def without_traceback(self) -> Self:
        """Return a copy without the frames in which it was raised: they hold the whole batch, in a reference cycle."""
        return type(self)(self.reason, str(self))


class NotFinite(Poison):
    """The event itself contains NaN or an infinity; no conversion produced it."""
