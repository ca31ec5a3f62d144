"""The challenger's figures minus the champion's, each with its interval over the same resamples. Pure."""

from collections.abc import Iterator

import numpy as np

from scorer.evaluation.metrics import brier
from training.validation_gate.bootstrap import Blocks, Figure, Interval
from training.validation_gate.comparison import Difference, Slice
from training.validation_gate.inputs import Evidence
from training.validation_gate.metrics import Scored
from training.validation_gate.slices import large

Intervals = dict[str, Interval | None]
"""Intervals by figure; None if unknown."""


def of_rows(evidence: Evidence, blocks: Blocks, confidence: float) -> Intervals:
    """Return the differences of auc, of recall and precision by class (`recall.late`), and of brier for probabilities."""
    assert evidence.champion is not None
    mine, theirs = (_figures(evidence, one.scored, blocks) for one in (evidence.challenger, evidence.champion))
    return {name: blocks.interval(mine[name].minus(theirs[name]), confidence) for name in mine if name in theirs}


def _figures(evidence: Evidence, scored: Scored, blocks: Blocks) -> dict[str, Figure]:
    true = evidence.true
    found = {"auc": blocks.auc(scored.scores, true)}
    for name, came, said in zip(evidence.classes, (~true, true), (~scored.positive, scored.positive), strict=True):
        found[f"recall.{name}"] = blocks.ratio(came & said, came)
        found[f"precision.{name}"] = blocks.ratio(came & said, said)
    if brier(scored.scores, true) is not None:
        found["brier"] = blocks.ratio(np.square(scored.scores - true))
    return found


def of_slices(evidence: Evidence, blocks: Blocks, confidence: float) -> tuple[Slice, ...]:
    """Return the difference of the AUC in each large slice.

    The intervals hold simultaneously (Bonferroni), because one of many slices would look worse by chance. A slice without an
    interval, for lack of one class, is omitted.
    """
    assert evidence.champion is not None
    parts = [(field, value) for field, column in evidence.slices.items() for value in large(column)]
    share = (1 - confidence) / max(1, len(parts))
    return tuple(_slices(evidence, blocks, parts, 1 - share))


def _slices(evidence: Evidence, blocks: Blocks, parts: list[tuple[str, str]], confidence: float) -> Iterator[Slice]:
    assert evidence.champion is not None
    for field, value in parts:
        chosen = evidence.slices[field] == value
        here, true = blocks.select(chosen), evidence.true[chosen]
        mine, theirs = (here.auc(one.scored.scores[chosen], true) for one in (evidence.challenger, evidence.champion))
        found = here.interval(mine.minus(theirs), confidence)
        if found is not None:
            yield Slice(field, value, int(chosen.sum()), Difference(*found))
