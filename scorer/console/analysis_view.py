"""A judgement as it is drawn: each rule's interval against its margin, and the decisions of both versions. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from scorer.rollout.canary_analysis.analysis_report import DROPPED
from scorer.rollout.canary_analysis.confidence_sequence import Interval
from scorer.rollout.canary_analysis.verdict import FLIPS, Finding, Rule

WIDTH = 1_000.0  # of a bar, in its own units
SHORTEST, LONGEST = 1.5, 4.0  # margins that a bar shows at least, and at most where its estimate is in them
RULES, NAMES, LINES = 20, 8, 20  # that are shown at most
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


class _Judgement(msgspec.Struct):
    verdict: str
    why: list[str] = []
    rules: list[_Rule] = []
    decisions: list[_Flip] = []
    drift: _Drift = msgspec.field(default_factory=_Drift)
    dropped: dict[str, int] = {}
    behind_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class IntervalBar:
    """A rule. `left`, `right`, `mean`, `zero` and `edge` (the margin) are places from 0 to WIDTH; `left` and `right` are the
    interval's ends, or the bar's where those lie outside; `mean` is None where there is no estimate. `tone` is good, bad or
    wait."""

    finding: Finding
    tone: str
    said: str
    left: float
    right: float
    mean: float | None
    zero: float
    edge: float


@dataclass(frozen=True, slots=True)
class DecisionMatrix:
    """Decisions of both versions on the same events: `counts` has a row for each of the champion's `names`, and a column for
    each of the candidate's. `alike` is the share of all events that both decide alike, `rest` how many are not shown."""

    names: Sequence[str]
    counts: Sequence[Sequence[int]]
    alike: float
    rest: int


@dataclass(frozen=True, slots=True)
class AnalysisView:
    """`pairs` are those of the rule that has most; `psi` and `ks` compare the scores of both on the same events."""

    verdict: str
    why: Sequence[str]
    bars: Sequence[IntervalBar]
    matrix: DecisionMatrix | None
    psi: float | None
    ks: float | None
    dropped: Sequence[tuple[str, int]]
    behind: float | None
    pairs: int


def analysis_view(told: dict[str, Any] | None) -> AnalysisView | None:
    """A judgement as a controller tells it; None where there is none, or it does not read."""
    try:
        found = msgspec.convert(told, _Judgement)
    except msgspec.ValidationError:
        return None
    return AnalysisView(
        verdict=found.verdict,
        why=found.why[:LINES],
        bars=[_bar(rule) for rule in found.rules[:RULES]],
        matrix=_matrix(found.decisions),
        psi=found.drift.psi,
        ks=found.drift.ks,
        dropped=[(DROPPED.get(why, why), events) for why, events in Counter(found.dropped).most_common(LINES)],
        behind=found.behind_seconds,
        pairs=max((rule.pairs for rule in found.rules), default=0),
    )


def _bar(told: _Rule) -> IntervalBar:
    infinite = Interval()
    low, high = infinite.low if told.low is None else told.low, infinite.high if told.high is None else told.high
    rule = Rule(told.rule, told.margin, signed=told.rule != FLIPS)
    finding = Finding(rule, Interval(told.estimate, low, high, told.pairs, told.cells), told.reason)
    if finding.worse:
        tone, said = "bad", "broken"
    elif (lacking := finding.lacking) is not None:
        tone, said = "wait", lacking.removeprefix(f"{told.rule}: ")
    else:
        tone, said = "good", "within its margin"
    unit = told.margin if told.margin > 0 else max(abs(told.estimate or 0.0), 1e-9)
    most = max(LONGEST * unit, SHORTEST * abs(told.estimate or 0.0))
    start, end = max(min(low, -0.25 * unit), -most), min(max(high, SHORTEST * unit), most)

    def place(value: float) -> float:
        return round(WIDTH * (min(max(value, start), end) - start) / (end - start), 1)

    mean = None if told.estimate is None else place(told.estimate)
    return IntervalBar(finding, tone, said, place(low), place(high), mean, place(0.0), place(told.margin))


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
