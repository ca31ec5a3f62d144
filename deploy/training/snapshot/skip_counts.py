"""Counts of omitted records by reason."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class SkipCounts:
    """The number of omitted records of each reason, and the first record of each reason.

    `first` describes the first record of a reason: `topic[partition]@offset`, and the error if there is one.
    """

    counts: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)

    def add(self, reason: str, count: int, first: str = "") -> None:
        if count:
            self.counts[reason] += count
            if first:
                self.first.setdefault(reason, first)

    def __str__(self) -> str:
        return ", ".join(f"{reason} {count}" for reason, count in self.counts.most_common()) or "none"
