"""The result of a canary analysis as a document. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from publisher.kafka.partitions import Partition
from scorer.rollout.canary_analysis.contestants import Contestants
from scorer.rollout.canary_analysis.decision_sample import DecisionSample
from scorer.rollout.canary_analysis.labelled_pairs import LabelledSums
from scorer.rollout.canary_analysis.verdict import BRIER, ERRORS, FLIPS, CanaryVerdict, MetricRule

DROPPED = {
    "unsampled": "scores of events that the shadow did not score",
    "orphans": "shadow answers without a scorer's answer",
    "crowded": "answers dropped because too many others waited",
    "foreign": "pairs of other versions, or of expired events",
    "unreadable": "records that are not score records",
}
"""Descriptions of the answers that are in no pair, by the reason in a report."""
MOST_FLIPS = 100  # pairs of decisions; a model may have thousands of decisions


class ReadRange(NamedTuple):
    """The offsets read of a partition, `start` inclusive and `end` exclusive, and the number of committed records in them."""

    start: int
    end: int
    records: int


@dataclass(frozen=True, slots=True)
class Margins:
    """The margins by which the candidate may be worse than the champion.

    Attributes:
        errors: The share of events that the candidate fails less that of the champion.
        flips: The share of events that both versions score with different decisions.
        psi: The limit of the drift of scores. Above it nothing is promoted, but nothing is rolled back either.
        brier: The mean squared error of the candidate less that of the champion; None if it is not compared.
    """

    errors: float = 0.005
    flips: float = 0.05
    psi: float = 0.2
    brier: float | None = None

    def rules(self, *, decided: bool) -> list[MetricRule]:
        """Return the rules of these margins; `decided` is False if the versions only score and make no decisions."""
        rules = [MetricRule(ERRORS, self.errors)]
        if decided:
            rules.append(MetricRule(FLIPS, self.flips, signed=False))
        return rules if self.brier is None else [*rules, MetricRule(BRIER, self.brier)]

    def obstacles(self, sample: DecisionSample) -> list[str]:
        """Return the reasons why the candidate cannot be promoted, whatever the results of the rules."""
        psi, _ = sample.drift()
        return [f"psi: {psi:.4g}, the limit is {self.psi:.4g}"] if psi is not None and psi > self.psi else []


@dataclass(frozen=True, slots=True)
class AnalysisReport:
    """The report of a canary analysis.

    Attributes:
        rivals: The two versions.
        verdict: The verdict and the results of the rules.
        sample: The decisions and a sample of the scores.
        dropped: The numbers of answers in no pair and of pairs that do not count, by reason.
        read: The offsets that were read, by partition.
        behind: The lag of the analysis in seconds; None if it ran to fixed ends.
        labelled: The sums by label, which have offsets of their own; None if no rule needs labels.
        outputs: The deciding outputs of versions with several outputs, by digest.
    """

    rivals: Contestants
    verdict: CanaryVerdict
    sample: DecisionSample
    dropped: Mapping[str, int]
    read: Mapping[Partition, ReadRange]
    behind: float | None = None
    labelled: LabelledSums | None = None
    outputs: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def flips(self) -> Sequence[tuple[tuple[str | None, str | None], int]]:
        """The most frequent pairs of decisions, the champion's first, with their counts."""
        return sorted(self.sample.flips.items(), key=lambda flip: (-flip[1], str(flip[0])))[:MOST_FLIPS]

    @property
    def drift(self) -> tuple[float | None, float | None]:
        """PSI, without its bias, and KS of the scores of both versions for the same events."""
        return self.sample.drift()

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON."""
        psi, ks = self.drift
        return {
            **self.verdict.to_dict(),
            "champion": self.rivals.champion._asdict(),
            "candidate": self.rivals.candidate._asdict(),
            "drift": {"psi": psi, "ks": ks},
            "decisions": [{"champion": a, "candidate": b, "events": count} for (a, b), count in self.flips],
            "dropped": dict(self.dropped),
            "behind_seconds": None if self.behind is None else round(self.behind, 3),
            "read": [
                {"topic": topic, "partition": number, "from": start, "to": end, "records": count}
                for (topic, number), (start, end, count) in sorted(self.read.items())
            ],
            **({} if self.labelled is None else {"labelled": self.labelled.to_dict()}),
            **({"outputs": dict(self.outputs)} if self.outputs else {}),
        }
