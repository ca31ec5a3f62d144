"""The swap record: from which offset on a partition was scored by which version, written with that version's first batch."""

from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from scorer.intake.marks import Mark
from scorer.servables.servable import Servable


@dataclass(frozen=True, slots=True)
class Swap:
    """One partition's change of version. `cut_over_offset` is the first offset that the new version scored.

    `after` is set where this is the first answer to a topic that was made again: its answers begin at these offsets, by
    partition of the output and of the dead letters. `before.topic_id` is the topic's id.
    """

    scorer: str
    topic: str
    partition: int
    cut_over_offset: int
    before: Mark
    servable: Servable
    at_ms: int
    after: tuple[Sequence[int], Sequence[int]] | None = None

    @property
    def key(self) -> bytes:
        """`<topic>/<partition>`."""
        return f"{self.topic}/{self.partition}".encode()

    def encode(self) -> bytes:
        """As it stands in the topic `<name>.swaps`."""
        origin = self.servable.encoder.provenance
        after = {"scores_from": self.after[0], "letters_from": self.after[1]} if self.after else {}
        return orjson.dumps(
            {
                "scorer": self.scorer,
                "topic": self.topic,
                "topic_id": self.before.topic_id,
                "partition": self.partition,
                "cut_over_offset": self.cut_over_offset,
                "from_version": self.before.version or None,
                "from_digest": self.before.digest or None,
                "version": origin["version"],
                "digest": origin["digest"],
                "role": origin["role"],
                "revision": self.servable.resolution.revision,
                "reason": self.servable.reason,
                "at_ms": self.at_ms,
                **after,
            }
        )
