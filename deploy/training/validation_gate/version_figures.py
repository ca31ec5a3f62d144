"""The figures of one version as documents show them: metrics, confusion matrix, and a histogram of residuals. Pure."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from training.snapshot.target import Target
from training.validation_gate import metrics
from training.validation_gate.comparison import ConfusionMatrix, IntervalCoverage, Residuals
from training.validation_gate.metrics import LISTED, ModelAnswers

MAX_CLASSES = 100  # the number of classes up to which documents have the confusion matrix
NO_CLASS = "(no class)"
BINS = 40
CONFIDENCE = 0.95  # of the interval of a share
OUTER = (0.005, 0.995)  # the quantiles of the residuals at the outer edges of the histogram


def listed_metrics(target: Target, answers: ModelAnswers, outcomes: NDArray[Any]) -> dict[str, float]:
    """Return the metrics of a version. Metrics of single classes are omitted if there are more than `LISTED` classes."""
    figures = metrics.evaluate(target, answers.scores, outcomes, answers.decisions, answers.intervals)
    return {name: value for name, value in figures.items() if len(target.classes) <= LISTED or "." not in name}


def confusion_matrix(target: Target, answers: ModelAnswers, outcomes: NDArray[Any]) -> ConfusionMatrix | None:
    """Return the confusion matrix; None for a regression, or for more than `MAX_CLASSES` classes."""
    if not 0 < len(target.classes) <= MAX_CLASSES:
        return None
    counts = metrics.matrix(target, answers.decisions, outcomes).tolist()
    labels = target.classes if len(counts) == len(target.classes) else (*target.classes, NO_CLASS)
    return ConfusionMatrix(labels, tuple(map(tuple, counts)))


def interval_coverage(target: Target, answers: ModelAnswers, outcomes: NDArray[Any]) -> IntervalCoverage | None:
    """Return the coverage of the predicted intervals; None without intervals or rows.

    Its Wilson interval treats the rows as independent.
    """
    if target.interval is None or answers.intervals is None or not len(outcomes):
        return None
    low, high = answers.intervals.T
    inside = binomtest(int(((low <= outcomes) & (outcomes <= high)).sum()), len(outcomes))
    share = inside.proportion_ci(CONFIDENCE, method="wilson")
    return IntervalCoverage(target.interval.level, float(inside.statistic), float(share.low), float(share.high))


def residual_edges(residuals_: Sequence[NDArray[np.float64]]) -> tuple[float, ...]:
    """Return the edges of a histogram for the residuals of several versions."""
    low, high = np.quantile(np.concatenate(residuals_), OUTER)
    return tuple(np.histogram_bin_edges(np.array([low, high]), BINS).tolist())


def residuals(values: NDArray[np.float64], edges: tuple[float, ...]) -> Residuals:
    """Return the histogram of residuals (B,) with these edges. Residuals beyond an outer edge count in the outer bin."""
    counts, _ = np.histogram(values.clip(edges[0], edges[-1]), np.array(edges))
    return Residuals(edges, tuple(counts.tolist()))
