"""Compute the quality figures of model versions from their answers (scores and decisions) and the labels of events. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scorer.evaluation import quality_metrics
from scorer.evaluation.class_names import BINARY, Classes
from scorer.evaluation.label_columns import AnswerColumns, Labels, Refusals
from scorer.evaluation.latest_by_id import Column, NewestRows

FIGURES = ("accuracy", "auc", "pr_auc", "brier", "calibration_error", "mean_absolute_error", "root_mean_square_error")


@dataclass(frozen=True, slots=True)
class Quality:
    """The quality figures of one version; a figure that does not apply is None or empty.

    Attributes:
        version: The version as `version@digest`.
        labels: The number of events that have both an answer of this version and a label.
        rows: The names of the rows of `matrix`, which are the labels.
        columns: The names of the columns of `matrix`, which are the decisions.
        matrix: The confusion matrix: the number of events by label and decision.
        accuracy: The share of decisions that equal the label.
        auc: The area under the ROC curve.
        brier: The Brier score.
        calibration: The bins of the calibration curve.
        calibration_error: The expected calibration error.
        mean_absolute_error: The mean absolute error of a numeric outcome.
        root_mean_square_error: The root mean square error of a numeric outcome.
        pr_auc: The area under the precision-recall curve.
    """

    version: str
    labels: int
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    matrix: tuple[tuple[int, ...], ...] = ()
    accuracy: float | None = None
    auc: float | None = None
    brier: float | None = None
    calibration: tuple[quality_metrics.Bin, ...] = ()
    calibration_error: float | None = None
    mean_absolute_error: float | None = None
    root_mean_square_error: float | None = None
    pr_auc: float | None = None


@dataclass(frozen=True, slots=True)
class Assessment:
    """The quality figures of all versions, and the numbers of labels and scores that the figures do not include.

    Attributes:
        versions: The figures of each version.
        classes: The names of the classes; None if outcomes are numbers.
        answered: The number of event ids with an answer of any version.
        labelled: The number of event ids with an answer and a label that was not withdrawn.
        replaced: The number of labels that a newer label of the same event id replaced.
        unmatched: The number of labels whose event has no answer.
        withdrawn: The number of event ids with an answer whose label was withdrawn.
        refused: The numbers of unusable labels, by reason.
        unreadable: The number of unreadable records of the score topic, which are skipped.
        undecided: For each version (by digest), the number of scores with several named outputs that are not assessed, because
            it is unknown which output determines the decision.
    """

    versions: tuple[Quality, ...]
    classes: tuple[str | None, ...] | None
    answered: int
    labelled: int
    replaced: int
    unmatched: int
    withdrawn: int
    refused: Refusals = field(default_factory=Refusals)
    unreadable: int = 0
    undecided: Mapping[str, int] = field(default_factory=dict)


def assess(answers: AnswerColumns, answered: NewestRows, labels: Labels) -> Assessment:
    """Join the newest answer to each event with the newest label of the event id, and assess each version.

    Args:
        answers: All answers, with the names of versions and decisions by their codes.
        answered: The newest row of `answers` for each event id.
        labels: All labels.
    """
    newest = labels.rows.newest()
    answer_rows, label_rows = answered.joined(newest)
    valid = np.isfinite(newest.columns["truth"][label_rows]) if len(label_rows) else np.zeros(0, np.bool_)
    counted = answer_rows[valid]
    truth = newest.columns.get("truth", np.empty(0))[label_rows[valid]]
    joined = {name: column[counted] for name, column in answered.columns.items()}
    classes = labels.classes
    if classes is None and not labels.numbers and len(counted):
        are_outcomes = np.isin(truth, (0.0, 1.0)).all()
        classes = BINARY if are_outcomes and _is_probability(joined["number"]) else None
    return Assessment(
        versions=tuple(_by_version(joined, truth, answers, classes)) if len(counted) else (),
        classes=None if classes is None else classes.names,
        answered=len(answered),
        labelled=len(counted),
        replaced=newest.replaced,
        unmatched=labels.unmatched + len(newest) - len(label_rows),
        withdrawn=len(label_rows) - len(counted),
        refused=labels.refused,
    )


def assess_versions(sides: Sequence[tuple[AnswerColumns, NewestRows]], labels: Labels) -> Assessment:
    """Assess several versions by their answers to the same events, and return the figures of all versions.

    `sides` has, for each version, the arguments `answers` and `answered` of `assess`. The figures are in the same order.
    """
    assessments = [assess(answers, answered, labels) for answers, answered in sides]
    return replace(assessments[0], versions=tuple(quality for each in assessments for quality in each.versions))


def _is_probability(numbers: NDArray[np.float64]) -> bool:
    return bool(((numbers >= 0.0) & (numbers <= 1.0)).all())


def _by_version(
    joined: dict[str, Column], truth: NDArray[np.float64], answers: AnswerColumns, classes: Classes | None
) -> Iterator[Quality]:
    for code in np.unique(joined["version"]).tolist():
        members = joined["version"] == code
        columns = {name: column[members] for name, column in joined.items()}
        outcomes = truth[members]
        if classes is None:
            figures = _regression(columns["number"], outcomes)
        else:
            figures = {
                **_decided(columns, outcomes.astype(np.int64), answers, classes),
                **_graded(columns, outcomes.astype(np.int64), classes),
            }
        yield Quality(answers.versions[code], int(members.sum()), **figures)


def _regression(numbers: NDArray[np.float64], truth: NDArray[np.float64]) -> dict[str, Any]:
    errors = (numbers - truth)[np.isfinite(numbers)]
    if not len(errors):
        return {}
    square = float(np.sqrt(np.square(errors).mean()))
    return {"mean_absolute_error": float(np.abs(errors).mean()), "root_mean_square_error": square}


def _decided(answered: dict[str, Column], truth: NDArray[np.int64], answers: AnswerColumns, classes: Classes) -> dict[str, Any]:
    """Return the confusion matrix and the accuracy over the events with a decision. The keys are field names of `Quality`."""
    # The matrix has a row and a column for each class, and a further column for each decision that is not the name of a class.
    # The result is empty if no event has a decision, or if the names of the classes are unknown.
    decided = answered["decision"] >= 0
    if not classes.named or not decided.any():
        return {}
    names = [name if name is not None else str(at) for at, name in enumerate(classes.names)]
    columns = [*names, *(name for name in answers.decisions.all if name not in classes.names)]
    places = np.array([columns.index(name) for name in answers.decisions.all])[answered["decision"][decided]]
    counts = np.bincount(truth[decided] * len(columns) + places, minlength=len(names) * len(columns)).reshape(len(names), -1)
    used = np.asarray(counts.any(axis=0) | (np.arange(len(columns)) < len(names)))
    return {
        "rows": tuple(names),
        "columns": tuple(name for name, shown in zip(columns, used.tolist(), strict=True) if shown),
        "matrix": tuple(map(tuple, counts[:, used].tolist())),
        "accuracy": float(np.trace(counts) / counts.sum()),
    }


def _graded(answered: dict[str, Column], truth: NDArray[np.int64], classes: Classes) -> dict[str, Any]:
    """Return AUC, PR-AUC, Brier score and calibration; for more than two classes only the Brier score.

    The keys of the result are field names of `Quality`.
    """
    numbers = answered["number"]
    row = answered["row"]
    if len(classes.names) == 2:
        if row.shape[1] == 2:
            numbers = np.where(np.isfinite(numbers), numbers, row[:, 1])
        finite = np.isfinite(numbers)
        scores = numbers[finite]
        true = truth[finite] == 1
        bins = quality_metrics.calibration(scores, true)
        return {
            "auc": quality_metrics.auc(scores, true),
            "pr_auc": quality_metrics.average_precision(scores, true),
            "brier": quality_metrics.brier(scores, true),
            "calibration": tuple(bins),
            "calibration_error": quality_metrics.calibration_error(bins),
        }
    if row.shape[1] < len(classes.names) or not classes.ordered:
        return {}
    finite = np.asarray(np.isfinite(row[:, : len(classes.names)]).all(axis=1))
    return {"brier": quality_metrics.brier_of_classes(row[finite, : len(classes.names)], truth[finite])}
