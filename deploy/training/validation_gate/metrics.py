"""Metrics of a model's scores and decisions on labelled rows, for every kind of target. Pure.

Scores have the shape (B,) for two classes (the probability of the second class) and for a regression (the number), and (B, K)
for K classes. Predicted intervals have the shape (B, 2): the lower and the upper bound.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scorer.evaluation import quality_metrics
from training.snapshot.target import Target, TargetKind

Numbers = NDArray[np.float64]
Indices = NDArray[np.intp]
Goal = Literal["max", "min"]
"""Whether a larger (`max`) or a smaller value (`min`) of a metric is better."""
GOALS: Mapping[str, Goal] = {
    "auc": "max",
    "pr_auc": "max",
    "accuracy": "max",
    "precision": "max",
    "recall": "max",
    "macro_precision": "max",
    "macro_recall": "max",
    "macro_f1": "max",
    "weighted_precision": "max",
    "weighted_f1": "max",
    "r2": "max",
    "brier": "min",
    "log_loss": "min",
    "loss": "min",
    "mae": "min",
    "mse": "min",
    "rmse": "min",
    "quantile_loss": "min",
    "interval_score": "min",
    "interval_width": "min",
}
"""The goal of each metric. A name with a part after a dot, such as `recall.late`, has the goal of the part before it."""
DEFAULT_METRICS: Mapping[TargetKind, str] = {"binary": "auc", "classes": "log_loss", "regression": "rmse"}
"""The metric by which models are compared if none is configured."""
LISTED = 20
"""The number of classes up to which documents list the precision and the recall of each class."""
THRESHOLD = 0.5  # the probability from which on the second of two classes is decided


class ModelAnswers(NamedTuple):
    """The scores and decisions of one model for B rows.

    `scores` (B,) or (B, K) float64 are NaN for rows without a score. `decisions` (B,) are indices of classes; the number of
    classes stands for a decision that is no class, such as "unsure". For a regression, all decisions are 0. `intervals` (B, 2)
    float64 are the predicted intervals; None if the model predicts none.
    """

    scores: Numbers
    decisions: Indices
    intervals: Numbers | None = None

    def select(self, chosen: NDArray[Any]) -> "ModelAnswers":
        """Return the answers for only the rows where `chosen` (B,) is true."""
        intervals = None if self.intervals is None else self.intervals[chosen]
        return ModelAnswers(self.scores[chosen], self.decisions[chosen], intervals)

    @property
    def scored(self) -> NDArray[np.bool_]:
        """Return (B,) booleans: true for rows with a score."""
        return np.asarray(np.isfinite(self.scores.reshape(len(self.scores), -1)).all(axis=1))


def goal(metric: str) -> Goal:
    """Return the goal of a metric; `max` for an unknown name."""
    return GOALS.get(metric, GOALS.get(metric.partition(".")[0], "max"))


def decide(target: Target, scores: Numbers) -> Indices:
    """Return the decisions (B,) that follow from the scores alone, as in `ModelAnswers`.

    For two classes, the decision is the second class if its score is at least 0.5. For K classes, it is the class with the
    largest score.
    """
    if target.kind == "classes":
        return np.asarray(np.nan_to_num(scores, nan=-np.inf).argmax(axis=1), np.intp)
    if target.kind == "binary":
        return np.asarray(scores >= THRESHOLD, np.intp)
    return np.zeros(len(scores), np.intp)


def default_metric(target: Target) -> str:
    """Return the metric by which models are compared if none is configured."""
    return DEFAULT_METRICS[target.kind] if target.quantile is None else "quantile_loss"


def evaluate(
    target: Target,
    scores: Numbers,
    outcomes: NDArray[Any],
    decisions: Indices | None = None,
    intervals: Numbers | None = None,
) -> dict[str, float]:
    """Return the metrics of a model by name. Undefined metrics are omitted.

    - Two classes: `auc`, `pr_auc`, `brier`, `log_loss`, `accuracy`, and `precision.CLASS` and `recall.CLASS`.
    - K classes: `log_loss`, `brier`, `accuracy`, `macro_precision`, `macro_recall`, `macro_f1`, `weighted_precision`,
      `weighted_f1`, and `precision.CLASS` and `recall.CLASS`. The weighted recall is the accuracy.
    - A regression: `rmse`, `mae` and `r2`; with a quantile also `quantile_loss`, and with intervals also `interval_score`,
      `interval_coverage` and `interval_width`.

    `brier` and `log_loss` are undefined if the scores are not probabilities. The precision of a class is undefined if no row is
    decided for the class.

    Args:
        target: The target.
        scores: (B,) or (B, K), all finite.
        outcomes: (B,), as in `LabelledRows.outcomes`.
        decisions: (B,), as in `ModelAnswers`; by default those of `decide`.
        intervals: (B, 2), all finite; None without intervals.
    """
    if not len(outcomes):
        return {}
    if target.kind == "regression":
        return dict([*_of_numbers(target, scores, outcomes), *_of_intervals(target, intervals, outcomes)])
    counts = matrix(target, decide(target, scores) if decisions is None else decisions, outcomes)
    named = _of_two(scores, outcomes == 1) if target.kind == "binary" else _of_classes(scores, outcomes)
    figures = {**named, **_of_matrix(counts, several=target.kind == "classes"), **_by_class(target.classes, counts)}
    return {name: value for name, value in figures.items() if value is not None}


def matrix(target: Target, decisions: Indices, outcomes: NDArray[Any]) -> NDArray[np.int64]:
    """Return the confusion matrix: entry [i, j] counts the rows with label i and decision j.

    Its shape is (K, K), or (K + 1, K + 1) if some decision is no class: its last row is then 0.
    """
    size = max(len(target.classes), int(decisions.max(initial=0)) + 1)
    return quality_metrics.confusion(outcomes.astype(np.intp), decisions, size)


def class_probabilities(scores: Numbers) -> Numbers:
    """Return the scores as one column for each class, (B, K). Scores (B,) are probabilities of the second of two classes."""
    return np.stack([1 - scores, scores], axis=1) if scores.ndim == 1 else scores


def quantile_losses(scores: Numbers, outcomes: Numbers, quantile: float) -> Numbers:
    """Return the quantile loss (pinball loss) of each row, (B,)."""
    errors = outcomes - scores
    return np.asarray(np.maximum(quantile * errors, (quantile - 1) * errors))


def interval_scores(intervals: Numbers, outcomes: Numbers, level: float) -> Numbers:
    """Return the interval score of each row, (B,): the width, and 2 / (1 - level) times the distance of an outcome outside.

    See Gneiting and Raftery, Strictly Proper Scoring Rules, Prediction, and Estimation, 2007, equation 43.
    """
    low, high = intervals.T
    outside = np.maximum(low - outcomes, 0) + np.maximum(outcomes - high, 0)
    return np.asarray(high - low + 2 / (1 - level) * outside)


def constant(target: Target, outcomes: NDArray[Any], metric: str) -> ModelAnswers:
    """Return the answers of the best model that ignores the events: it gives the same score for each row.

    The scores are the shares of the classes; for a regression the mean, the median if the metric is `mae`, or the quantile of
    the target if it is `quantile_loss`. The decision is the most frequent class. The interval of the target is between the
    quantiles that leave out equal shares of the outcomes on both sides.
    """
    if target.kind == "regression":
        quantile = target.quantile if metric == "quantile_loss" else 0.5 if metric == "mae" else None
        value = outcomes.mean() if quantile is None else np.quantile(outcomes, quantile)
        level = None if target.interval is None else target.interval.level
        bounds = None if level is None else np.quantile(outcomes, [(1 - level) / 2, (1 + level) / 2])
        intervals = None if bounds is None else np.tile(bounds, (len(outcomes), 1))
        return ModelAnswers(np.full(len(outcomes), value), np.zeros(len(outcomes), np.intp), intervals)
    shares = np.bincount(outcomes, minlength=len(target.classes)) / len(outcomes)
    scores = np.full(len(outcomes), shares[1]) if target.kind == "binary" else np.tile(shares, (len(outcomes), 1))
    return ModelAnswers(scores, np.full(len(outcomes), shares.argmax(), np.intp))


def _of_two(scores: Numbers, positive: NDArray[np.bool_]) -> dict[str, float | None]:
    losses = quality_metrics.log_losses(class_probabilities(scores), positive.astype(np.intp))
    return {
        "auc": quality_metrics.auc(scores, positive),
        "pr_auc": quality_metrics.average_precision(scores, positive),
        "brier": quality_metrics.brier(scores, positive),
        "log_loss": None if losses is None else float(losses.mean()),
    }


def _of_classes(scores: Numbers, outcomes: NDArray[np.integer]) -> dict[str, float | None]:
    losses = quality_metrics.log_losses(scores, outcomes)
    if losses is None:
        return {}
    return {"log_loss": float(losses.mean()), "brier": quality_metrics.brier_of_classes(scores, outcomes)}


def _of_matrix(counts: NDArray[np.int64], *, several: bool) -> dict[str, float | None]:
    figures: dict[str, float | None] = {"accuracy": _share(counts.trace(), counts.sum())}
    if not several:
        return figures
    labels = counts.sum(axis=1)
    present = labels > 0
    right = counts.diagonal()
    decided = counts.sum(axis=0)
    precision, recall = (np.divide(right, of, out=np.zeros(len(of)), where=of > 0) for of in (decided, labels))
    f1 = 2 * right / np.maximum(labels + decided, 1)
    for name, values in (("precision", precision), ("recall", recall), ("f1", f1)):
        figures[f"macro_{name}"] = float(values[present].mean())
    for name, values in (("precision", precision), ("f1", f1)):
        figures[f"weighted_{name}"] = float((values * labels).sum() / labels.sum())
    return figures


def _by_class(classes: tuple[str, ...], counts: NDArray[np.int64]) -> dict[str, float | None]:
    figures: dict[str, float | None] = {}
    for at, name in enumerate(classes):
        figures[f"precision.{name}"] = _share(counts[at, at], counts[:, at].sum())
        figures[f"recall.{name}"] = _share(counts[at, at], counts[at].sum())
    return figures


def _of_numbers(target: Target, scores: Numbers, outcomes: Numbers) -> Iterator[tuple[str, float]]:
    errors = scores - outcomes
    square = float(np.square(errors).mean())
    yield "rmse", float(np.sqrt(square))
    yield "mae", float(np.abs(errors).mean())
    variance = float(outcomes.var())
    if variance > 0:
        yield "r2", 1 - square / variance
    if target.quantile is not None:
        yield "quantile_loss", float(quantile_losses(scores, outcomes, target.quantile).mean())


def _of_intervals(target: Target, intervals: Numbers | None, outcomes: Numbers) -> Iterator[tuple[str, float]]:
    if target.interval is None or intervals is None:
        return
    low, high = intervals.T
    yield "interval_score", float(interval_scores(intervals, outcomes, target.interval.level).mean())
    yield "interval_coverage", float(((low <= outcomes) & (outcomes <= high)).mean())
    yield "interval_width", float((high - low).mean())


def _share(part: np.int64, total: np.int64) -> float | None:
    return float(part / total) if total else None
