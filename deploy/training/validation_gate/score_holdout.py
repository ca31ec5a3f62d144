"""Score rows with a version as a scorer does: load the version in the same way, and decode events by its own signature.

Therefore the gate evaluates a champion by the scores that the champion gives in production. The champion's signature may have
other fields, dtypes or another order of fields than the challenger's. For rows of the feature log, it scores the logged inputs.
"""

import contextlib
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from model_registry.package import Package, field_sources
from model_registry.package.signature import Decision, Signature
from publisher.errors import REFUSED, Fatal
from scorer.backends.base import ModelRefused
from scorer.crash_isolation.trial_load import tried_loader
from scorer.evaluation.labelled_comparison import classes_of
from scorer.evaluation.score_events import answers
from scorer.features.log import create_reader
from scorer.features.read import FeatureLogDecoder
from scorer.settings import Settings
from training.snapshot.rows import LabelledRows
from training.snapshot.skip_counts import SkipCounts
from training.snapshot.target import Target
from training.validation_gate.metrics import ModelAnswers, decide

AT_A_TIME = 4_096  # rows scored at a time


def scored(package: Package, settings: Settings, rows: LabelledRows) -> tuple[ModelAnswers, SkipCounts]:
    """Score the rows with a version; return the answers, and the counts of rows without a score by reason.

    If the version has several outputs, the output that its decision is based on is evaluated, or else the first output. If the
    version has the outputs of the target's interval, the answers have intervals.

    Raises:
        Fatal: Exit code 3 if the version cannot be loaded, if it scores no row, or if its score does not fit the target: one
            number for two classes (the score of the second class) and for a regression, else a number for each class, and one
            number for each bound of an interval.
    """
    name = f"version {package.version or package.folder.name}"
    try:
        loaded = tried_loader(settings, remember=False)(package)
    except ModelRefused as error:
        raise Fatal(
            f"{name} is rejected: {error}", "promote a version that loads; `scorer check CONFIG` runs the same checks", REFUSED
        ) from None
    signature = loaded.model.signature()
    target = rows.target
    if rows.logged:
        loaded = replace(loaded, decoder=FeatureLogDecoder(signature, create_reader(settings)))
    rejected = SkipCounts()
    with contextlib.closing(loaded.model):
        _check(name, signature, rows)
        columns = _columns(signature, target)
        scores = np.full((len(rows), len(columns)) if columns else len(rows), np.nan)
        bounds = _interval_outputs(signature, target)
        intervals = np.full((len(rows), len(bounds)), np.nan)
        decisions = np.zeros(len(rows), np.intp)
        decided = _decision_indices(signature, target)
        for start in range(0, len(rows), AT_A_TIME):
            stop = min(start + AT_A_TIME, len(rows))
            answered = answers(loaded, rows.values[start:stop], rows.parts(start, stop), bounds)
            if not columns:
                scores[start:stop] = answered.numbers
            elif answered.rows is not None and answered.rows.shape[1] == len(columns):
                scores[start:stop] = answered.rows[:, columns]
            intervals[start:stop] = np.array([answered.outputs[output] for output in bounds]).reshape(-1, stop - start).T
            if decided:
                decisions[start:stop] = [decided.get(name, len(target.classes)) for name in answered.decisions]
            for row, poison in sorted(answered.rejected.items()):
                rejected.add(poison.reason, 1, f"{rows.places.of(start + row)}: {poison}")
    decisions = decisions if decided else decide(target, scores)
    result = ModelAnswers(scores, decisions, intervals if bounds else None)
    if not result.scored.any() and len(rows):
        raise _no_score(name, len(rows), len(columns), rejected)
    _check_intervals(name, bounds, intervals[result.scored])
    return result, rejected


def _no_score(name: str, rows: int, columns: int, rejected: SkipCounts) -> Fatal:
    """Return the error of a version that scores none of the rows. `columns` is the number of required numbers, 0 for one."""
    expected = f"{columns} numbers, one for each class" if columns else "one number"
    cause = (
        f": {rejected}; the first {next(iter(rejected.first.values()))}" if rejected.first else f": its score is not {expected}"
    )
    output = "an output with a column for each class" if columns else "output.index"
    hint = f"give {output} in the signature, or promote a version that answers these events"
    return Fatal(f"{name} scores none of {rows} held-out events{cause}", hint, REFUSED)


def _interval_outputs(signature: Signature, target: Target) -> tuple[str, ...]:
    """Return the outputs of the lower and of the upper bound; empty if no interval is evaluated, or if one is missing."""
    if target.interval is None:
        return ()
    bounds = target.interval.low, target.interval.high
    return bounds if {*bounds} <= {output.name for output in signature.outputs} else ()


def _check_intervals(name: str, bounds: tuple[str, ...], intervals: NDArray[np.float64]) -> None:
    """Check that the bounds of the scored rows, (B, 2), are numbers; (B, 0) without bounds. Raises Fatal (exit code 3)."""
    for at, output in enumerate(bounds):
        if np.isnan(intervals[:, at]).any():
            hint = "state the column of the number as index of the output in the signature, or change evaluation.interval"
            raise Fatal(f"{name}: the output {output!r} of evaluation.interval is not one number for each event", hint, REFUSED)


def _columns(signature: Signature, target: Target) -> list[int]:
    """Return the column of each class in the scores; empty if the score of a row is one number."""
    if target.kind != "classes":
        return []
    names = signature.labels_of(signature.decided) or target.classes
    return [names.index(name) for name in target.classes]


def _decision_indices(signature: Signature, target: Target) -> dict[str | None, int]:
    """Return the class index by decision; empty if the signature has no decision, or for a regression."""
    names = classes_of(signature)
    if not names or target.kind == "regression":
        return {}
    return {name: at for at, name in enumerate(names if target.kind == "binary" else target.classes)}


def _check(name: str, signature: Signature, rows: LabelledRows) -> None:
    """Raise Fatal (exit code 3) if the signature cannot be evaluated on these rows.

    The rows must have the keys and headers that the signature reads. A decision must fit the target. For two classes or a
    regression, it must be a threshold. For more classes, it must decide among the classes of the target.
    """
    beside = next(
        (
            field
            for field in field_sources.fields_outside_value(signature)
            if field.source not in (field_sources.TIME, field_sources.VALUE)
        ),
        None,
    )
    if beside is not None and rows.beside is None and not rows.logged:
        message = f"{name} reads field {beside.name!r} from {beside.source}, but the rows were joined without it"
        raise Fatal(message, "join the rows for the signatures of both versions", REFUSED)
    target = rows.target
    names = classes_of(signature)
    listed = ", ".join(map(repr, names))
    if target.kind == "binary" and (len(names) not in (0, 2) or not isinstance(signature.decision, Decision | None)):
        message = f"{name} decides among {listed}, by the largest score of a row, but two classes need a decision by threshold"
        raise Fatal(message, "write a decision with below and at_or_above into the signature", REFUSED)
    if target.kind == "classes":
        labels = signature.labels_of(signature.decided)
        if (names or labels) and set(labels) != set(target.classes):
            message = f"{name} decides among {listed or 'no classes'}, but the labels' classes are "
            hint = "set labels.classes to the classes of both versions, or publish to another channel: publish.channel"
            raise Fatal(message + ", ".join(map(repr, target.classes)), hint, REFUSED)
    if target.kind == "regression" and names and not isinstance(signature.decision, Decision):
        hint = "remove labels.kind: number, or publish to another channel: publish.channel"
        raise Fatal(f"{name} decides among {listed}, but the labels are numbers", hint, REFUSED)
