"""Assess versions by the labels of their answers: the applicable figures, and their values. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scorer.evaluation import metrics
from scorer.evaluation.class_names import BINARY, Classes
from scorer.evaluation.label_columns import Answers, Labels, Refusals
from scorer.evaluation.latest_by_id import Column, Newest

FIGURES = ("accuracy", "auc", "brier", "calibration_error", "mean_absolute_error", "root_mean_square_error")


@dataclass(frozen=True, slots=True)
class Quality:
    """The figures of one version on `labels` events.

    None or empty: the figure does not apply. `matrix` counts events by label (`rows`) and decision (`columns`). The last two
    figures are for
    numeric outcomes.
    """

    version: str
    labels: int
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    matrix: tuple[tuple[int, ...], ...] = ()
    accuracy: float | None = None
    auc: float | None = None
    brier: float | None = None
    calibration: tuple[metrics.Bin, ...] = ()
    calibration_error: float | None = None
    mean_absolute_error: float | None = None
    root_mean_square_error: float | None = None


@dataclass(frozen=True, slots=True)
class Assessment:
    """The figures of all versions, and the labels that did not count.

    `classes` None: outcomes are numbers. `answered` counts ids with an answer, `labelled` those that also have a label. Of the
    labels,
    `replaced` have a newer one of their id, `unmatched` have no answer; `withdrawn` and `refused` ones do not count.
    `unreadable` counts skipped
    records of the score topic. `undecided` counts, by digest, scores of several outputs without a known deciding output.
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


def assess(answers: Answers, answered: Newest, labels: Labels) -> Assessment:
    """Join the newest answer of each id (`answered`, of `answers`) with its newest label, and assess each version."""
    newest = labels.rows.newest()
    mine, theirs = answered.joined(newest)
    there = np.isfinite(newest.columns["truth"][theirs]) if len(theirs) else np.zeros(0, np.bool_)
    mine, truth = mine[there], newest.columns.get("truth", np.empty(0))[theirs[there]]
    joined = {name: column[mine] for name, column in answered.columns.items()}
    classes = labels.classes
    if classes is None and len(mine) and _is_probability(joined["number"]) and np.isin(truth, (0.0, 1.0)).all():
        classes = BINARY
    return Assessment(
        versions=tuple(_by_version(joined, truth, answers, classes)) if len(mine) else (),
        classes=None if classes is None else classes.names,
        answered=len(answered),
        labelled=len(mine),
        replaced=newest.replaced,
        unmatched=labels.unmatched + len(newest) - len(theirs),
        withdrawn=len(theirs) - len(mine),
        refused=labels.refused,
    )


def assess_both(sides: Sequence[tuple[Answers, Newest]], labels: Labels) -> Assessment:
    """Assess several versions by their answers to the same ids, in their order."""
    found = [assess(answers, answered, labels) for answers, answered in sides]
    return replace(found[0], versions=tuple(quality for each in found for quality in each.versions))


def _is_probability(numbers: NDArray[np.float64]) -> bool:
    return bool(((numbers >= 0.0) & (numbers <= 1.0)).all())


def _by_version(
    joined: dict[str, Column], truth: NDArray[np.float64], answers: Answers, classes: Classes | None
) -> Iterator[Quality]:
    for code in np.unique(joined["version"]).tolist():
        mine = joined["version"] == code
        its = {name: column[mine] for name, column in joined.items()}
        which = truth[mine]
        if classes is None:
            figures = _regression(its["number"], which)
        else:
            figures = {
                **_decided(its, which.astype(np.int64), answers, classes),
                **_graded(its, which.astype(np.int64), classes),
            }
        yield Quality(answers.versions[code], int(mine.sum()), **figures)


def _regression(numbers: NDArray[np.float64], truth: NDArray[np.float64]) -> dict[str, Any]:
    errors = (numbers - truth)[np.isfinite(numbers)]
    if not len(errors):
        return {}
    square = float(np.sqrt(np.square(errors).mean()))
    return {"mean_absolute_error": float(np.abs(errors).mean()), "root_mean_square_error": square}


def _decided(its: dict[str, Column], truth: NDArray[np.int64], answers: Answers, classes: Classes) -> dict[str, Any]:
    """Return the matrix and the accuracy of decided events. Unknown decisions have columns behind the classes."""
    decided = its["decision"] >= 0
    if not classes.named or not decided.any():
        return {}
    names = [name if name is not None else str(at) for at, name in enumerate(classes.names)]
    columns = [*names, *(name for name in answers.decisions.all if name not in classes.names)]
    places = np.array([columns.index(name) for name in answers.decisions.all])[its["decision"][decided]]
    counts = np.bincount(truth[decided] * len(columns) + places, minlength=len(names) * len(columns)).reshape(len(names), -1)
    used = np.asarray(counts.any(axis=0) | (np.arange(len(columns)) < len(names)))
    return {
        "rows": tuple(names),
        "columns": tuple(name for name, shown in zip(columns, used.tolist(), strict=True) if shown),
        "matrix": tuple(map(tuple, counts[:, used].tolist())),
        "accuracy": float(np.trace(counts) / counts.sum()),
    }


def _graded(its: dict[str, Column], truth: NDArray[np.int64], classes: Classes) -> dict[str, Any]:
    """Return AUC, Brier score and calibration of two classes; the Brier score of more."""
    numbers, row = its["number"], its["row"]
    if len(classes.names) == 2:
        if row.shape[1] == 2:
            numbers = np.where(np.isfinite(numbers), numbers, row[:, 1])
        there = np.isfinite(numbers)
        scores, true = numbers[there], truth[there] == 1
        bins = metrics.calibration(scores, true)
        return {
            "auc": metrics.auc(scores, true),
            "brier": metrics.brier(scores, true),
            "calibration": tuple(bins),
            "calibration_error": metrics.calibration_error(bins),
        }
    if row.shape[1] < len(classes.names) or not classes.ordered:
        return {}
    there = np.asarray(np.isfinite(row[:, : len(classes.names)]).all(axis=1))
    return {"brier": metrics.brier_of_classes(row[there, : len(classes.names)], truth[there])}
