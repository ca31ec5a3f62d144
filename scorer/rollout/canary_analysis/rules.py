"""The rules of a canary comparison: the margins by which a candidate may be worse than the champion. Pure."""

from dataclasses import dataclass

ERRORS = "errors"
FLIPS = "flips"
BRIER = "brier"


@dataclass(frozen=True, slots=True)
class MetricRule:
    """The rule on one metric: a limit for the mean difference, the candidate's metric minus the champion's.

    Attributes:
        name: The name of the metric.
        margin: The largest permitted mean difference. A larger difference is worse.
        signed: Whether the difference of an event can be negative, which means that the candidate is better.
    """

    # For flips (events with different decisions) `signed` is False: noise alone makes their mean positive.

    name: str
    margin: float
    signed: bool = True


@dataclass(frozen=True, slots=True)
class Margins:
    """The margins by which the candidate may be worse than the champion. Each attribute is an upper limit.

    Attributes:
        errors: The limit of a difference: the share of events for which the candidate fails, minus the share for which the
            champion fails.
        flips: The limit of the share of events for which the decisions of both versions differ.
        psi: The limit of the population stability index between both versions' scores. A candidate above the limit is not
            promoted.
        brier: The limit of a difference: the candidate's Brier score minus the champion's; None if labels are not used.
    """

    errors: float = 0.005
    flips: float = 0.05
    psi: float = 0.2
    brier: float | None = None

    def rules(self, *, decided: bool) -> list[MetricRule]:
        """Return a rule for each margin except `psi`.

        `decided` states whether the versions make decisions; without decisions there is no rule on flips.
        """
        rules = [MetricRule(ERRORS, self.errors)]
        if decided:
            rules.append(MetricRule(FLIPS, self.flips, signed=False))
        return rules if self.brier is None else [*rules, MetricRule(BRIER, self.brier)]

    def obstacles(self, psi: float | None) -> list[str]:
        """Return a message if the PSI is above the limit, which prevents a promotion; otherwise an empty list."""
        return [f"psi: {psi:.4g}, the limit is {self.psi:.4g}"] if psi is not None and psi > self.psi else []
