"""Time ranges and durations of command-line options: ISO 8601 or Unix ms, either end open."""

import re
from typing import NamedTuple

HELP = "ISO 8601 (UTC if it names no zone) or Unix ms"
UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
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
