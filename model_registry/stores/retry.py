"""Decides when to retry and for how long. Pure: the time is an argument.

Backoff with full jitter (Brooker, "Exponential Backoff And Jitter", AWS 2015), and not before a Retry-After header allows
it.
"""

import contextlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

# the maximum of the first backoff, and of all later ones
FIRST_SECONDS = 0.25
LONGEST_SECONDS = 8.0
MOST_ATTEMPTS = 6
MOST_THROTTLED = 12  # attempts after 429: the request was not processed, and the next one probably is
TOO_MANY = 429
CLOUDFLARE = frozenset({520, 521, 522, 523, 524, 527})  # of a proxy whose origin does not answer, or not in time
STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504}) | CLOUDFLARE  # statuses that another attempt may change
MOST_SECONDS = 1e9  # a larger Retry-After is ignored
PROGRESS_BYTES = 64 << 10  # a connection that transferred less made no progress


@dataclass(frozen=True, slots=True)
class Timing:
    """The clock (seconds, monotonic), the sleep function and the random source (0 to 1), replaceable in tests."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    dice: Callable[[], float] = random.random


class AttemptLimit:
    """Limits the attempts at one request: none starts later than `limit_seconds` after the first one or after progress."""

    def __init__(self, limit_seconds: float, now: float, most: int = MOST_ATTEMPTS) -> None:
        self._limit = limit_seconds
        self._most = most
        self._began = now
        self._failed = 0

    def progressed(self, now: float) -> None:
        """Restart the limits: the last attempt made progress."""
        self._began = now
        self._failed = 0

    def transferred(self, now: float) -> None:
        """Restart only the time limit: the last attempt failed after it had sent much."""
        self._began = now

    def delay(self, now: float, dice: float, retry_after: float | None = None) -> float | None:
        """Return the seconds to wait after a failure before the next attempt; None to give up."""
        self._failed += 1
        backoff = dice * min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** (self._failed - 1))
        wait = max(backoff, retry_after or 0.0)
        if self._failed >= self._most or now + wait - self._began > self._limit:
            return None
        return wait


def retry_after(text: str | None, unix_now: float) -> float | None:
    """Return the seconds that a Retry-After header asks for, as a number or a date (RFC 9110, 10.2.3); None if neither."""
    if text is None:
        return None
    with contextlib.suppress(ValueError):
        seconds = float(text)
        return seconds if 0 <= seconds < MOST_SECONDS else None
    try:
        delay = parsedate_to_datetime(text).timestamp() - unix_now
    except (ValueError, OverflowError):
        return None
    return delay if delay > 0 else 0.0
