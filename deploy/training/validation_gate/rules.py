"""The rules of the gate. Each rule compares a value with a bound, and has a message for its failure. Pure.

A difference is the challenger's value of a metric minus the champion's. Most rules require evidence that the challenger is not
worse; the rule about slices fails only with evidence that it is worse.
"""

# A difference is the challenger's value of a metric minus the champion's. For most metrics, the rule requires that the lower
# end of the confidence interval of the difference is not below the negative margin: the rows must show that the challenger is
# not worse. With too few rows the interval is wide, and the challenger is rejected.
#
# The rule about slices requires the opposite evidence. A slice fails only if its difference is below the negative margin and
# its whole interval is below 0: the rows must show that the challenger is worse. There are many small slices. With the first
# kind of rule, a challenger that equals the champion would fail by chance in some of them.

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from training.settings import BLOCKS, GateSection
from training.validation_gate.bootstrap import Interval
from training.validation_gate.comparison import FigureDifference, GateRule, Slice
from training.validation_gate.inputs import VerdictEvidence
from training.validation_gate.metric_deltas import Intervals

LEAST_SCORED = 0.99  # the minimum share of the rows that every version must score
STALE_BLOCKS = 1.0  # by how many blocks the newest labelled event may be older than the newest mature event
CHANCE = 0.5  # the AUC of random scores
DIFFERS = "differs"


class Ruled(NamedTuple):
    """The result of a rule, and the message that explains its failure."""

    rule: GateRule
    wrong: str


def _at_least(name: str, value: float, bound: float, failure: str, of: Interval | None = None) -> Ruled:
    return Ruled(GateRule(name, value, bound, bool(value >= bound), of and FigureDifference(*of)), failure)


def _above(name: str, value: float, bound: float, failure: str, of: Interval | None = None) -> Ruled:
    return Ruled(GateRule(name, value, bound, bool(value > bound), of and FigureDifference(*of)), failure)


def _at_most(name: str, value: float, bound: float, failure: str, of: Interval | None = None) -> Ruled:
    return Ruled(GateRule(name, value, bound, bool(value <= bound), of and FigureDifference(*of)), failure)


def _unknown(name: str, failure: str = "", *, passed: bool = True) -> Ruled:
    return Ruled(GateRule(name, None, None, passed), failure)


def of_rows(evidence: VerdictEvidence, blocks: int, gate: GateSection, coverage: float) -> Iterator[Ruled]:
    """Check that the rows suffice for a verdict, and that the champion was not trained on them.

    `blocks` is the number of time blocks with rows that every version scores. `coverage` is the required share of labelled
    events among the events that are old enough to have a label.
    """
    count = len(evidence.rows)
    mature = len(evidence.mature_times)
    if evidence.champion is not None:
        message = f"the champion was trained on {evidence.leaked or 0:,} of the {count:,} rows of this evaluation"
        yield _unknown("leak") if evidence.leaked is None else _at_most("leak", evidence.leaked, 0, message)
    share = count / mature if mature else 0.0
    yield _at_least("coverage", share, coverage, f"too few rows: only {share:.1%} of the held-out events have a label")
    times = evidence.rows.places.time_ms
    late = (int(evidence.mature_times.max()) - int(times.max())) / gate.block if count and mature else 0.0
    message = (
        f"labels are stale: the newest labelled event is {late:.1f} blocks older than the newest one that must have a label"
    )
    yield _at_most("fresh", late, STALE_BLOCKS, message)
    scored = float(evidence.scored.mean()) if count else 0.0
    yield _at_least("scored", scored, LEAST_SCORED, f"only {scored:.1%} of the rows are scored by every version")
    yield _at_least("blocks", blocks, BLOCKS[0], f"too few rows: they cover {blocks} blocks of time")


def of_first(interval: Interval | None) -> Iterator[Ruled]:
    """Check that a first model is better than chance, by the lower end of the interval of its AUC.

    The check fails if the interval is unknown (None).
    """
    if interval is None:
        yield _unknown("chance", "too few rows: the AUC is unknown", passed=False)
    else:
        yield _above("chance", interval.low, CHANCE, f"the AUC may be {interval.low:.4g}: no better than chance")


def of_both(evidence: VerdictEvidence, intervals: Intervals, slices: Sequence[Slice], gate: GateSection) -> Iterator[Ruled]:
    """Check a challenger against the champion. `evidence` has only the rows that both versions score."""
    assert evidence.champion is not None
    challenger_scores = evidence.challenger.scored
    champion_scores = evidence.champion.scored
    largest_difference = float(np.abs(challenger_scores.scores - champion_scores.scores).max(initial=0.0))
    yield _above(DIFFERS, largest_difference, 0.0, "the challenger gives the champion's score on every row")
    yield from _of_metric(intervals[gate.metric], gate)
    for figure in ("recall", "precision"):
        for name in evidence.classes:
            yield _of_class(f"{figure}.{name}", intervals[f"{figure}.{name}"], gate)
    yield _of_brier(intervals.get("brier"), gate)
    yield _of_slices(slices, gate)


def _of_metric(interval: Interval | None, gate: GateSection) -> Iterator[Ruled]:
    """Check the interval of the metric's difference: first its width, then its lower end."""
    # The bound is the negative margin, or 0 if only a better challenger may be promoted. An interval that contains the bound
    # must be at most twice as wide as the margin; otherwise there are too few rows to decide.
    if interval is None:
        yield _unknown("width", f"too few rows: the difference in {gate.metric} is unknown", passed=False)
        return
    better = gate.promote == "better"
    bound = 0.0 if better else -gate.margin
    message = f"{gate.metric} is {interval.value:+.4f}, between {interval.low:+.4f} and {interval.high:+.4f}"
    decided = interval.high < bound or (interval.low > bound if better else interval.low >= bound)
    width = GateRule(
        "width", interval.width, None if decided else 2 * gate.margin, decided or interval.width <= 2 * gate.margin
    )
    yield Ruled(width, f"too few rows: the difference in {message}")
    worse = f"the challenger is not shown to be {'better' if better else 'not worse'}: {message}"
    yield (_above if better else _at_least)(gate.metric, interval.low, bound, worse, interval)


def _of_class(name: str, interval: Interval | None, gate: GateSection) -> Ruled:
    """Check the recall or the precision of a class; `name` is the name of the metric, such as `recall.late`."""
    # The precision is unknown if a version never decides for the class; the class is then checked by its recall.
    if interval is None:
        return _unknown(name)
    message = f"{name} is {interval.value:+.4f}, between {interval.low:+.4f} and {interval.high:+.4f}"
    return _at_least(
        name,
        interval.low,
        -gate.class_margin,
        f"a class may be worse than with the champion: the difference in {message}",
        interval,
    )


def _of_brier(interval: Interval | None, gate: GateSection) -> Ruled:
    """Check that the Brier score is not worse than the margin allows, by the upper end of its interval."""
    # With a margin of 0, half of all challengers that equal the champion would fail.
    if interval is None:
        return _unknown("brier")
    message = f"the Brier score is {interval.value:+.5f}, between {interval.low:+.5f} and {interval.high:+.5f}"
    return _at_most(
        "brier",
        interval.high,
        gate.margin,
        f"probabilities may be worse than the champion's: the difference in {message}",
        interval,
    )


def _of_slices(slices: Sequence[Slice], gate: GateSection) -> Ruled:
    """Check the worst slice: of the slices whose whole interval is below 0, the one with the lowest difference."""
    if not slices:
        return _unknown("slices")
    worst = min(
        (candidate for candidate in slices if candidate.difference.high < 0),
        key=lambda candidate: candidate.difference.value,
        default=None,
    )
    if worst is None:
        return _at_least("slices", 0.0, -gate.slice_margin, "")
    message = f"where {worst.field} is {worst.value!r:.80} ({worst.rows:,} rows) the challenger is worse"
    return _at_least("slices", worst.difference.value, -gate.slice_margin, message)
