"""Precision, recall and cost of a class by the threshold of its score. Pure."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from scorer.evaluation import quality_metrics

Numbers = NDArray[np.float64]
STEPS = np.linspace(0.05, 0.95, 19)


class ThresholdRow(msgspec.Struct, frozen=True):
    """The figures for one threshold. Rows with a score of at least `threshold` are decided for the class.

    Attributes:
        decided: The share of the rows that are decided for the class.
        precision: The share of these rows that have the class; None if there are none.
        recall: The share of the rows with the class that are decided for it.
        cost: The mean cost of a row; None without a cost matrix.
    """

    threshold: float
    decided: float
    precision: float | None
    recall: float
    cost: float | None = None


class ThresholdFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a class by threshold.

    Attributes:
        class_: The name of the class.
        rows: The number of rows.
        positives: The number of rows with the class.
        auc: The area under the ROC curve; None if all or no rows have the class.
        pr_auc: The area under the precision-recall curve.
        thresholds: The figures for the thresholds 0.05, 0.1, ... 0.95 if all scores are from 0 to 1; otherwise for these
            quantiles of the scores.
        cheapest: The figures of the cheapest threshold, where every score is a possible threshold; None without a cost matrix.
    """

    class_: str = msgspec.field(name="class")
    rows: int
    positives: int
    auc: float | None
    pr_auc: float | None
    thresholds: tuple[ThresholdRow, ...]
    cheapest: ThresholdRow | None = None


def by_threshold(name: str, scores: Numbers, positive: NDArray[np.bool_], costs: Numbers | None = None) -> ThresholdFigures:
    """Return the figures of a class by threshold.

    The thresholds are 0.05, 0.1, ... 0.95 if all scores are from 0 to 1. Otherwise they are these quantiles of the scores.

    Args:
        name: The name of the class.
        scores: (B,), the scores of the class, at least one.
        positive: (B,), whether a row has the class; true for at least one row.
        costs: (2, 2), the cost of a row. The first index is 1 if the row has the class, the second is 1 if the row is decided
            for the class. None without costs.
    """
    probabilities = scores.min() >= 0.0 and scores.max() <= 1.0
    steps = STEPS if probabilities else np.unique(np.quantile(scores, STEPS))
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    hits = np.concatenate([[0], np.cumsum(positive[order])])

    def row(threshold: float) -> ThresholdRow:
        decided = int(np.searchsorted(-ranked, -threshold, "right"))
        cost = None if costs is None else float(_costs(np.array([decided]), hits, costs)[0])
        precision = float(hits[decided] / decided) if decided else None
        return ThresholdRow(float(threshold), decided / len(scores), precision, float(hits[decided] / hits[-1]), cost)

    cheapest = None
    if costs is not None:
        ends = np.flatnonzero(np.concatenate([ranked[1:] != ranked[:-1], [True]])) + 1
        cheapest = row(float(ranked[ends[_costs(ends, hits, costs).argmin()] - 1]))
    return ThresholdFigures(
        class_=name,
        rows=len(scores),
        positives=int(hits[-1]),
        auc=quality_metrics.auc(scores, positive),
        pr_auc=quality_metrics.average_precision(scores, positive),
        thresholds=tuple(row(threshold) for threshold in steps.tolist()),
        cheapest=cheapest,
    )


def _costs(decided: NDArray[np.intp], hits: NDArray[Any], costs: Numbers) -> Numbers:
    """Return the mean cost of a row if the first d rows are decided for the class, for each d in `decided` (n,).

    The rows are in descending order of their scores. `hits[i]` is the number of rows with the class among the first i rows.
    """
    rows = len(hits) - 1
    right = hits[decided]
    missed = hits[-1] - right
    false = decided - right
    total = costs[1, 1] * right + costs[1, 0] * missed + costs[0, 1] * false + costs[0, 0] * (rows - decided - missed)
    return np.asarray(total / rows, np.float64)


class DecisionCosts(msgspec.Struct, frozen=True):
    """The mean cost of a row for two ways to decide among several classes.

    Attributes:
        decided: The cost of the version's own decisions. A decision that is no class costs as much as the most expensive
            decision for the row.
        cheapest: The cost if each row is decided for the class with the lowest expected cost; None if the scores are not
            probabilities.
    """

    decided: float
    cheapest: float | None


def decision_costs(scores: Numbers, decisions: NDArray[np.intp], outcomes: NDArray[Any], costs: Numbers) -> DecisionCosts:
    """Return the costs of decisions among K classes; `costs` (K, K) has a row for each label and a column per decision."""
    wide = np.concatenate([costs, costs.max(axis=1, keepdims=True)], axis=1)
    cheapest = None
    if quality_metrics.are_probabilities(scores):
        cheapest = float(costs[outcomes, (scores @ costs).argmin(axis=1)].mean())
    return DecisionCosts(float(wide[outcomes, decisions].mean()), cheapest)


def cost_matrix(document: Any, classes: Sequence[str]) -> Numbers:
    """Read a cost matrix from a parsed document.

    Args:
        document: Rows of costs in the order of the classes, or a mapping from label to a mapping from decision to cost.
            Missing costs of a mapping are 0.
        classes: The names of the classes.

    Raises:
        ValueError: The document has another form, unknown classes, or a cost that is not a finite number.
    """
    size = len(classes)
    if isinstance(document, dict):
        names = {*document, *(name for row in document.values() if isinstance(row, dict) for name in row)}
        if unknown := sorted(str(name) for name in names if name not in classes):
            raise ValueError(f"there is no class {unknown[0]!r:.100}; the classes: {', '.join(classes)}")
        if not all(isinstance(row, dict) for row in document.values()):
            raise ValueError("each label must have a mapping from decision to cost")
        document = [[document.get(label, {}).get(decision, 0) for decision in classes] for label in classes]
    if not isinstance(document, list) or [len(row) if isinstance(row, list) else 0 for row in document] != [size] * size:
        raise ValueError(f"it must have {size} rows of {size} costs: a row for each of {', '.join(classes)}")
    for cost in (cost for row in document for cost in row):
        if isinstance(cost, bool) or not isinstance(cost, int | float) or not np.isfinite(cost):
            raise ValueError(f"{cost!r:.100} is not a cost")
    return np.array(document, np.float64)
