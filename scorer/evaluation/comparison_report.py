"""The result of a comparison of two model versions as a document, with the figures that exceed their limits. Pure."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from scorer.evaluation import quality_report as labels
from scorer.evaluation.assessment import FIGURES, Assessment
from scorer.evaluation.compare_versions import ComparisonRun
from scorer.evaluation.score_differences import Event

SHOWN_BYTES = 2_000  # of the value of an event in the document


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits above which a comparison of two versions fails.

    Attributes:
        errors: The share of events that only the candidate dead-letters.
        flips: The share of events with different decisions among the events that both versions scored.
        psi: The population stability index of the scores.
        cost: The candidate's time per event divided by the champion's; None for no limit.
    """

    errors: float = 0.005
    flips: float = 0.05
    psi: float = 0.2
    cost: float | None = None


@dataclass(frozen=True, slots=True)
class LimitedFigure:
    """One figure and its limit."""

    name: str
    value: float
    limit: float

    @property
    def beyond(self) -> bool:
        """Whether the figure exceeds the limit."""
        return self.value > self.limit


@dataclass(frozen=True, slots=True)
class ComparisonReport:
    """The result of a comparison of two versions, with its limits.

    Attributes:
        champion: The first version as `name:version@digest`.
        candidate: The second version as `name:version@digest`.
        compared: The differences between the answers, and the times of both versions.
        rules: The figures with their limits; empty if no event was scored by both versions.
    """

    champion: str
    candidate: str
    compared: ComparisonRun
    rules: tuple[LimitedFigure, ...]

    @property
    def passed(self) -> bool:
        """Whether the comparison passes: there is at least one rule, and no figure exceeds its limit."""
        return bool(self.rules) and not any(rule.beyond for rule in self.rules)

    @property
    def cost(self) -> dict[str, float]:
        """The time per event in microseconds, by `champion` and `candidate`."""
        events = max(1, self.compared.differences.events)
        return {name: seconds / events * 1e6 for name, seconds in self.compared.seconds.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a JSON document."""
        differences = self.compared.differences
        psi, ks = differences.drift()
        flips = sorted(differences.flips.items(), key=lambda flip: -flip[1]) if differences.decided() else []
        return {
            "passed": self.passed,
            "champion": self.champion,
            "candidate": self.candidate,
            "read": [{"topic": t, "partition": p, "from": low, "to": high} for (t, p), (low, high) in self._spans()],
            "feature_log": None if self.compared.logged is None else asdict(self.compared.logged),
            "events": differences.events,
            "scored_by_both": differences.both,
            "dead_letters": differences.dead,
            "dead_only_by_candidate": {str(reason): count for reason, count in sorted(differences.newly.items())},
            "dead_only_by_champion": differences.cured,
            "dead_examples": [
                {"reason": reason, "error": error, **_event(event)}
                for reason, examples in sorted(differences.examples.items())
                for event, error in examples
            ],
            "scores_that_differ": differences.changed,
            "mean_difference": differences.total / differences.both if differences.both else None,
            "flips": [{"champion": before, "candidate": after, "events": count} for (before, after), count in flips],
            "psi": psi,
            "ks": ks,
            "labels": None if self.compared.labelled is None else _labels(self.compared.labelled),
            "cost_us_per_event": {name: round(cost, 3) for name, cost in self.cost.items()},
            "rules": [{"rule": r.name, "value": r.value, "limit": r.limit, "beyond": r.beyond} for r in self.rules],
            "largest_differences": [
                {
                    "difference": each.size if each.size < float("inf") else None,
                    "champion": each.champion.decode(),
                    "candidate": each.candidate.decode(),
                    **_event(each.event),
                }
                for each in differences.largest()
            ],
        }

    def _spans(self) -> list[tuple[tuple[str, int], tuple[int, int]]]:
        return sorted(self.compared.spans.items())


def differences(assessment: Assessment) -> dict[str, float]:
    """Return each quality figure of the candidate minus the champion's figure, by name.

    Figures that one of the versions lacks are omitted. The result is empty unless the assessment has exactly two versions.
    """
    if len(assessment.versions) != 2:
        return {}
    before, after = assessment.versions
    pairs = {name: (getattr(before, name), getattr(after, name)) for name in FIGURES}
    return {name: new - old for name, (old, new) in pairs.items() if old is not None and new is not None}


def _labels(assessment: Assessment) -> dict[str, Any]:
    return {**labels.to_dict(assessment), "differences": differences(assessment)}


def build_report(champion: str, candidate: str, compared: ComparisonRun, limits: Limits) -> ComparisonReport:
    """Build the report of a comparison, with a rule for each figure that exists and has a limit."""
    return ComparisonReport(champion, candidate, compared, tuple(_rules(compared, limits)) if compared.differences.both else ())


def _rules(compared: ComparisonRun, limits: Limits) -> Iterator[LimitedFigure]:
    differences = compared.differences
    yield LimitedFigure("errors", differences.newly.total() / differences.events, limits.errors)
    if differences.decided():
        yield LimitedFigure("flips", differences.flipped() / differences.both, limits.flips)
    if (psi := differences.drift()[0]) is not None:
        yield LimitedFigure("psi", psi, limits.psi)
    if limits.cost is not None:
        yield LimitedFigure("cost", compared.seconds["candidate"] / compared.seconds["champion"], limits.cost)


def _event(event: Event) -> dict[str, Any]:
    topic, partition = event.partition
    text = None if event.value is None else event.value[:SHOWN_BYTES].decode("utf-8", "backslashreplace")
    return {"topic": topic, "partition": partition, "offset": event.offset, "event": text}
