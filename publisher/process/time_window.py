"""A stretch of time as people type it: ISO 8601 or Unix ms, either end open."""

from typing import NamedTuple

HELP = "ISO 8601 (UTC where it names no zone) or Unix ms"


class TimeWindow(NamedTuple):
    """From `from_ms` (inclusive) to `to_ms` (exclusive), in Unix ms; None where it is open."""

    from_ms: int | None = None
    to_ms: int | None = None

    def holds(self, unix_ms: int) -> bool:
        after = self.from_ms is None or unix_ms >= self.from_ms
        return after and (self.to_ms is None or unix_ms < self.to_ms)


ALWAYS = TimeWindow()
