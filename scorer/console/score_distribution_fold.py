"""The distribution of the newest scores of each version: histograms, quantiles and the population stability index."""

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from scorer.console.records import largest
from scorer.evaluation.drift import psi
from scorer.models.constant_fallback import FALLBACK
from scorer.scores.decode_record import CompleteScoreRecord

KEPT = 5_000  # newest scores that are kept of a version
VERSIONS = 6  # newest versions that are kept
BINS = 40
MIN_SCORES = 200  # minimum number of scores of each version for a comparison


@dataclass(slots=True)
class ScoreWindow:
    """The newest sampled scores of one version, and counts of all its sampled score records since the console started.

    Attributes:
        numbers: The newest scores as numbers: the largest number of each score.
        decisions: The number of scores by decision.
        seen: The number of sampled score records.
        expired: The number of expired events, which have no score.
        fallback: The number of fallback scores, which the scorer has written in place of a score of the version.
        last_ms: The time of the newest score in Unix ms.
    """

    numbers: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    decisions: Counter[str] = field(default_factory=Counter)
    seen: int = 0
    expired: int = 0
    fallback: int = 0
    last_ms: int = 0

    def add(self, record: CompleteScoreRecord) -> None:
        """Add a score. If it is a fallback score, only count it."""
        self.seen += 1
        self.last_ms = max(self.last_ms, record.scored_ms)
        if record.status == FALLBACK:  # not a score of the version
            self.fallback += 1
            return
        if record.decision is not None:
            self.decisions[record.decision] += 1
        if (number := largest(record.score)) is not None:
            self.numbers.append(number)
        elif record.status == "expired":
            self.expired += 1


@dataclass(frozen=True, slots=True)
class Histogram:
    """The share of each version's scores in each bin.

    Attributes:
        edges: The edges of the bins: one edge more than there are bins.
        shares: For each version, the share of the version's scores in each bin; the shares of a version sum to 1.
    """

    edges: list[float]
    shares: dict[str, list[float]]


@dataclass(slots=True)
class ScoreDistributionFold:
    """The newest sampled scores of each version, by the version's name."""

    windows: dict[str, ScoreWindow] = field(default_factory=dict)

    def add(self, record: CompleteScoreRecord) -> None:
        """Add a score. If there are more than VERSIONS versions, remove the one that has not scored for longest."""
        window = self.windows.get(record.version)
        if window is None:
            window = self.windows[record.version] = ScoreWindow()
            if len(self.windows) > VERSIONS:
                del self.windows[min(self.windows, key=lambda version: self.windows[version].last_ms or 2**62)]
        window.add(record)

    def histogram(self) -> Histogram:
        """Return the histogram of all versions.

        The bins cover the range from 0 to 1 if all scores are in this range, otherwise the range of all scores.
        """
        columns = {version: np.array(window.numbers) for version, window in self.windows.items() if window.numbers}
        if not columns:
            return Histogram([], {})
        low = min(c.min() for c in columns.values())
        high = max(c.max() for c in columns.values())
        low, high = (0.0, 1.0) if low >= 0.0 and high <= 1.0 else (float(low), float(high))
        edges = np.linspace(low, high if high > low else low + 1.0, BINS + 1)
        shares = {version: (np.histogram(c, edges)[0] / len(c)).round(5).tolist() for version, c in columns.items()}
        return Histogram(edges.round(6).tolist(), shares)

    def stability(self, before: str, now: str) -> float | None:
        """Return the population stability index of two versions' scores; None with fewer than MIN_SCORES scores of either."""
        old, new = (self.windows.get(version, ScoreWindow()).numbers for version in (before, now))
        return None if min(len(old), len(new)) < MIN_SCORES else psi(old, new)


def quantiles(numbers: Sequence[float] | deque[float]) -> tuple[float, float, float] | None:
    """Return the 5 %, 50 % and 95 % quantiles; None without numbers."""
    if not numbers:
        return None
    low, middle, high = np.quantile(np.array(numbers), [0.05, 0.5, 0.95]).tolist()
    return low, middle, high
