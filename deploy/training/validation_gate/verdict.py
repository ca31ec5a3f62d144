"""The verdict on a challenger: the results of the gate's rules in order, and its reason in one sentence. Pure."""

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
from scipy.stats import binomtest

from training.settings import GateSection
from training.validation_gate import gate_defaults, metric_deltas, rules
from training.validation_gate.bootstrap import Blocks, Interval
from training.validation_gate.comparison import (
    ComparedRows,
    Discordant,
    FigureDifference,
    GateComparison,
    JudgedVersion,
    Slice,
    Verdict,
)
from training.validation_gate.inputs import VerdictEvidence, Version
from training.validation_gate.metric_deltas import Intervals
from training.validation_gate.rules import Ruled, signed
from training.validation_gate.version_figures import (
    confusion_matrix,
    interval_coverage,
    listed_metrics,
    residual_edges,
    residuals,
)


def judge(evidence: VerdictEvidence, gate: GateSection, coverage: float, seed: int) -> GateComparison:
    """Judge the challenger by all rules. The same evidence and seed give the same document.

    `coverage` is the required share of labelled events among the events that are old enough to have a label. Raises Fatal (exit
    code 2) if the target does not have the metric of the gate.
    """
    target = evidence.rows.target
    gate = gate_defaults.complete(gate, target)
    metric = gate.metric or ""
    both = evidence.select(evidence.scored)
    blocks = Blocks.drawn(both.rows.places.time_ms, gate.block, gate.resamples, seed)
    ruled = list(rules.of_rows(evidence, blocks.count, gate, coverage))
    intervals: Intervals = {}
    slices: tuple[Slice, ...] = ()
    if both.champion is not None:
        intervals = metric_deltas.of_rows(both, blocks, metric, gate.confidence)
        slices = metric_deltas.of_slices(both, blocks, metric, gate.confidence)
        ruled += rules.of_both(both, intervals, slices, gate)
    elif metric == "auc":
        figure = blocks.auc(both.challenger.scored.scores, both.rows.outcomes == 1)
        ruled += rules.of_first(blocks.interval(figure, gate.confidence))
    else:
        interval = metric_deltas.above_constant(both, blocks, metric, gate.confidence)
        ruled += rules.of_first_beside_constant(metric, interval)
    difference = intervals.get(metric)
    verdict, because = _decide(ruled, len(both.rows), metric, difference)
    edges = residual_edges([version.scored.scores - both.rows.outcomes for version in both.versions]) if _numeric(both) else ()
    return GateComparison(
        run=evidence.run,
        rows=_compared(both, blocks.count),
        target=target,
        metric=metric,
        champion=_judged(both, both.champion, edges) if both.champion else None,
        challenger=_judged(both, both.challenger, edges),
        difference=difference and FigureDifference(*difference),
        discordant=_discordant(both),
        slices=slices,
        rules=tuple(rule_result.rule for rule_result in ruled),
        verdict=verdict,
        because=because,
    )


def _numeric(both: VerdictEvidence) -> bool:
    return both.rows.target.kind == "regression" and bool(len(both.rows))


def _decide(ruled: Sequence[Ruled], rows: int, metric: str, difference: Interval | None) -> tuple[Verdict, str]:
    """Return the verdict and its reason in one sentence."""
    failed = next((rule_result for rule_result in ruled if not rule_result.rule.passed), None)
    if failed is not None:
        rule = failed.rule
        if rule.name == rules.DIFFERS:
            return "same", failed.wrong
        numbers = "" if rule.value is None else f" ({rule.value:,.5g}, and the bound is {rule.bound:,.5g})"
        return "refused", f"rule {rule.name}{numbers}: {failed.wrong}"
    if difference is None:
        other = "chance" if metric == "auc" else f"a constant prediction, by {metric},"
        return "passed", f"the first model is better than {other} on {rows:,} rows"
    message = f"between {signed(difference.low)} and {signed(difference.high)}"
    return "passed", f"no rule failed: the difference in {metric} is {signed(difference.value)}, {message}"


def _compared(both: VerdictEvidence, blocks: int) -> ComparedRows:
    times = both.rows.places.time_ms
    begin, end = (int(times.min()), int(times.max())) if len(times) else (0, 0)
    return ComparedRows(both.rows.digest(), len(both.rows), _time(begin), _time(end), blocks)


def _judged(both: VerdictEvidence, version: Version, edges: tuple[float, ...]) -> JudgedVersion:
    rows = both.rows
    return JudgedVersion(
        version=version.version,
        digest=version.digest,
        revision=version.revision,
        metrics=listed_metrics(rows.target, version.scored, rows.outcomes),
        confusion_matrix=confusion_matrix(rows.target, version.scored, rows.outcomes),
        residuals=residuals(version.scored.scores - rows.outcomes, edges) if edges else None,
        interval_coverage=interval_coverage(rows.target, version.scored, rows.outcomes),
    )


def _discordant(both: VerdictEvidence) -> Discordant | None:
    """Run McNemar's exact test on the rows that only one version decides correctly; None without a champion or decisions."""
    if both.champion is None or both.rows.target.kind == "regression":
        return None
    outcomes = both.rows.outcomes
    champion_right, challenger_right = (version.scored.decisions == outcomes for version in (both.champion, both.challenger))
    lost = int(np.sum(champion_right & ~challenger_right))
    won = int(np.sum(challenger_right & ~champion_right))
    p = float(binomtest(lost, lost + won).pvalue) if lost + won else 1.0
    return Discordant(lost, won, p)


def _time(unix_ms: int) -> str:
    return datetime.fromtimestamp(unix_ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
