"""Metrics of a model's scores and decisions on labelled rows, for every kind of target. Pure.

Scores have the shape (B,) for two classes (the probability of the second class) and for a regression (the number), and (B, K)
for K classes.
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
    classes stands for a decision that is no class, such as "unsure". They are 0 for a regression.
    """

    scores: Numbers
    decisions: Indices

    def select(self, chosen: NDArray[Any]) -> "ModelAnswers":
        """Return the answers for only the rows where `chosen` (B,) is true."""
        return ModelAnswers(self.scores[chosen], self.decisions[chosen])

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


def evaluate(target: Target, scores: Numbers, outcomes: NDArray[Any], decisions: Indices | None = None) -> dict[str, float]:
    """Return the metrics of a model by name. Undefined metrics are omitted.

    - Two classes: `auc`, `pr_auc`, `brier`, `log_loss`, `accuracy`, and `precision.CLASS` and `recall.CLASS`.
    - K classes: `log_loss`, `brier`, `accuracy`, `macro_precision`, `macro_recall`, `macro_f1`, `weighted_precision`,
      `weighted_f1`, and `precision.CLASS` and `recall.CLASS`. The weighted recall is the accuracy.
    - A regression: `rmse`, `mae` and `r2`.

    `brier` and `log_loss` are undefined if the scores are not probabilities. The precision of a class is undefined if no row is
    decided for the class.

    Args:
        target: The target.
        scores: (B,) or (B, K), all finite.
        outcomes: (B,), as in `LabelledRows.outcomes`.
        decisions: (B,), as in `ModelAnswers`; by default those of `decide`.
    """
    if not len(outcomes):
        return {}
    if target.kind == "regression":
        return dict(_of_numbers(scores, outcomes))
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


def constant(target: Target, outcomes: NDArray[Any], metric: str) -> ModelAnswers:
    """Return the answers of the best model that ignores the events: it gives the same score for each row.

    The scores are the shares of the classes; for a regression the mean, or the median if the metric is `mae`. The decision is
    the most frequent class.
    """
    if target.kind == "regression":
        value = np.median(outcomes) if metric == "mae" else outcomes.mean()
        return ModelAnswers(np.full(len(outcomes), value), np.zeros(len(outcomes), np.intp))
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


def _of_numbers(scores: Numbers, outcomes: Numbers) -> Iterator[tuple[str, float]]:
    errors = scores - outcomes
    square = float(np.square(errors).mean())
    yield "rmse", float(np.sqrt(square))
    yield "mae", float(np.abs(errors).mean())
    variance = float(outcomes.var())
    if variance > 0:
        yield "r2", 1 - square / variance


def _share(part: np.int64, total: np.int64) -> float | None:
    return float(part / total) if total else None
