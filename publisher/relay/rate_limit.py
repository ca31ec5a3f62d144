"""A limit of bytes per second that several threads share."""

import threading


class RateLimit:
    """A token bucket without a burst allowance. `rate` is in bytes per second; 0 means no limit."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._free_at = float("-inf")
        self._lock = threading.Lock()

    def add_bytes(self, size: int, now: float) -> float:
        """Count `size` bytes that were used at `now`, and return how long the caller must wait before using more bytes.

        The result is in seconds, `now` in monotonic seconds.
        """
        # Unused time gives no allowance for later.
        if not self._rate:
            return 0.0
        with self._lock:
            self._free_at = max(self._free_at, now) + size / self._rate
            return self._free_at - now
