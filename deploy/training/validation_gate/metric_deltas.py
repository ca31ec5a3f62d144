"""The differences of metrics, challenger minus champion, each with a confidence interval. Pure.

Both models are measured on the same resamples.
"""

from collections.abc import Iterator

import numpy as np

from scorer.evaluation.quality_metrics import brier
from training.validation_gate.bootstrap import Blocks, Figure, Interval
from training.validation_gate.comparison import FigureDifference, Slice
from training.validation_gate.inputs import VerdictEvidence
from training.validation_gate.metrics import ModelAnswers
from training.validation_gate.slices import large

Intervals = dict[str, Interval | None]
"""Intervals by the name of the metric; None if an interval is unknown."""


def of_rows(evidence: VerdictEvidence, blocks: Blocks, confidence: float) -> Intervals:
    """Return the differences of all metrics by name, such as `auc`, `recall.late` and `brier`.

    `brier` is omitted if the scores of a model are not probabilities.
    """
    assert evidence.champion is not None
    challenger_figures, champion_figures = (
        _figures(evidence, version.scored, blocks) for version in (evidence.challenger, evidence.champion)
    )
    return {
        name: blocks.interval(challenger_figures[name].minus(champion_figures[name]), confidence)
        for name in challenger_figures
        if name in champion_figures
    }


def _figures(evidence: VerdictEvidence, scored: ModelAnswers, blocks: Blocks) -> dict[str, Figure]:
    true = evidence.true
    figures_by_name = {"auc": blocks.auc(scored.scores, true)}
    for name, occurred, predicted in zip(evidence.classes, (~true, true), (~scored.positive, scored.positive), strict=True):
        figures_by_name[f"recall.{name}"] = blocks.ratio(occurred & predicted, occurred)
        figures_by_name[f"precision.{name}"] = blocks.ratio(occurred & predicted, predicted)
    if brier(scored.scores, true) is not None:
        figures_by_name["brier"] = blocks.ratio(np.square(scored.scores - true))
    return figures_by_name


def of_slices(evidence: VerdictEvidence, blocks: Blocks, confidence: float) -> tuple[Slice, ...]:
    """Return the AUC difference in each slice that has enough rows.

    All intervals together are correct with this confidence (Bonferroni). A slice without an interval is omitted, for example
    because its rows have only one class.
    """
    assert evidence.champion is not None
    parts = [(field, value) for field, column in evidence.slices.items() for value in large(column)]
    share = (1 - confidence) / max(1, len(parts))
    return tuple(_slices(evidence, blocks, parts, 1 - share))


def _slices(evidence: VerdictEvidence, blocks: Blocks, parts: list[tuple[str, str]], confidence: float) -> Iterator[Slice]:
    assert evidence.champion is not None
    for field, value in parts:
        chosen = evidence.slices[field] == value
        slice_blocks = blocks.select(chosen)
        true = evidence.true[chosen]
        challenger_auc, champion_auc = (
            slice_blocks.auc(version.scored.scores[chosen], true) for version in (evidence.challenger, evidence.champion)
        )
        interval = slice_blocks.interval(challenger_auc.minus(champion_auc), confidence)
        if interval is not None:
            yield Slice(field, value, int(chosen.sum()), FigureDifference(*interval))
