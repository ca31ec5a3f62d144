"""A stretch of time as people type it: ISO 8601 or Unix ms, either end open."""

from datetime import UTC, datetime
from typing import NamedTuple

HELP = "ISO 8601 (UTC where it names no zone) or Unix ms"


class TimeWindow(NamedTuple):
    """From `from_ms` (inclusive) to `to_ms` (exclusive), in Unix ms; None where it is open."""

    from_ms: int | None = None
    to_ms: int | None = None

    @classmethod
    def of(cls, start: str | None, end: str | None) -> "TimeWindow":
        """From what --from and --to say. Raises ValueError, naming the text, where it is no time or no window."""
        window = cls(_unix_ms("--from", start), _unix_ms("--to", end))
        if window.from_ms is not None and window.to_ms is not None and window.from_ms >= window.to_ms:
            raise ValueError(f"--from {start} is not before --to {end}")
        return window

    def holds(self, unix_ms: int) -> bool:
        after = self.from_ms is None or unix_ms >= self.from_ms
        return after and (self.to_ms is None or unix_ms < self.to_ms)


ALWAYS = TimeWindow()


def _unix_ms(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{option} {text!r} is no time: {HELP}") from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000)
