"""What a judgement comes to, as a document. Pure."""

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
    "orphans": "shadow's answers to events without another",
    "crowded": "answers that waited while too many others did",
    "foreign": "pairs of other versions, or of expired events",
    "unreadable": "records that are not score records",
}
"""What is in no pair, by the reasons of a judgement, for people."""
MOST_FLIPS = 100  # pairs of decisions: a model may know thousands


class ReadRange(NamedTuple):
    """Offsets of a partition, `start` inclusive and `end` exclusive, and how many committed records it had between them."""

    start: int
    end: int
    records: int


@dataclass(frozen=True, slots=True)
class Margins:
    """By how much the candidate may be worse. `errors`: the share of events that it fails, less the champion's; `flips`: the
    share of events that both answer and decide otherwise; `brier`: its mean squared error, less the champion's, None: not
    asked. `psi` is a guard and no test: beyond it nothing is promoted."""

    errors: float = 0.005
    flips: float = 0.05
    psi: float = 0.2
    brier: float | None = None

    def rules(self, *, decided: bool) -> list[MetricRule]:
        """`decided` False: the versions score, and decide nothing."""
        found = [MetricRule(ERRORS, self.errors)]
        if decided:
            found.append(MetricRule(FLIPS, self.flips, signed=False))
        return found if self.brier is None else [*found, MetricRule(BRIER, self.brier)]

    def obstacles(self, sample: DecisionSample) -> list[str]:
        """Why nothing may be promoted, whatever the rules say."""
        psi, _ = sample.drift()
        return [f"psi: {psi:.4g}, the limit is {self.psi:.4g}"] if psi is not None and psi > self.psi else []


@dataclass(frozen=True, slots=True)
class AnalysisReport:
    """`dropped` are the answers that are in no pair, and the pairs that do not count, by why; `read`: the records that were
    taken in, by partition. `labelled` are the sums by label, which rest on offsets of their own; None: no rule asks for labels.
    `outputs` are the outputs that versions of several outputs decide on, by digest."""

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
        """Decisions of both, the champion's first, and how often they came: the most frequent."""
        return sorted(self.sample.flips.items(), key=lambda flip: (-flip[1], str(flip[0])))[:MOST_FLIPS]

    @property
    def drift(self) -> tuple[float | None, float | None]:
        """PSI, without its bias, and KS, of both versions on the same events."""
        return self.sample.drift()

    def to_dict(self) -> dict[str, Any]:
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
