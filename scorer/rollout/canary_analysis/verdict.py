"""The verdict on a candidate: promote, roll back or hold, by rules over paired differences. Pure.

A difference is the candidate's figure minus the champion's for one event, so a larger difference is worse. A candidate is
promoted if every rule passes, and rolled back if one rule is broken. Without data the interval is infinite, and a rule with an
infinite interval does not pass.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from scorer.rollout.canary_analysis.confidence_sequence import ConfidenceInterval, interval
from scorer.rollout.canary_analysis.key_strata import Cells
from scorer.rollout.canary_analysis.rules import MetricRule

ALPHA = 0.05  # the probability of a wrong verdict by chance, over all rules and steps of a rollout together
MIN_PAIRS = 3_000
MIN_CELLS = 400
"""A rule passes only with MIN_PAIRS pairs of answers in MIN_CELLS cells (groups of event keys).

With fewer pairs or cells, a model exactly at its margin would pass too often, because the interval is valid only for many
pairs.
"""


class CanaryDecision(StrEnum):
    """The possible decisions of a verdict on the candidate."""

    PROMOTE = "promote"
    ROLL_BACK = "roll back"
    HOLD = "hold"


@dataclass(frozen=True, slots=True)
class MetricResult:
    """The result of one rule.

    Attributes:
        rule: The rule.
        interval: The confidence interval of the mean difference between candidate and champion.
        reason: Why there are no pairs (answers of both versions to one event); empty if there are pairs or the reason is not
            known.
    """

    rule: MetricRule
    interval: ConfidenceInterval
    reason: str = ""

    @property
    def is_worse(self) -> bool:
        """Whether the rule is broken.

        A rule is broken if the estimate is above the margin, and the candidate is significantly worse than the champion.
        """
        estimate = self.interval.estimate
        margin = self.rule.margin
        return estimate is not None and estimate > margin and self.interval.low > (0.0 if self.rule.signed else margin)

    @property
    def failure_reason(self) -> str | None:
        """Why the rule does not pass; None if it passes."""
        name = self.rule.name
        interval = self.interval
        margin = self.rule.margin
        if interval.estimate is None:
            return f"{name}: no pairs" + (f": {self.reason}" if self.reason else "")
        if interval.pairs < MIN_PAIRS:
            return f"{name}: {interval.pairs:,} pairs, {MIN_PAIRS:,} are required"
        if interval.cells < MIN_CELLS:
            return f"{name}: keys in {interval.cells:,} cells, {MIN_CELLS:,} are required"
        if not interval.high < margin:
            return f"{name}: up to {interval.high:.4g} is possible, the margin is {margin:.4g}"
        return None

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON; an infinite bound is None."""
        figures = asdict(self.interval)
        if self.interval.cells < 2:
            figures |= {"low": None, "high": None}
        reason = {"reason": self.reason} if self.reason and self.interval.estimate is None else {}
        return {"rule": self.rule.name, "margin": self.rule.margin, **figures, **reason}


@dataclass(frozen=True, slots=True)
class CanaryVerdict:
    """The decision on the candidate, and the result of each rule.

    Attributes:
        decision: The decision: promote, roll back or hold.
        reasons: The reasons for the decision: the broken rules of a rollback, or the missing evidence of a hold.
        findings: The results of all rules.
    """

    decision: CanaryDecision
    reasons: tuple[str, ...]
    findings: tuple[MetricResult, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as JSON."""
        return {"verdict": self.decision, "why": list(self.reasons), "rules": [each.to_dict() for each in self.findings]}


def decide(
    rules: Sequence[MetricRule],
    cells: Mapping[str, Cells],
    *,
    steps: int = 1,
    obstacles: Sequence[str] = (),
    reasons: Mapping[str, str] = MappingProxyType({}),
    alpha: float = ALPHA,
) -> CanaryVerdict:
    """Return the verdict: roll back if a rule is broken, promote if every rule passes, otherwise hold.

    Args:
        rules: The rules.
        cells: The sums of the pairs' differences by cell (group of event keys), by the name of the rule.
        steps: The number of steps in which the rollout decides by these rules. `alpha` is divided among all rules of all steps.
        obstacles: Reasons why nothing may be promoted now. They do not prevent a rollback.
        reasons: Why a rule has no pairs, by the name of the rule.
        alpha: The probability of a wrong verdict by chance in the whole rollout.
    """
    share = alpha / max(1, len(rules) * steps)
    findings = tuple(
        MetricResult(rule, interval(cells.get(rule.name, Cells()), share), reasons.get(rule.name, "")) for rule in rules
    )
    if broken := tuple(_broken(findings)):
        return CanaryVerdict(CanaryDecision.ROLL_BACK, broken, findings)
    missing = (*obstacles, *(each.failure_reason for each in findings if each.failure_reason is not None))
    if missing or not rules:
        return CanaryVerdict(CanaryDecision.HOLD, missing or ("no rules",), findings)
    return CanaryVerdict(CanaryDecision.PROMOTE, ("every rule is within its margin",), findings)


def _broken(findings: Sequence[MetricResult]) -> Iterator[str]:
    for each in findings:
        if each.is_worse:
            interval = each.interval
            yield (
                f"{each.rule.name}: {interval.estimate:+.4g}, surely above {interval.low:+.4g}, "
                f"the margin is {each.rule.margin:.4g}"
            )
