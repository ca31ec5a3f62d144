"""Metrics of a model's scores and decisions on labelled rows. Pure."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scorer.evaluation import quality_metrics


class ModelAnswers(NamedTuple):
    """The scores and decisions of one model for B rows.

    `scores` (B,) float64 are NaN for rows without a score. `positive` (B,) bool is true if the decision is the second class.
    """

    scores: NDArray[np.float64]
    positive: NDArray[np.bool_]

    def select(self, chosen: NDArray[np.bool_]) -> "ModelAnswers":
        """Return the answers for only the rows where `chosen` (B,) is true."""
        return ModelAnswers(self.scores[chosen], self.positive[chosen])


def matrix(scored: ModelAnswers, true: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the confusion matrix (2, 2): entry [i, j] counts the rows with label i and decision j."""
    return quality_metrics.confusion(true.astype(np.intp), scored.positive.astype(np.intp), 2)


def figures(scored: ModelAnswers, true: NDArray[np.bool_], classes: tuple[str, str]) -> dict[str, float]:
    """Return auc, brier, accuracy, and precision and recall of each class, by name, such as `recall.late`.

    Undefined figures are omitted: the Brier score if the scores are not probabilities, and the precision of a class if no
    decision is this class.
    """
    counts = matrix(scored, true)
    figures_by_name = {"auc": quality_metrics.auc(scored.scores, true), "brier": quality_metrics.brier(scored.scores, true)}
    figures_by_name["accuracy"] = _share(counts.trace(), counts.sum())
    for at, name in enumerate(classes):
        figures_by_name[f"precision.{name}"] = _share(counts[at, at], counts[:, at].sum())
        figures_by_name[f"recall.{name}"] = _share(counts[at, at], counts[at].sum())
    return {name: value for name, value in figures_by_name.items() if value is not None}


def _share(part: np.int64, total: np.int64) -> float | None:
    return float(part / total) if total else None
