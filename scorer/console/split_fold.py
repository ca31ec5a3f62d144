"""How the sampled events of a revision fall to the arms of a split: whose turn each was, and who answered in its place."""

from collections import deque
from dataclasses import dataclass, field

from model_registry.channels.roles import CANARY
from scorer.console.records import SampledScore

KEPT = 5_000  # newest scores


@dataclass(frozen=True, slots=True)
class SampledSplit:
    """Of `events` sampled scores so many were the `canary`'s turn; for so many of those the champion `answered`."""

    events: int
    canary: int
    answered: int


@dataclass(slots=True)
class SplitFold:
    """The newest sampled scores: their revision, arm, and whether another answered."""

    scores: deque[tuple[int, str, bool]] = field(default_factory=lambda: deque(maxlen=KEPT))

    def hear(self, record: SampledScore) -> None:
        """Take in a score."""
        self.scores.append((record.revision, record.arm, bool(record.fallback)))

    def split(self, revision: int) -> SampledSplit:
        """Of the scores of a revision of the channel."""
        mine = [(arm, fallback) for at, arm, fallback in self.scores if at == revision]
        canary = [fallback for arm, fallback in mine if arm == CANARY]
        return SampledSplit(len(mine), len(canary), sum(canary))
