"""A plot's frame: numbers to places, with ticks at round numbers. Pure."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from scorer.rollout.drawing import FAINT, GRID, line, text

TICKS = 5


def ticks(low: float, high: float, wanted: int = TICKS) -> list[float]:
    """About so many round numbers from low to high."""
    if not high > low:
        return [low]
    raw = (high - low) / wanted
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(at * step, 12) for at in range(first, last + 1)]


@dataclass(frozen=True, slots=True)
class Frame:
    """A plot in this rectangle of pixels; `low` to `high` are the numbers of its vertical axis."""

    left: float
    top: float
    width: float
    height: float
    low: float
    high: float

    @classmethod
    def around(cls, left: float, top: float, width: float, height: float, values: Iterable[float]) -> "Frame":
        """With room for these values."""
        found = list(values)
        low, high = min(found), max(found)
        room = (high - low) * 0.08 or abs(high) * 0.01 or 1.0
        return cls(left, top, width, height, low - room, high + room)

    def y(self, value: float) -> float:
        return self.top + self.height * (self.high - value) / (self.high - self.low)

    def x(self, at: int, of: int) -> float:
        """The place of the at-th of so many stops."""
        return self.left + self.width * ((at + 0.5) / of)

    def lines(self, called: str) -> Iterator[str]:
        """The grid, its numbers, and what they are."""
        for value in ticks(self.low, self.high):
            y = self.y(value)
            yield line(self.left, y, self.left + self.width, y, GRID)
            yield text(self.left - 8, y + 4, f"{value:.6g}", anchor="end", size=11, ink=FAINT)
        yield text(self.left - 8, self.top - 12, called, anchor="end", size=11, ink=FAINT)

    def stops(self, names: Iterable[str], called: str) -> Iterator[str]:
        """The stops of the horizontal axis, and what they are."""
        every, bottom = list(names), self.top + self.height
        for at, name in enumerate(every):
            yield text(self.x(at, len(every)), bottom + 18, name, anchor="middle", size=11, ink=FAINT)
        yield text(self.left + self.width / 2, bottom + 38, called, anchor="middle", size=11, ink=FAINT)
