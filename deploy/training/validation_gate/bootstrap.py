"""Confidence intervals of metrics and of their differences, by a block bootstrap over time. Pure.

Events that are close in time are alike, so resampling single rows would make intervals too narrow. The rows are therefore
divided into K blocks of time, and a resample draws K blocks with replacement. Both models are measured on the same R resamples.
The array `draws` (R, K) counts how often resample r contains block k. A sum over the rows of every resample is `draws`
multiplied with the sums of the K blocks.
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
    """A metric on the original rows (`value`) and on each resample (`resampled`, (R,)); NaN where it is undefined."""

    value: float
    resampled: Numbers

    def minus(self, other: "Figure") -> "Figure":
        """Return this figure minus the other one, on the original rows and resample by resample."""
        return Figure(self.value - other.value, self.resampled - other.resampled)

    def root(self) -> "Figure":
        """Return the square root of this figure, on the original rows and of each resample."""
        return Figure(float(np.sqrt(self.value)), np.sqrt(self.resampled))


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blocks of time that B rows belong to, and the resamples of these blocks.

    Attributes:
        of: (B,), the number of each row's block, 0 to K-1.
        draws: (R, K) float64, how often each resample contains each block.
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

    def average_precision(self, scores: Numbers, positive: Truth) -> Figure:
        """Return the area under the precision-recall curve (see `quality_metrics.average_precision`)."""
        order = np.argsort(-scores, kind="stable")
        ranked = scores[order]
        lasts = np.flatnonzero(np.concatenate([ranked[1:] != ranked[:-1], [True]])) if len(ranked) else np.empty(0, np.intp)
        blocks = self.of[order]
        truth = positive[order].astype(np.float64)

        def area(weights: Numbers) -> float:
            hits = np.cumsum(weights * truth)[lasts]
            rows = np.cumsum(weights)[lasts]
            precision = np.divide(hits, rows, out=np.zeros(len(rows)), where=rows > 0)
            return _over(float((np.diff(hits, prepend=0.0) * precision).sum()), float(hits[-1]) if len(hits) else 0.0)

        resampled = np.array([area(draw[blocks]) for draw in self.draws])
        return Figure(area(np.ones(len(blocks))), resampled)

    def macro_f1(self, labels: NDArray[np.intp], decisions: NDArray[np.intp], classes: int) -> Figure:
        """Return the mean F1 score of the classes.

        It is undefined in a resample if a class has neither a label nor a decision there.
        """
        right, labelled, decided = (
            np.bincount(self.of[rows] * classes + column[rows], minlength=self.count * classes).reshape(self.count, classes)
            for rows, column in (
                (labels == decisions, labels),
                (np.ones(len(labels), np.bool_), labels),
                (decisions < classes, decisions),
            )
        )

        def mean(draws: Numbers) -> Numbers:
            either = draws @ (labelled + decided)
            f1 = np.divide(2 * (draws @ right), either, out=np.full(either.shape, np.nan), where=either > 0)
            return np.asarray(f1.mean(axis=1), np.float64)

        return Figure(float(mean(np.ones((1, self.count)))[0]), mean(self.draws))

    def _sums(self, column: NDArray[Any]) -> Numbers:
        """Return (K,): for each block, the sum of `column` (B,) over the rows of the block."""
        return np.bincount(self.of, np.asarray(column, np.float64), self.count).astype(np.float64)

    def _wins(self, scores: Numbers, positive: Truth) -> Numbers:
        """Count the pairs of a positive and a negative data row in which the positive one has the higher score.

        Returns:
            (K, K): element [i, j] counts the pairs whose positive row is in block i and whose negative row is in block j. A
            pair with equal scores counts half.
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
        """Return the two-sided confidence interval of a figure; None if there is too little data for an interval."""
        # There is no interval with fewer than two blocks, if the figure is undefined on the original rows, or if it is defined
        # in less than the share `DRAWN` of the resamples. The interval is Student's t: its standard error is the standard
        # deviation over the resamples times sqrt(K / (K - 1)). Percentiles are not used: with few blocks they give too narrow
        # intervals, and for many slices they are too coarse (Efron and Tibshirani, An Introduction to the Bootstrap, 1993,
        # chapter 12).
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
