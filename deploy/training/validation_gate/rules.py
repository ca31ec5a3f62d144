"""The rules of the validation gate. Each rule compares a value with a bound, and has a message for its failure. Pure.

A difference is the challenger's value of a metric minus the champion's. Most rules require evidence that the challenger is not
worse; the rule about slices fails only with evidence that it is worse.
"""

# A difference is the challenger's value of a metric minus the champion's. For most metrics, the rule requires that the lower
# end of the confidence interval of the difference is not below the negative margin: the rows must show that the challenger is
# not worse. With too few rows the interval is wide, and the challenger is rejected. For errors, such as the log loss, the upper
# end must not be above the margin. Errors of a regression have any unit, so their margin is a share of the champion's error.
#
# The rule about slices requires the opposite evidence. A slice fails only if its difference is below the negative margin and
# its whole interval is below 0: the rows must show that the challenger is worse. There are many small slices. With the first
# kind of rule, a challenger that equals the champion would fail by chance in some of them.

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from training.settings import BLOCKS, GateSection
from training.snapshot.target import Target
from training.validation_gate.bootstrap import Interval
from training.validation_gate.comparison import FigureDifference, GateRule, Slice
from training.validation_gate.inputs import VerdictEvidence
from training.validation_gate.metric_deltas import Intervals
from training.validation_gate.metrics import LISTED, Goal, ModelAnswers, evaluate, goal

MIN_SCORED = 0.99  # the minimum share of the rows that every version must score
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


def _below(name: str, value: float, bound: float, failure: str, of: Interval | None = None) -> Ruled:
    return Ruled(GateRule(name, value, bound, bool(value < bound), of and FigureDifference(*of)), failure)


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
    yield _at_least("scored", scored, MIN_SCORED, f"only {scored:.1%} of the rows are scored by every version")
    yield _at_least("blocks", blocks, BLOCKS[0], f"too few rows: they cover {blocks} blocks of time")


def of_first(interval: Interval | None) -> Iterator[Ruled]:
    """Check that a first model is better than chance, by the lower end of the interval of its AUC.

    The check fails if the interval is unknown (None).
    """
    if interval is None:
        yield _unknown("chance", "too few rows: the AUC is unknown", passed=False)
    else:
        yield _above("chance", interval.low, CHANCE, f"the AUC may be {interval.low:.4g}: no better than chance")


def of_first_beside_constant(metric: str, interval: Interval | None) -> Iterator[Ruled]:
    """Check that a first model is better than the best constant prediction.

    `interval` is the confidence interval of a difference: the metric of the model minus the metric of the constant
    prediction. The check fails if `interval` is None.
    """
    if interval is None:
        yield _unknown("chance", f"{metric} is unknown: {_why_unknown(metric)}", passed=False)
        return
    message = f"no better than a constant prediction: the difference in {_described(metric, interval)}"
    if goal(metric) == "min":
        yield _below("chance", interval.high, 0.0, message, interval)
    else:
        yield _above("chance", interval.low, 0.0, message, interval)


def of_both(evidence: VerdictEvidence, intervals: Intervals, slices: Sequence[Slice], gate: GateSection) -> Iterator[Ruled]:
    """Check a challenger against the champion. `evidence` has only the rows that both versions score.

    `gate.metric` and `gate.margin` are set (see `gate_defaults.complete`).
    """
    assert evidence.champion is not None
    assert gate.metric is not None
    assert gate.margin is not None
    largest_difference = _largest_difference(evidence.challenger.scored, evidence.champion.scored)
    yield _above(DIFFERS, largest_difference, 0.0, "the challenger gives the champion's score on every row")
    target = evidence.rows.target
    scale = _scale(evidence, gate.metric)
    yield from _of_metric(intervals.get(gate.metric), gate.metric, gate.margin * scale, gate.promote)
    yield from _of_classes(target, intervals, gate)
    if target.kind != "regression":
        yield _of_brier(intervals.get("brier"), gate.margin)
    elif gate.metric != "mae" and target.quantile is None:
        yield _of_mean_error(intervals.get("mae"), gate.margin * _scale(evidence, "mae"))
    yield _of_slices(slices, goal(gate.metric), gate.slice_margin)


def _largest_difference(challenger: ModelAnswers, champion: ModelAnswers) -> float:
    """Return the largest difference between two scores or two bounds of an interval; a missing bound counts as 0."""
    differences = [challenger.scores - champion.scores]
    if challenger.intervals is not None or champion.intervals is not None:
        bounds = (np.zeros((len(one.scores), 2)) if one.intervals is None else one.intervals for one in (challenger, champion))
        differences.append(np.subtract(*bounds))
    return max(float(np.abs(difference).max(initial=0.0)) for difference in differences)


def _scale(evidence: VerdictEvidence, metric: str) -> float:
    """Return the number by which a margin is multiplied: the champion's error for a regression if it is defined, else 1."""
    assert evidence.champion is not None
    rows = evidence.rows
    answers = evidence.champion.scored
    if rows.target.kind != "regression":
        return 1.0
    return evaluate(rows.target, answers.scores, rows.outcomes, intervals=answers.intervals).get(metric, 1.0)


def _of_metric(interval: Interval | None, metric: str, margin: float, promote: str) -> Iterator[Ruled]:
    """Check the interval of the metric's difference: its width, then the end that is worse for the challenger."""
    # The bound is the margin, or 0 if only a better challenger may be promoted. An interval that contains the bound must be at
    # most twice as wide as the margin; otherwise there are too few rows to decide.
    if interval is None:
        yield _unknown("width", f"the difference in {metric} is unknown: {_why_unknown(metric)}", passed=False)
        return
    better = promote == "better"
    least = goal(metric) == "min"
    bound = 0.0 if better else margin if least else -margin
    low, high = (-interval.high, -interval.low) if least else (interval.low, interval.high)
    limit = -bound if least else bound
    decided = high < limit or (low > limit if better else low >= limit)
    message = _described(metric, interval)
    width = GateRule("width", interval.width, None if decided else 2 * margin, decided or interval.width <= 2 * margin)
    yield Ruled(width, f"too few rows (lengthen snapshot.hold_out or raise gate.margin): the difference in {message}")
    worse = f"the challenger is not shown to be {'better' if better else 'not worse'}: {message}"
    if least:
        yield (_below if better else _at_most)(metric, interval.high, bound, worse, interval)
    else:
        yield (_above if better else _at_least)(metric, interval.low, bound, worse, interval)


def _why_unknown(metric: str) -> str:
    """Return the reason why a metric of a version can be unknown."""
    reason = "there are too few rows"
    others = {
        "log_loss": ", or a version's scores are not probabilities",
        "interval_score": ", or a version has no outputs of evaluation.interval",
    }
    return reason + others.get(metric, "")


def _described(metric: str, interval: Interval) -> str:
    return f"{metric} is {signed(interval.value)}, between {signed(interval.low)} and {signed(interval.high)}"


def signed(value: float) -> str:
    """Format a difference with its sign: with 4 decimals, or with 5 digits if it is large."""
    return f"{value:+.4f}" if abs(value) < 1 else f"{value:+.5g}"


def _of_classes(target: Target, intervals: Intervals, gate: GateSection) -> Iterator[Ruled]:
    """Check the recall and the precision of each class.

    If there are more than `LISTED` classes, only classes that fail are listed, at most `LISTED` of them, the worst first.
    """
    names = [f"{figure}.{name}" for figure in ("recall", "precision") for name in target.classes]
    of_class = _of_class if target.kind == "binary" else _of_one_of_many
    ruled = [of_class(name, intervals[name], gate) for name in names]
    if len(target.classes) > LISTED:
        failed = [result for result in ruled if not result.rule.passed]
        ruled = sorted(failed, key=lambda result: result.rule.value or 0.0)[:LISTED] or [_unknown("classes")]
    yield from ruled


def _of_class(name: str, interval: Interval | None, gate: GateSection) -> Ruled:
    """Check the recall or the precision of a class; `name` is the name of the metric, such as `recall.late`."""
    # The precision is unknown if a version never decides for the class; the class is then checked by its recall.
    if interval is None:
        return _unknown(name)
    message = f"a class may be worse than with the champion: the difference in {_described(name, interval)}"
    return _at_least(name, interval.low, -gate.class_margin, message, interval)


def _of_one_of_many(name: str, interval: Interval | None, gate: GateSection) -> Ruled:
    """Check the recall or the precision of one of more than two classes.

    If the interval is wider than the margin, the check fails only if the class is shown to be worse.
    """
    # Some classes are rare. If the interval is wider than the margin, the class has too few rows to be shown not worse: equal
    # challengers would fail by chance. It then fails only if it is shown to be worse, like a slice.
    if interval is None or interval.width <= gate.class_margin:
        return _of_class(name, interval, gate)
    message = f"a class is worse than with the champion: the difference in {_described(name, interval)}"
    worst = interval.value if interval.high < 0 else max(interval.value, -gate.class_margin)
    return _at_least(name, worst, -gate.class_margin, message, interval)


def _of_brier(interval: Interval | None, margin: float) -> Ruled:
    """Check that the Brier score is not worse than the margin allows, by the upper end of its interval."""
    # With a margin of 0, half of all challengers that equal the champion would fail.
    if interval is None:
        return _unknown("brier")
    message = f"the Brier score is {interval.value:+.5f}, between {interval.low:+.5f} and {interval.high:+.5f}"
    failure = f"probabilities may be worse than the champion's: the difference in {message}"
    return _at_most("brier", interval.high, margin, failure, interval)


def _of_mean_error(interval: Interval | None, margin: float) -> Ruled:
    """Check that the mean absolute error is not worse than the margin allows, by the upper end of its interval."""
    # The RMSE depends most on the few rows with large errors; the typical error could be worse unnoticed.
    if interval is None:
        return _unknown("mae")
    failure = f"the typical error may be worse than the champion's: the difference in {_described('mae', interval)}"
    return _at_most("mae", interval.high, margin, failure, interval)


def _of_slices(slices: Sequence[Slice], better: Goal, slice_margin: float) -> Ruled:
    """Check the worst slice: of the slices that are shown to be worse, the one with the largest loss relative to its margin.

    A slice is shown to be worse if its whole interval is on the worse side of 0.
    """
    if not slices:
        return _unknown("slices")
    sign = 1.0 if better == "max" else -1.0
    worse = [one for one in slices if max(sign * one.difference.low, sign * one.difference.high) < 0]
    worst = min(worse, key=lambda one: sign * one.difference.value / (one.scale or 1.0), default=None)
    check = _at_least if better == "max" else _at_most
    if worst is None:
        return check("slices", 0.0, -sign * slice_margin, "")
    message = f"where {worst.field} is {worst.value!r:.80} ({worst.rows:,} rows) the challenger is worse"
    return check("slices", worst.difference.value, -sign * slice_margin * (worst.scale or 1.0), message)
