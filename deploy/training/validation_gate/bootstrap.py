"""The uncertainty of a difference: a block bootstrap over time, paired for both models. Pure.

Events of one stretch of time are alike, so resampling single rows would make intervals too narrow. A resample draws as many
blocks as there are, with replacement, and is represented by the count of each block: `draws` (R, K). A sum over rows is then a
matrix product with its sums per block, and so is the AUC: the pairs (positive of block i, negative of block j) in the right
order are counted once.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

Numbers = NDArray[np.float64]
Truth = NDArray[np.bool_]
DRAWN = 0.99  # share of the resamples in which a figure must be defined; else it is unknown


class Interval(NamedTuple):
    """A figure and its confidence interval."""

    value: float
    low: float
    high: float

    @property
    def width(self) -> float:
        return self.high - self.low


class Figure(NamedTuple):
    """A figure of the original rows and of each resample (R,), NaN if undefined there."""

    value: float
    resampled: Numbers

    def minus(self, other: "Figure") -> "Figure":
        """Return the paired difference over the same resamples."""
        return Figure(self.value - other.value, self.resampled - other.resampled)


@dataclass(frozen=True, slots=True)
class Blocks:
    """`of` (B,): the block of each row, 0 to K-1. `draws` (R, K) float64: how often each resample contains each block."""

    of: NDArray[np.intp]
    draws: Numbers

    @classmethod
    def drawn(cls, time_ms: NDArray[np.int64], block_ms: int, resamples: int, seed: int) -> "Blocks":
        """Cut blocks of this length from the epoch on, without empty ones, and draw resamples by the seed."""
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
        """Return the same resamples restricted to these rows."""
        return Blocks(self.of[chosen], self.draws)

    def ratio(self, numerator: NDArray[Any], denominator: NDArray[Any] | None = None) -> Figure:
        """Return the sum of one (B,) column divided by that of another, or its mean."""
        above = self._sums(numerator)
        below = self._sums(np.ones(len(self.of)) if denominator is None else denominator)
        return Figure(_over(above.sum(), below.sum()), _each_over(self.draws @ above, self.draws @ below))

    def auc(self, scores: Numbers, positive: Truth) -> Figure:
        """Return the area under the ROC curve, ties as half (Mann and Whitney, 1947), exactly for every resample."""
        wins = self._wins(scores, positive)
        positives = self._sums(positive)
        negatives = self._sums(~positive)
        won = ((self.draws @ wins) * self.draws).sum(axis=1)
        pairs = (self.draws @ positives) * (self.draws @ negatives)
        return Figure(_over(wins.sum(), positives.sum() * negatives.sum()), _each_over(won, pairs))

    def _sums(self, column: NDArray[Any]) -> Numbers:
        """Return (K,): the sum of each block."""
        return np.bincount(self.of, np.asarray(column, np.float64), self.count).astype(np.float64)

    def _wins(self, scores: Numbers, positive: Truth) -> Numbers:
        """Return (K, K): pairs of a positive of block i ranked above a negative of block j; ties count half."""
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
        """Return the two-sided Student's t interval with the standard error of the resamples, scaled from K to K - 1.

        Percentiles would be too narrow for few blocks, and too coarse for many slices that share one confidence (Efron and
        Tibshirani, An Introduction to the Bootstrap, 1993, chapter 12). None if the figure is unknown.
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
