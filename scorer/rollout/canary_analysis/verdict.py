"""The verdict on a candidate: promote, roll back or hold, by rules over paired differences. Pure.

A difference is the candidate's figure less the champion's for one event, so more is worse. A candidate passes and is
promoted where every rule says so, and is rolled back where one does. No data is an infinite interval, and never success.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from scorer.rollout.canary_analysis.confidence_sequence import ConfidenceInterval, interval
from scorer.rollout.canary_analysis.key_strata import Cells

ERRORS, FLIPS, BRIER = "errors", "flips", "brier"
ALPHA = 0.05  # of streams that are judged wrongly by chance, all rules and steps together
MIN_PAIRS, MIN_CELLS = 3_000, 400
"""What a pass needs. With less, a model exactly at its margin passes too often: the interval is right for many pairs only."""


class CanaryDecision(StrEnum):
    PROMOTE = "promote"
    ROLL_BACK = "roll back"
    HOLD = "hold"


@dataclass(frozen=True, slots=True)
class MetricRule:
    """`margin`: by how much the candidate may be worse. `signed`: whether a difference can also favour the candidate. Flips
    never do: any noise makes their mean larger than 0."""

    name: str
    margin: float
    signed: bool = True


@dataclass(frozen=True, slots=True)
class MetricResult:
    """What one rule comes to. `reason` is why it has no pairs, where that is known."""

    rule: MetricRule
    found: ConfidenceInterval
    reason: str = ""

    @property
    def worse(self) -> bool:
        """Surely worse than the champion, and by more than the margin as far as is known."""
        estimate, margin = self.found.estimate, self.rule.margin
        return estimate is not None and estimate > margin and self.found.low > (0.0 if self.rule.signed else margin)

    @property
    def lacking(self) -> str | None:
        """Why the rule does not say that the candidate passes; None where it does."""
        found, margin = self.found, self.rule.margin
        if found.estimate is None:
            return f"{self.rule.name}: no pairs" + (f": {self.reason}" if self.reason else "")
        if found.pairs < MIN_PAIRS:
            return f"{self.rule.name}: {found.pairs:,} pairs of {MIN_PAIRS:,}"
        if found.cells < MIN_CELLS:
            return f"{self.rule.name}: keys in {found.cells:,} cells, of {MIN_CELLS:,} that it takes"
        if not found.high < margin:
            return f"{self.rule.name}: up to {found.high:.4g} is possible, the margin is {margin:.4g}"
        return None

    def to_dict(self) -> dict[str, Any]:
        """JSON; an end that is infinite is None."""
        told = asdict(self.found)
        if self.found.cells < 2:
            told |= {"low": None, "high": None}
        reason = {"reason": self.reason} if self.reason and self.found.estimate is None else {}
        return {"rule": self.rule.name, "margin": self.rule.margin, **told, **reason}


@dataclass(frozen=True, slots=True)
class CanaryVerdict:
    """`why` has a line for each reason: of a rollback the rules that are broken, of a hold what is missing."""

    decision: CanaryDecision
    why: tuple[str, ...]
    findings: tuple[MetricResult, ...]

    def to_dict(self) -> dict[str, Any]:
        return {"verdict": self.decision, "why": list(self.why), "rules": [each.to_dict() for each in self.findings]}


def decide(
    rules: Sequence[MetricRule],
    cells: Mapping[str, Cells],
    *,
    steps: int = 1,
    obstacles: Sequence[str] = (),
    reasons: Mapping[str, str] = MappingProxyType({}),
    alpha: float = ALPHA,
) -> CanaryVerdict:
    """The verdict by the cells of each rule, by name. `steps`: how often a rollout asks anew. `obstacles`: why nothing may pass
    now whatever the rules say; they keep nothing from being rolled back. `reasons`: why a rule has no pairs, by name."""
    share = alpha / max(1, len(rules) * steps)
    findings = tuple(
        MetricResult(rule, interval(cells.get(rule.name, Cells()), share), reasons.get(rule.name, "")) for rule in rules
    )
    if broken := tuple(_broken(findings)):
        return CanaryVerdict(CanaryDecision.ROLL_BACK, broken, findings)
    missing = (*obstacles, *(each.lacking for each in findings if each.lacking is not None))
    if missing or not rules:
        return CanaryVerdict(CanaryDecision.HOLD, missing or ("no rules",), findings)
    return CanaryVerdict(CanaryDecision.PROMOTE, ("every rule is within its margin",), findings)


def _broken(findings: Sequence[MetricResult]) -> Iterator[str]:
    for each in findings:
        if each.worse:
            found = each.found
            yield (
                f"{each.rule.name}: {found.estimate:+.4g}, surely above {found.low:+.4g}, the margin is {each.rule.margin:.4g}"
            )
