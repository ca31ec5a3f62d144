"""Confidence intervals of metrics and of their differences, by a block bootstrap over time. Pure.

Events that are close in time are alike, so resampling single rows would make intervals too narrow. The rows are therefore
divided into K blocks of time, and a resample draws K blocks with replacement. R resamples are stored as the array `draws` (R,
K), whose entry (r, k) is the number of times that resample r contains block k. Both models are measured on the same resamples.

To sum a column over the rows of every resample, the column is summed over each block, and `draws` is multiplied with these K
sums. The AUC is computed in a similar way. It depends on the number of pairs in which a positive row scores higher than a
negative row. For each two blocks i and j, the pairs with the positive row in block i and the negative row in block j are
counted once, and not again for each resample.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

Numbers = NDArray[np.float64]
Truth = NDArray[np.bool_]
DRAWN = 0.99  # the minimum share of the resamples in which a figure must be defined


class Interval(NamedTuple):
    """The value of a metric, or of a metric's difference between two models, and the confidence interval of the value."""

    value: float
    low: float
    high: float

    @property
    def width(self) -> float:
        return self.high - self.low


class Figure(NamedTuple):
    """A metric on the original rows (`value`) and on each resample (`resampled`, (R,)).

    A value is NaN if the metric is undefined on these rows.
    """

    value: float
    resampled: Numbers

    def minus(self, other: "Figure") -> "Figure":
        """Return this figure minus the other one, on the original rows and resample by resample."""
        return Figure(self.value - other.value, self.resampled - other.resampled)


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blocks of time that B rows belong to, and the resamples of these blocks.

    `of` (B,) has, for each row, the number of its block, 0 to K-1. `draws` (R, K) float64 has, for each resample and each
    block, how often the resample contains the block.
    """

    of: NDArray[np.intp]
    draws: Numbers

    @classmethod
    def drawn(cls, time_ms: NDArray[np.int64], block_ms: int, resamples: int, seed: int) -> "Blocks":
        """Divide rows into blocks of `block_ms`, counted from the Unix epoch, and draw resamples of the blocks.

        Blocks without rows are left out.
        """
        stretches, of = np.unique(time_ms // block_ms, return_inverse=True)
        count = len(stretches)
        if not count:
            return cls(of, np.zeros((resamples, 0)))
        draws = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), resamples)
        return cls(of, draws.astype(np.float64))

    @property
    def count(self) -> int:
        return int(self.draws.shape[1])

    def select(self, chosen: NDArray[np.bool_]) -> "Blocks":
        """Return the blocks of the rows where `chosen` (B,) is true, with the same resamples."""
        return Blocks(self.of[chosen], self.draws)

    def ratio(self, numerator: NDArray[Any], denominator: NDArray[Any] | None = None) -> Figure:
        """Return the sum of `numerator` (B,) divided by the sum of `denominator` (B,), by default by the number of rows."""
        above = self._sums(numerator)
        below = self._sums(np.ones(len(self.of)) if denominator is None else denominator)
        return Figure(_over(above.sum(), below.sum()), _each_over(self.draws @ above, self.draws @ below))

    def auc(self, scores: Numbers, positive: Truth) -> Figure:
        """Return the area under the ROC curve, exact for every resample; ties count half (Mann and Whitney, 1947)."""
        wins = self._wins(scores, positive)
        positives = self._sums(positive)
        negatives = self._sums(~positive)
        won = ((self.draws @ wins) * self.draws).sum(axis=1)
        pairs = (self.draws @ positives) * (self.draws @ negatives)
        return Figure(_over(wins.sum(), positives.sum() * negatives.sum()), _each_over(won, pairs))

    def _sums(self, column: NDArray[Any]) -> Numbers:
        """Return the sum of a column (B,) over the rows of each block, (K,)."""
        return np.bincount(self.of, np.asarray(column, np.float64), self.count).astype(np.float64)

    def _wins(self, scores: Numbers, positive: Truth) -> Numbers:
        """Count, for each pair of blocks, how often a positive row has a higher score than a negative row; (K, K).

        Entry (i, j) is the number of pairs of a positive row in block i and a negative row in block j in which the positive row
        has the higher score. A pair with equal scores counts half.
        """
        wins = np.zeros((self.count, self.count))
        order = np.argsort(scores[positive], kind="stable")
        positive_blocks = self.of[positive][order]
        ascending = scores[positive][order]
        for block in range(self.count):
            negative = np.sort(scores[~positive & (self.of == block)])
            below = np.searchsorted(negative, ascending, "left") + np.searchsorted(negative, ascending, "right")
            wins[:, block] = np.bincount(positive_blocks, below / 2, self.count)
        return wins

    def interval(self, figure: Figure, confidence: float) -> Interval | None:
        """Return the two-sided Student's t interval of a figure, or None if the interval is unknown.

        The interval is unknown if there are fewer than two blocks, if the figure is undefined on the original rows, or if the
        figure is defined in less than the share `DRAWN` of the resamples. The standard error is the standard deviation of the
        figure over the resamples, multiplied by sqrt(K / (K - 1)). The interval is not computed from percentiles of the
        resamples, for two reasons. With few blocks, percentiles give too narrow intervals. With many slices, each slice needs a
        high confidence, for which percentiles are too coarse (Efron and Tibshirani, An Introduction to the Bootstrap, 1993,
        chapter 12).
        """
        finite = figure.resampled[np.isfinite(figure.resampled)]
        if self.count < 2 or not np.isfinite(figure.value) or len(finite) < DRAWN * len(figure.resampled):
            return None
        error = float(finite.std(ddof=1)) * np.sqrt(self.count / (self.count - 1))
        reach = float(error * stdtrit(self.count - 1, (1 + confidence) / 2))
        return Interval(figure.value, figure.value - reach, figure.value + reach)


def _over(above: float, below: float) -> float:
    return float(above / below) if below else float("nan")


def _each_over(above: Numbers, below: Numbers) -> Numbers:
    ratios: Numbers = np.divide(above, below, out=np.full(len(above), np.nan), where=below != 0)
    return ratios
