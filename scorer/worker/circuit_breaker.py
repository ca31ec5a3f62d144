"""Suspend a candidate that fails for many events. The champion answers the candidate's keys meanwhile. Pure."""

ENOUGH = 20  # if half of at least this many events of one batch fail, the candidate is suspended
BATCHES = 3  # with smaller batches, this many in a row must fail on half of their events
OPEN_SECONDS = 30.0  # how long a candidate is suspended


class CircuitBreaker:
    """The circuit breaker of the current candidate. Another candidate's digest resets it. `now` is in monotonic seconds."""

    def __init__(self) -> None:
        self._digest = ""
        self._failing = 0
        self._until = float("-inf")

    def is_closed(self, digest: str, now: float) -> bool:
        """Return whether this candidate may answer events, that is, whether it is not suspended."""
        if digest != self._digest:
            self._digest = digest
            self._failing = 0
            self._until = float("-inf")
        return now >= self._until

    def observe(self, requested: int, failed: int, now: float) -> bool:
        """Record that the candidate failed for `failed` of `requested` events. Return whether this suspends the candidate."""
        if not requested:
            return False
        self._failing = self._failing + 1 if 2 * failed >= requested else 0
        if not self._failing or (requested < ENOUGH and self._failing < BATCHES):
            return False
        self._failing = 0
        self._until = now + OPEN_SECONDS
        return True
