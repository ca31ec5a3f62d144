"""Compute quality figures from scores and outcomes. Pure."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Truth = NDArray[np.bool_]
BINS = 10
MIN_PROBABILITY = 1e-7  # the resolution of 32-bit floats near 1: a model that rounds to 0 or 1 has no infinite log loss
SUM_TOLERANCE = 1e-3  # by which probabilities may differ from a sum of 1, in 16- and 32-bit floats


@dataclass(frozen=True, slots=True)
class Bin:
    """A bin of the calibration curve: the scores from `low` to `high`.

    Attributes:
        count: The number of scores.
        score: The mean score.
        true: The share of positive outcomes.
    """

    low: float
    high: float
    count: int
    score: float
    true: float


def auc(scores: Numbers, true: Truth) -> float | None:
    """Return the area under the ROC curve, ties counted as half (Mann and Whitney, 1947).

    It is the probability that a positive event has a higher score than a negative event. The result is None if all outcomes are
    the same.
    """
    positive = int(true.sum())
    negative = int((~true).sum())
    if not positive or not negative:
        return None
    order = np.argsort(scores, kind="stable")
    ranked = scores[order]
    firsts = np.flatnonzero(np.concatenate([[True], ranked[1:] != ranked[:-1]]))
    counts = np.diff(np.append(firsts, len(ranked)))
    ranks = np.repeat(firsts + (counts + 1) / 2, counts)
    above = float(ranks[true[order]].sum()) - positive * (positive + 1) / 2
    return above / (positive * negative)


def average_precision(scores: Numbers, true: Truth) -> float | None:
    """Return the area under the precision-recall curve, as average precision; None without a positive event.

    It is the sum of the precision at each score as threshold, weighted by the rise of the recall at this threshold.
    """
    positive = int(true.sum())
    if not positive:
        return None
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    lasts = np.flatnonzero(np.concatenate([ranked[1:] != ranked[:-1], [True]]))
    hits = np.cumsum(true[order])[lasts]
    return float((np.diff(hits, prepend=0) * hits / (lasts + 1)).sum() / positive)


def brier(scores: Numbers, true: Truth) -> float | None:
    """Return the Brier score (1950), the mean squared difference of probability and outcome; None without probabilities."""
    if not len(scores) or scores.min() < 0.0 or scores.max() > 1.0:
        return None
    return float(np.square(scores - true).mean())


def brier_of_classes(scores: Numbers, which: NDArray[np.integer]) -> float | None:
    """Return Brier's original score, from 0 to 2, for probabilities (n, k) and the column index of each outcome (n,)."""
    if not len(scores) or not np.isfinite(scores).all() or scores.min() < 0.0 or scores.max() > 1.0:
        return None
    right = scores[np.arange(len(scores)), which]
    return float((np.square(scores).sum(axis=1) - 2.0 * right + 1.0).mean())


def log_losses(probabilities: Numbers, which: NDArray[np.integer]) -> Numbers | None:
    """Return the log loss of each row, (n,), in nats; None if the rows are not probabilities that sum to 1.

    A probability counts as at least `MIN_PROBABILITY`.

    Args:
        probabilities: The probability of each class, (n, k).
        which: The index of the true class of each row, (n,).
    """
    if not are_probabilities(probabilities):
        return None
    losses: Numbers = -np.log(np.maximum(probabilities[np.arange(len(probabilities)), which], MIN_PROBABILITY))
    return losses


def are_probabilities(rows: Numbers) -> bool:
    """Return whether all rows (n, k) are probabilities: no number is below 0, and each row sums to 1. False for no rows."""
    if not len(rows) or not np.isfinite(rows).all() or rows.min() < 0.0:
        return False
    return bool(np.abs(rows.sum(axis=1) - 1.0).max() <= SUM_TOLERANCE)


def calibration(scores: Numbers, true: Truth) -> list[Bin]:
    """Return the bins of the calibration curve: ten bins of equal width over [0, 1], without empty ones.

    There are no bins if the scores are not probabilities.
    """
    if not len(scores) or scores.min() < 0.0 or scores.max() > 1.0:
        return []
    edges = np.linspace(0.0, 1.0, BINS + 1)
    places = np.searchsorted(edges[1:-1], scores)
    counts, sums, trues = (np.bincount(places, weights, BINS) for weights in (None, scores, true.astype(np.float64)))
    return [
        Bin(float(edges[k]), float(edges[k + 1]), int(counts[k]), float(sums[k] / counts[k]), float(trues[k] / counts[k]))
        for k in np.flatnonzero(counts).tolist()
    ]


def calibration_error(bins: list[Bin]) -> float | None:
    """Return the expected calibration error; None without bins.

    It is the mean distance between the mean score and the share of positive outcomes of a bin, weighted by the number of scores
    in each bin. Naeini and others, Obtaining well calibrated probabilities using Bayesian binning (2015).
    """
    total = sum(each.count for each in bins)
    return sum(each.count * abs(each.score - each.true) for each in bins) / total if total else None


def confusion(labels: NDArray[np.integer], decisions: NDArray[np.integer], classes: int) -> NDArray[np.int64]:
    """Return the number of events by label (row) and decision (column), (classes, classes)."""
    return np.bincount(labels * classes + decisions, minlength=classes * classes).reshape(classes, classes)
