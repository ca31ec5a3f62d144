"""Which of several named outputs each version decides on, as far as the registry has answered. The bus feed asks, the registry
feed answers: neither waits for the other."""

from dataclasses import dataclass, field

from msgspec.structs import replace

from scorer.console.records import ScoreRecord
from scorer.rollout.decided_outputs import part_of

KEPT = 100  # digests


@dataclass(slots=True)
class OutputsFold:
    """`names` has the output of each known version, by digest, None if it is unknown; `wanted` are the digests to look up."""

    names: dict[str, str | None] = field(default_factory=dict)
    wanted: set[str] = field(default_factory=set)

    def decided(self, record: ScoreRecord) -> ScoreRecord:
        """Return the record with the part of its score that figures are made of; without a score until that is known."""
        score = record.score
        if not isinstance(score, dict):
            return record
        if len(score) == 1:
            return replace(record, score=next(iter(score.values())))
        if record.digest not in self.names and len(self.wanted) < KEPT:
            self.wanted.add(record.digest)
        return replace(record, score=part_of(score, self.names.get(record.digest)))

    def found(self, digest: str, name: str | None) -> None:
        """Take in what the registry states of a version; of too many the one known for longest is forgotten."""
        self.wanted.discard(digest)
        self.names[digest] = name
        if len(self.names) > KEPT:
            del self.names[next(iter(self.names))]
