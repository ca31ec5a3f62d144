"""Suspend a candidate that fails on many events: the champion then answers its keys. Pure."""

ENOUGH = 20  # events of a batch from which half of them failing is no accident
BATCHES = 3  # smaller ones in a row that fail by half
OPEN_SECONDS = 30.0


class CircuitBreaker:
    """The breaker of one candidate at a time; another one starts fresh. `now` is in monotonic seconds."""

    def __init__(self) -> None:
        self._digest = ""
        self._failing = 0
        self._until = float("-inf")

    def allows(self, digest: str, now: float) -> bool:
        """Return whether this candidate may be asked."""
        if digest != self._digest:
            self._digest = digest
            self._failing = 0
            self._until = float("-inf")
        return now >= self._until

    def observe(self, requested: int, failed: int, now: float) -> bool:
        """Record how many events the candidate was asked for and failed; return whether it is suspended now."""
        if not requested:
            return False
        self._failing = self._failing + 1 if 2 * failed >= requested else 0
        if not self._failing or (requested < ENOUGH and self._failing < BATCHES):
            return False
        self._failing = 0
        self._until = now + OPEN_SECONDS
        return True
