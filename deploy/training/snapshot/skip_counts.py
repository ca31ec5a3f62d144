"""What was left out, and why."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Told:
    """How often something was seen, by reason, and of some where first: `topic[partition]@offset` and what is wrong."""

    counts: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)

    def add(self, reason: str, count: int, first: str = "") -> None:
        if count:
            self.counts[reason] += count
            if first:
                self.first.setdefault(reason, first)

    def __str__(self) -> str:
        return ", ".join(f"{reason} {count}" for reason, count in self.counts.most_common()) or "none"
