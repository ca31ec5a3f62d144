"""The decision output of each version with several named outputs.

The Kafka feed requests an output and the registry feed looks it up, so neither feed waits for the other.
"""

from collections import Counter, deque
from dataclasses import dataclass, field

from msgspec.structs import replace

from scorer.evaluation.decision_output import part_of
from scorer.scores.decode_record import CompleteScoreRecord

KEPT = 100  # digests
WAITING = 5_000  # scores held until their output is known


@dataclass(slots=True)
class DecisionOutputsFold:
    """Select the decision output of scores, and hold scores until the output is known.

    Attributes:
        names: The output of each resolved version by digest; None if it is unknown.
        wanted: The digests to look up.
        waiting: The newest scores of those versions.
        unknown: The scores of versions without a known output, by digest.
    """

    names: dict[str, str | None] = field(default_factory=dict)
    wanted: set[str] = field(default_factory=set)
    waiting: deque[CompleteScoreRecord] = field(default_factory=lambda: deque(maxlen=WAITING))
    unknown: Counter[str] = field(default_factory=Counter)

    def decided(self, record: CompleteScoreRecord) -> CompleteScoreRecord | None:
        """Return the record with the score of its decision output; None if it is held until the output is known."""
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
        return replace(record, score=part_of(score, name))

    def resolve(self, digest: str, name: str | None) -> list[CompleteScoreRecord]:
        """Record the output of a version and return its held scores. Beyond KEPT versions the oldest one is removed."""
        self.wanted.discard(digest)
        self.names[digest] = name
        if len(self.names) > KEPT:
            del self.names[next(iter(self.names))]
        waited = [record for record in self.waiting if record.digest == digest]
        self.waiting = deque((record for record in self.waiting if record.digest != digest), WAITING)
        return [record for record in map(self.decided, waited) if record is not None]
