"""Time ranges and durations of command-line options: ISO 8601 or Unix ms, either end open; and times of records as text."""

import re
import time
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

HELP = "ISO 8601 (UTC if it names no zone) or Unix ms"
UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
LATEST_MS = 253_402_300_800_000  # the start of the year 10000: later times cannot be formatted
DURATION = re.compile(r"([0-9]{1,6})([smhd])")


class TimeRange(NamedTuple):
    """A range from `from_ms` (inclusive) to `to_ms` (exclusive) in Unix ms. None is an open end."""

    from_ms: int | None = None
    to_ms: int | None = None

    def contains(self, unix_ms: int) -> bool:
        """Return whether this time (Unix ms) is in the range."""
        after = self.from_ms is None or unix_ms >= self.from_ms
        return after and (self.to_ms is None or unix_ms < self.to_ms)


ALWAYS = TimeRange()


def seconds(duration: str) -> int:
    """Parse a duration such as 90s, 15m, 1h or 7d, and return its seconds. Raises ValueError for any other text."""
    match = DURATION.fullmatch(duration)
    if match is None:
        raise ValueError(f"{duration!r} is not a valid duration; write a number and a unit: 90s, 15m, 1h, 7d")
    return int(match[1]) * UNITS[match[2]]


def parse_time(text: str) -> int:
    """Parse a time in ISO 8601 (UTC if it names no zone) or in Unix ms, and return it in Unix ms. Raises ValueError."""
    if text.isascii() and text.isdigit():
        return int(text)
    moment = datetime.fromisoformat(text)
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000)


def resolve_time(when: str | datetime | timedelta) -> int:
    """Convert a text, a datetime, or a duration before now (timedelta) to Unix ms.

    A text is a duration such as 1h, or one of the texts that `parse_time` parses. A datetime without a zone is in UTC.

    Raises:
        ValueError: for any other text.
    """
    if isinstance(when, datetime):
        return round((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1_000)
    if isinstance(when, timedelta):
        return round((time.time() - when.total_seconds()) * 1_000)
    if DURATION.fullmatch(when):
        return round((time.time() - seconds(when)) * 1_000)
    try:
        return parse_time(when)
    except ValueError:
        raise ValueError(f"{when!r} is not a valid time; write a duration before now (90s, 15m, 1h, 7d), or {HELP}") from None


def iso_time(unix_ms: int) -> str | None:
    """Format a time as ISO 8601.

    Returns:
        None if the time is negative or after the year 9999: a producer may write any 64 bits.
    """
    if not 0 <= unix_ms < LATEST_MS:
        return None
    return datetime.fromtimestamp(unix_ms / 1_000, UTC).isoformat(timespec="milliseconds")
