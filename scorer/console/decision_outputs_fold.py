"""Which of several named outputs each version decides on, as far as the registry has answered. The bus feed asks, the registry
feed answers: neither waits for the other."""

from collections import Counter, deque
from dataclasses import dataclass, field

from msgspec.structs import replace

from scorer.console.records import SampledScore
from scorer.evaluation.decision_output import part_of

KEPT = 100  # digests
WAITING = 5_000  # scores that wait for the registry's answer


@dataclass(slots=True)
class DecisionOutputsFold:
    """`names` has the output of each known version, by digest, None if it is unknown; `wanted` are the digests to look up.
    `waiting` are the newest scores of these, and `unknown` counts by digest the scores whose output is unknown."""

    names: dict[str, str | None] = field(default_factory=dict)
    wanted: set[str] = field(default_factory=set)
    waiting: deque[SampledScore] = field(default_factory=lambda: deque(maxlen=WAITING))
    unknown: Counter[str] = field(default_factory=Counter)

    def decided(self, record: SampledScore) -> SampledScore | None:
        """Return the record with the part of its score that figures are made of; None if it waits until that is known."""
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

    def found(self, digest: str, name: str | None) -> list[SampledScore]:
        """Take in what the registry states of a version, and return its scores that waited; of too many versions the one known
        for longest is forgotten."""
        self.wanted.discard(digest)
        self.names[digest] = name
        if len(self.names) > KEPT:
            del self.names[next(iter(self.names))]
        waited = [record for record in self.waiting if record.digest == digest]
        self.waiting = deque((record for record in self.waiting if record.digest != digest), WAITING)
        return [record for record in map(self.decided, waited) if record is not None]
