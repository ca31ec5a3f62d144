"""Decides whether a failed request is retried, and after which delay. Has no I/O: the time is an argument."""

# The delay is an exponential backoff with full jitter (Brooker, "Exponential Backoff And Jitter", AWS 2015), or the time in the
# Retry-After header if that is longer.

import contextlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

# the upper bounds of the first backoff and of every backoff, in seconds
FIRST_SECONDS = 0.25
LONGEST_SECONDS = 8.0
MAX_ATTEMPTS = 6
MAX_THROTTLED = 12  # attempts while the registry answers 429: throttling ends by itself, so more attempts are worthwhile
TOO_MANY = 429
CLOUDFLARE = frozenset({520, 521, 522, 523, 524, 527})  # Cloudflare's statuses for an origin that does not answer in time
STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504}) | CLOUDFLARE  # statuses after which another attempt may succeed
MAX_SECONDS = 1e9  # a larger Retry-After is ignored
PROGRESS_BYTES = 64 << 10  # an attempt that transferred fewer bytes made no progress


@dataclass(frozen=True, slots=True)
class Timing:
    """The functions for waiting, which tests replace: a monotonic clock, a sleep, and a random number from 0 to 1."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    draw_random: Callable[[], float] = random.random


class AttemptLimit:
    """Limits the attempts at one request in number and time.

    At most `most` attempts in a row may fail. No attempt starts later than `limit_seconds` after the last progress, or after
    the first attempt if there was no progress.
    """

    def __init__(self, limit_seconds: float, now: float, most: int = MAX_ATTEMPTS) -> None:
        self._limit = limit_seconds
        self._max_failures = most
        self._began = now
        self._failed = 0

    def progressed(self, now: float) -> None:
        """Restart the count of failed attempts and the time limit, because the last attempt made progress."""
        self._began = now
        self._failed = 0

    def transferred(self, now: float) -> None:
        """Restart the time limit, but not the count of failures: the last attempt sent many bytes before it failed."""
        self._began = now

    def delay(self, now: float, random_share: float, retry_after: float | None = None) -> float | None:
        """Count a failed attempt and return the seconds to wait before the next one; None if no further attempt is allowed.

        Args:
            now: The time in seconds, monotonic.
            random_share: A random number from 0 to 1.
            retry_after: The least number of seconds to wait, from a Retry-After header.
        """
        self._failed += 1
        backoff = random_share * min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** (self._failed - 1))
        wait = max(backoff, retry_after or 0.0)
        if self._failed >= self._max_failures or now + wait - self._began > self._limit:
            return None
        return wait


def retry_after(text: str | None, unix_now: float) -> float | None:
    """Return the delay in a Retry-After header in seconds; None if it is neither a number nor a date (RFC 9110, 10.2.3)."""
    if text is None:
        return None
    with contextlib.suppress(ValueError):
        seconds = float(text)
        return seconds if 0 <= seconds < MAX_SECONDS else None
    try:
        delay = parsedate_to_datetime(text).timestamp() - unix_now
    except (ValueError, OverflowError):
        return None
    return delay if delay > 0 else 0.0
