"""A limit of bytes a second that several threads share."""

import threading


class Budget:
    """Spending is allowed at once and paid by waiting. `rate` is in bytes a second; 0 is no limit."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._paid_at = float("-inf")
        self._lock = threading.Lock()

    def spend(self, size: int, now: float) -> float:
        """The seconds to wait after taking `size` bytes; what was not used before `now` is gone."""
        if not self._rate:
            return 0.0
        with self._lock:
            self._paid_at = max(self._paid_at, now) + size / self._rate
            return self._paid_at - now
