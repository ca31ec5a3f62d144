"""The report of a canary analysis. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from publisher.kafka.partitions import Partition
from scorer.rollout.canary_analysis.contestants import Contestants
from scorer.rollout.canary_analysis.decision_sample import DecisionSample
from scorer.rollout.canary_analysis.labelled_pairs import LabelledSums
from scorer.rollout.canary_analysis.verdict import CanaryVerdict

DROPPED = {
    "unsampled": "scores of events that the shadow did not score",
    "orphans": "shadow answers without a scorer's answer",
    "crowded": "answers dropped because too many others waited",
    "foreign": "pairs of other versions, or of expired events",
    "unreadable": "records that are not score records",
}
"""Descriptions of the answers and pairs of answers that are not compared, by the keys of `AnalysisReport.dropped`."""
MAX_FLIPS = 100  # pairs of decisions; a model may have thousands of decisions


class ReadRange(NamedTuple):
    """An offset range of one partition that was read.

    Attributes:
        start: The first offset of the range.
        end: The offset after the range.
        records: The number of committed records in the range.
    """

    start: int
    end: int
    records: int


@dataclass(frozen=True, slots=True)
class AnalysisReport:
    """The report of a canary analysis.

    A pair is the champion's and the candidate's answer to one event.

    Attributes:
        rivals: The champion and the candidate.
        verdict: The verdict on the candidate, and the result of each rule.
        sample: The counts of decisions, and a sample of the scores.
        dropped: The numbers of excluded answers and pairs, by reason (the keys of DROPPED).
        read: For each partition of answers and labels, the offset range that was read.
        behind: The lag of the analysis in seconds; None if the analysis read a fixed range of offsets.
        labelled: The sums of the differences of both versions' squared errors against labels; None if no rule needs labels.
        outputs: The name of the output that determines a version's decision, by the version's digest; None if the name is
            unknown. Only versions with several named outputs are included.
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
        """The most frequent combinations of the champion's and the candidate's decision, each with its number of events."""
        return sorted(self.sample.flips.items(), key=lambda flip: (-flip[1], str(flip[0])))[:MAX_FLIPS]

    @property
    def drift(self) -> tuple[float | None, float | None]:
        """The bias-corrected PSI and the KS statistic between both versions' scores; each is None if it cannot be computed."""
        return self.sample.drift()

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a JSON document."""
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
