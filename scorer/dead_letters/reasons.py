"""The reasons why events are dead-lettered, and the exceptions that contain a reason."""

from enum import StrEnum
from typing import Any, Self


class Reason(StrEnum):
    """The code in the header `dead.reason`, which states why an event was dead-lettered. Codes never change."""

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
    """One event cannot be scored, and must be dead-lettered for this `reason`. The other events in its batch are unaffected."""

    def __init__(self, reason: Reason, error: str) -> None:
        super().__init__(error)
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the class and its arguments, so that pickle can rebuild the exception in another process."""
        return type(self), (self.reason, str(self))

    def without_traceback(self) -> Self:
        """Return a copy of the exception without a traceback, because a traceback's frames keep the whole batch in memory."""
        return type(self)(self.reason, str(self))


class NotFinite(Poison):
    """The event itself contains NaN or infinity.

    A finite number that becomes infinite by conversion to a smaller dtype raises Poison with the same reason, not NotFinite.
    """
