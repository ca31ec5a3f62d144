"""The view of a canary analysis: the interval and margin of each rule of the plan, and both versions' decisions. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from scorer.rollout.canary_analysis.analysis_report import DROPPED
from scorer.rollout.canary_analysis.confidence_sequence import ConfidenceInterval
from scorer.rollout.canary_analysis.rules import FLIPS, MetricRule
from scorer.rollout.canary_analysis.verdict import MetricResult

WIDTH = 1_000.0  # of a bar, in the units of its SVG
# limits of the range of a bar, as multiples of the margin
SHORTEST = 1.5
LONGEST = 4.0
# the largest numbers of rules, decision names and text lines that are shown
RULES = 20
NAMES = 8
LINES = 20
NO_DECISION = "none"


class _Rule(msgspec.Struct):
    rule: str
    margin: float
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    pairs: int = 0
    cells: int = 0
    reason: str = ""


class _Flip(msgspec.Struct):
    champion: str | None
    candidate: str | None
    events: int


class _Drift(msgspec.Struct):
    psi: float | None = None
    ks: float | None = None


class _Analysis(msgspec.Struct):
    verdict: str
    why: list[str] = []
    rules: list[_Rule] = []
    decisions: list[_Flip] = []
    drift: _Drift = msgspec.field(default_factory=_Drift)
    dropped: dict[str, int] = {}
    behind_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class IntervalBar:
    """The confidence interval of a rule of the rollout plan as a bar; x coordinates are from 0 to WIDTH.

    Attributes:
        finding: The result of the rule.
        tone: The name of the bar's colour: `good` if the rule passes, `bad` if it is broken, and `wait` otherwise.
        label: The state of the rule as text.
        left: The x coordinate of the interval's lower bound, clipped to the bar.
        right: The x coordinate of the interval's upper bound, clipped to the bar.
        mean: The x coordinate of the estimate; None without an estimate.
        zero: The x coordinate of the difference 0.
        edge: The x coordinate of the rule's margin, the largest difference that the rule allows.
    """

    finding: MetricResult
    tone: str
    label: str
    left: float
    right: float
    mean: float | None
    zero: float
    edge: float


@dataclass(frozen=True, slots=True)
class DecisionMatrix:
    """The numbers of events by the decisions of champion and candidate.

    Attributes:
        names: The most frequent decisions.
        counts: The number of events by champion's decision (row) and candidate's decision (column), in the order of `names`.
        alike: The share of all events for which both versions make the same decision.
        rest: The number of events with a decision that is not in `names`.
    """

    names: Sequence[str]
    counts: Sequence[Sequence[int]]
    alike: float
    rest: int


@dataclass(frozen=True, slots=True)
class AnalysisView:
    """A canary analysis for display.

    Attributes:
        why: The reasons for the verdict.
        bars: The confidence interval of each rule as a bar.
        matrix: The numbers of events by the decisions of champion and candidate; None without decisions.
        psi: The population stability index between both versions' scores; None if it is unknown.
        ks: The Kolmogorov-Smirnov statistic of both versions' scores; None if it is unknown.
        dropped: The reasons why answers are excluded, each with its number of answers, the most frequent first.
        behind: How many seconds the analysis lags behind the newest records; None if unknown.
        pairs: The number of events that both versions scored: the largest number over all rules.
    """

    verdict: str
    why: Sequence[str]
    bars: Sequence[IntervalBar]
    matrix: DecisionMatrix | None
    psi: float | None
    ks: float | None
    dropped: Sequence[tuple[str, int]]
    behind: float | None
    pairs: int


def analysis_view(document: dict[str, Any] | None) -> AnalysisView | None:
    """Return the view of an analysis from its report; None if the report is missing or unreadable."""
    try:
        analysis = msgspec.convert(document, _Analysis)
    except msgspec.ValidationError:
        return None
    return AnalysisView(
        verdict=analysis.verdict,
        why=analysis.why[:LINES],
        bars=[_bar(rule) for rule in analysis.rules[:RULES]],
        matrix=_matrix(analysis.decisions),
        psi=analysis.drift.psi,
        ks=analysis.drift.ks,
        dropped=[(DROPPED.get(reason, reason), events) for reason, events in Counter(analysis.dropped).most_common(LINES)],
        behind=analysis.behind_seconds,
        pairs=max((rule.pairs for rule in analysis.rules), default=0),
    )


def _bar(document: _Rule) -> IntervalBar:
    infinite = ConfidenceInterval()
    low = infinite.low if document.low is None else document.low
    high = infinite.high if document.high is None else document.high
    rule = MetricRule(document.rule, document.margin, signed=document.rule != FLIPS)
    finding = MetricResult(
        rule, ConfidenceInterval(document.estimate, low, high, document.pairs, document.cells), document.reason
    )
    if finding.is_worse:
        tone = "bad"
        label = "beyond its margin"
    elif (missing := finding.failure_reason) is not None:
        tone = "wait"
        label = missing.removeprefix(f"{document.rule}: ")
    else:
        tone = "good"
        label = "within its margin"
    unit = document.margin if document.margin > 0 else max(abs(document.estimate or 0.0), 1e-9)
    most = max(LONGEST * unit, SHORTEST * abs(document.estimate or 0.0))
    start = max(min(low, -0.25 * unit), -most)
    end = min(max(high, SHORTEST * unit), most)

    def x(value: float) -> float:
        return round(WIDTH * (min(max(value, start), end) - start) / (end - start), 1)

    mean = None if document.estimate is None else x(document.estimate)
    return IntervalBar(finding, tone, label, x(low), x(high), mean, x(0.0), x(document.margin))


def _matrix(flips: Sequence[_Flip]) -> DecisionMatrix | None:
    counts: Counter[tuple[str, str]] = Counter()
    for each in flips:
        counts[each.champion or NO_DECISION, each.candidate or NO_DECISION] += each.events
    names: Counter[str] = Counter()
    for (champion, candidate), events in counts.items():
        names[champion] += events
        names[candidate] += events
    total = counts.total()
    if total <= 0 or set(names) == {NO_DECISION}:
        return None
    shown = [name for name, _ in names.most_common(NAMES)]
    rows = [[counts[champion, candidate] for candidate in shown] for champion in shown]
    alike = sum(events for (champion, candidate), events in counts.items() if champion == candidate) / total
    return DecisionMatrix(shown, rows, alike, total - sum(map(sum, rows)))
