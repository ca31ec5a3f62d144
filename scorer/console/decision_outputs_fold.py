"""Select the decision output of scores with several named outputs: the output that determines the decision."""

# The registry feed looks up the decision outputs of the versions in `wanted`. The Kafka feed does not wait for it.

from collections import Counter, deque
from dataclasses import dataclass, field

from msgspec.structs import replace

from scorer.evaluation.decision_output import select_output
from scorer.scores.decode_record import CompleteScoreRecord

KEPT = 100  # versions whose outputs are kept, and versions that may be looked up at a time
WAITING = 5_000  # scores held until their output is known


@dataclass(slots=True)
class DecisionOutputsFold:
    """Reduces each score with several named outputs to its decision output, which determines the decision.

    Attributes:
        names: The name of the decision output by digest of the version; None if the registry does not state it.
        wanted: The digests of the versions whose decision output the registry feed must look up.
        waiting: The newest scores of the versions in `wanted`, which are held until the look-up.
        unknown: The number of scores without a known decision output, by digest of the version.
    """

    names: dict[str, str | None] = field(default_factory=dict)
    wanted: set[str] = field(default_factory=set)
    waiting: deque[CompleteScoreRecord] = field(default_factory=lambda: deque(maxlen=WAITING))
    unknown: Counter[str] = field(default_factory=Counter)

    def decided(self, record: CompleteScoreRecord) -> CompleteScoreRecord | None:
        """Return the record with its decision output as the score; None if the record is held until the output is known.

        A score without named outputs is returned unchanged.
        """
        score = record.score
        if not isinstance(score, dict):
            return record
        if len(score) == 1:
            return replace(record, score=next(iter(score.values())))
        if record.digest not in self.names and (record.digest in self.wanted or len(self.wanted) < KEPT):
            self.wanted.add(record.digest)
            self.waiting.append(record)
            return None
        name = self.names.get(record.digest)
        self.unknown[record.digest] += name is None
        return replace(record, score=select_output(score, name))

    def resolve(self, digest: str, name: str | None) -> list[CompleteScoreRecord]:
        """Record the name of a version's decision output (None if unknown), and return the held scores of the version."""
        # If more than KEPT versions are recorded, the version that was recorded first is removed.
        self.wanted.discard(digest)
        self.names[digest] = name
        if len(self.names) > KEPT:
            del self.names[next(iter(self.names))]
        waited = [record for record in self.waiting if record.digest == digest]
        self.waiting = deque((record for record in self.waiting if record.digest != digest), WAITING)
        return [record for record in map(self.decided, waited) if record is not None]
