"""How good answers were, now that outcomes are known: (n,) columns to figures. Pure."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Truth = NDArray[np.bool_]
BINS = 10


@dataclass(frozen=True, slots=True)
class Bin:
    """Scores from `low` to `high`: how many, their mean, and the share of them that came true."""

    low: float
    high: float
    count: int
    score: float
    true: float


def auc(scores: Numbers, true: Truth) -> float | None:
    """The area under the ROC curve, the probability that a true event scores higher than another one, ties half; None where
    only one outcome came. Mann and Whitney (1947)."""
    positive, negative = int(true.sum()), int((~true).sum())
    if not positive or not negative:
        return None
    order = np.argsort(scores, kind="stable")
    ranked = scores[order]
    firsts = np.flatnonzero(np.concatenate([[True], ranked[1:] != ranked[:-1]]))
    counts = np.diff(np.append(firsts, len(ranked)))
    ranks = np.repeat(firsts + (counts + 1) / 2, counts)
    above = float(ranks[true[order]].sum()) - positive * (positive + 1) / 2
    return above / (positive * negative)


def brier(scores: Numbers, true: Truth) -> float | None:
    """The mean squared difference of probability and outcome; None where scores are no probabilities. Brier (1950)."""
    if not len(scores) or scores.min() < 0.0 or scores.max() > 1.0:
        return None
    return float(np.square(scores - true).mean())


def brier_of_classes(scores: Numbers, which: NDArray[np.integer]) -> float | None:
    """Of (n, k) probabilities and the columns (n,) that came true: Brier's own definition, from 0 to 2."""
    if not len(scores) or not np.isfinite(scores).all() or scores.min() < 0.0 or scores.max() > 1.0:
        return None
    right = scores[np.arange(len(scores)), which]
    return float((np.square(scores).sum(axis=1) - 2.0 * right + 1.0).mean())


def calibration(scores: Numbers, true: Truth) -> list[Bin]:
    """Ten bins of equal width over [0, 1], those without scores left out; empty where scores are no probabilities."""
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
    """The expected calibration error: by bin, how far the mean score lies from the share that came true. Naeini and others,
    Obtaining well calibrated probabilities using Bayesian binning (2015)."""
    total = sum(each.count for each in bins)
    return sum(each.count * abs(each.score - each.true) for each in bins) / total if total else None


def confusion(labels: NDArray[np.integer], decisions: NDArray[np.integer], classes: int) -> NDArray[np.int64]:
    """(classes, classes): counts of events by label (row) and decision (column)."""
    return np.bincount(labels * classes + decisions, minlength=classes * classes).reshape(classes, classes)
