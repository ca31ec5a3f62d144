"""The differences of metrics, challenger minus champion, each with a confidence interval. Pure.

Both models are measured on the same resamples.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scorer.evaluation import quality_metrics
from training.snapshot.target import Target
from training.validation_gate.bootstrap import Blocks, Figure, Interval
from training.validation_gate.comparison import FigureDifference, Slice
from training.validation_gate.inputs import VerdictEvidence
from training.validation_gate.metrics import ModelAnswers, class_probabilities, constant, interval_scores, quantile_losses
from training.validation_gate.slices import large

Intervals = dict[str, Interval | None]
"""Intervals by the name of the metric; None if an interval is unknown."""


def of_rows(evidence: VerdictEvidence, blocks: Blocks, metric: str, confidence: float) -> Intervals:
    """Return the differences of the metrics that the rules check, by name, such as `auc`, `recall.late` and `brier`.

    A metric that is undefined for a model is omitted, such as `brier` if the model's scores are not probabilities. With more
    than two classes, the intervals of all classes hold simultaneously with this confidence (Bonferroni correction).
    """
    assert evidence.champion is not None
    target = evidence.rows.target
    figures_of_classes = 2 * len(target.classes) if target.kind == "classes" else 1
    joint = 1 - (1 - confidence) / figures_of_classes
    challenger_figures, champion_figures = (
        _figures(evidence, version.scored, blocks, metric) for version in (evidence.challenger, evidence.champion)
    )
    return {
        name: blocks.interval(challenger_figures[name].minus(champion_figures[name]), joint if "." in name else confidence)
        for name in challenger_figures
        if name in champion_figures
    }


def above_constant(evidence: VerdictEvidence, blocks: Blocks, metric: str, confidence: float) -> Interval | None:
    """Return the challenger's metric minus that of the best constant prediction; None if the difference is unknown."""
    rows = evidence.rows
    if not len(rows):
        return None
    versions = evidence.challenger.scored, constant(rows.target, rows.outcomes, metric)
    own, other = (figure(metric, rows.target, blocks, version, rows.outcomes) for version in versions)
    return None if own is None or other is None else blocks.interval(own.minus(other), confidence)


def figure(metric: str, target: Target, blocks: Blocks, answers: ModelAnswers, outcomes: NDArray[Any]) -> Figure | None:
    """Compute a metric on the rows and on each resample. `metric` is a value of `gate.metric`, or `brier`.

    The result is None if the metric needs probabilities (`log_loss`, `brier`), but the scores are not probabilities, or if it
    needs intervals (`interval_score`), but the model predicts none.
    """
    scores, decisions, intervals = answers
    match metric:
        case "auc":
            return blocks.auc(scores, outcomes == 1)
        case "pr_auc":
            return blocks.average_precision(scores, outcomes == 1)
        case "accuracy":
            return blocks.ratio(decisions == outcomes)
        case "macro_f1":
            return blocks.macro_f1(outcomes.astype(np.intp), decisions, len(target.classes))
        case "rmse":
            return blocks.ratio(np.square(scores - outcomes)).root()
        case "mae":
            return blocks.ratio(np.abs(scores - outcomes))
        case "quantile_loss":
            assert target.quantile is not None
            return blocks.ratio(quantile_losses(scores, outcomes, target.quantile))
        case "interval_score":
            assert target.interval is not None
            return None if intervals is None else blocks.ratio(interval_scores(intervals, outcomes, target.interval.level))
    losses = _losses(metric, scores, outcomes.astype(np.intp))
    return None if losses is None else blocks.ratio(losses)


def _losses(metric: str, scores: NDArray[np.float64], which: NDArray[np.intp]) -> NDArray[np.float64] | None:
    """Return the log loss or the Brier score of each row, (B,); None if the scores are not probabilities."""
    if metric == "log_loss":
        return quality_metrics.log_losses(class_probabilities(scores), which)
    if scores.ndim == 1:
        return None if quality_metrics.brier(scores, which == 1) is None else np.square(scores - which)
    if quality_metrics.brier_of_classes(scores, which) is None:
        return None
    right = scores[np.arange(len(scores)), which]
    return np.asarray(np.square(scores).sum(axis=1) - 2 * right + 1, np.float64)


def _figures(evidence: VerdictEvidence, scored: ModelAnswers, blocks: Blocks, metric: str) -> dict[str, Figure]:
    target = evidence.rows.target
    outcomes = evidence.rows.outcomes
    figures_by_name: dict[str, Figure] = {}
    for name in dict.fromkeys([metric, "mae" if target.kind == "regression" else "brier"]):
        defined = figure(name, target, blocks, scored, outcomes)
        if defined is not None:
            figures_by_name[name] = defined
    for at, name in enumerate(target.classes):
        occurred = outcomes == at
        predicted = scored.decisions == at
        figures_by_name[f"recall.{name}"] = blocks.ratio(occurred & predicted, occurred)
        figures_by_name[f"precision.{name}"] = blocks.ratio(occurred & predicted, predicted)
    return figures_by_name


def of_slices(evidence: VerdictEvidence, blocks: Blocks, metric: str, confidence: float) -> tuple[Slice, ...]:
    """Return the difference of the metric in each slice that has enough rows.

    All intervals hold simultaneously with this confidence (Bonferroni correction). A slice without an interval is omitted, for
    example because its rows have only one class.
    """
    assert evidence.champion is not None
    parts = [(field, value) for field, column in evidence.slices.items() for value in large(column)]
    share = (1 - confidence) / max(1, len(parts))
    return tuple(_slices(evidence, blocks, parts, metric, 1 - share))


def _slices(
    evidence: VerdictEvidence, blocks: Blocks, parts: list[tuple[str, str]], metric: str, confidence: float
) -> Iterator[Slice]:
    assert evidence.champion is not None
    target = evidence.rows.target
    for field, value in parts:
        chosen = evidence.slices[field] == value
        slice_blocks = blocks.select(chosen)
        outcomes = evidence.rows.outcomes[chosen]
        challenger_figure, champion_figure = (
            figure(metric, target, slice_blocks, version.scored.select(chosen), outcomes)
            for version in (evidence.challenger, evidence.champion)
        )
        if challenger_figure is None or champion_figure is None:
            continue
        interval = slice_blocks.interval(challenger_figure.minus(champion_figure), confidence)
        if interval is not None:
            scale = champion_figure.value if target.kind == "regression" else None
            yield Slice(field, value, int(chosen.sum()), FigureDifference(*interval), scale)
