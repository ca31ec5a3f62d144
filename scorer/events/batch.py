"""A batch of events as columns: what intake hands to the loop. No Kafka client in here."""

from dataclasses import dataclass, field
from typing import Literal

Headers = list[tuple[str, str | bytes | None]] | None
End = Literal["empty", "events", "bytes", "isolation"]
"""What a batch stopped at: nothing more was there, as many events as were asked for, as many bytes as a batch may have, or an
event that is taken alone because it may be the one that kills."""


@dataclass(slots=True)
class Batch:
    """Parallel lists, one entry an event, in the order of arrival (so in offset order within a partition).

    `timestamps` are Unix ms, 0 where the broker has none. `epochs` holds the assignment epoch of each partition at the time
    of the take; the batch may only be published while they are unchanged. `carried`: headers that each event hands on to its
    score, if any. `reached` is for each partition the offset that
    follows its last event here.
    """

    topics: list[str]
    partitions: list[int]
    offsets: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: list[int]
    headers: list[Headers]
    end: End = "empty"
    carried: list[list[tuple[str, str | bytes | None]]] | None = None
    epochs: dict[tuple[str, int], int] = field(default_factory=dict)
    reached: dict[tuple[str, int], int] = field(init=False)

    def __post_init__(self) -> None:
        last = dict(zip(zip(self.topics, self.partitions, strict=True), self.offsets, strict=True))
        self.reached = {partition: offset + 1 for partition, offset in last.items()}

    def __len__(self) -> int:
        return len(self.values)

    def first_offsets(self) -> dict[tuple[str, int], int]:
        """For each partition the offset of its first event here."""
        firsts = zip(zip(reversed(self.topics), reversed(self.partitions), strict=True), reversed(self.offsets), strict=True)
        return dict(firsts)
