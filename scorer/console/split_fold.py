"""The measured traffic split: the sampled events that belong to the canary, and how many of them the champion answered."""

from collections import deque
from dataclasses import dataclass, field

from model_registry.channels.roles import CANARY
from scorer.scores.decode_record import CompleteScoreRecord

KEPT = 5_000  # newest scores


@dataclass(frozen=True, slots=True)
class SampledSplit:
    """The counts of sampled events at one channel revision.

    Attributes:
        events: The number of events.
        canary: The number of events that belong to the canary.
        answered: The number of the canary's events that the champion answered.
    """

    events: int
    canary: int
    answered: int


@dataclass(slots=True)
class SplitFold:
    """Counts the newest sampled scores by role, champion or canary. The key of an event determines its role.

    Attributes:
        scores: For each score, the channel revision, the role, and True if another version than the one in this role answered.
    """

    scores: deque[tuple[int, str, bool]] = field(default_factory=lambda: deque(maxlen=KEPT))

    def add(self, record: CompleteScoreRecord) -> None:
        """Add a score."""
        self.scores.append((record.revision, record.arm, bool(record.fallback)))

    def split(self, revision: int) -> SampledSplit:
        """Return the counts of the scores that were made at a channel revision."""
        scores = [(arm, fallback) for each, arm, fallback in self.scores if each == revision]
        canary = [fallback for arm, fallback in scores if arm == CANARY]
        return SampledSplit(len(scores), len(canary), sum(canary))
