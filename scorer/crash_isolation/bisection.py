"""Which events are examined after a death, how many at a time, and when one of them is guilty. Pure.

The suspects are scored by a process that may die. Where it dies, fewer events are scored at once, until the guilty one is
alone. An event is guilty if two processes in a row have died over it alone: one death may have another cause.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from publisher.kafka.partitions import Partition
from scorer.decoding.batch import Batch

FEWER = 8  # times fewer events after a death: measured in simulation, 10 deaths for one guilty event among 4,096
QUIET_SECONDS = 600.0  # partitions that another scorer holds may be behind: an examination without a death ends all the same


@dataclass(slots=True)
class Bisection:
    """`suspects`: the events before these offsets that are not committed. `largest`: how many events a batch may have; `limit`:
    how many are scored at once. `now` is in monotonic seconds."""

    suspects: dict[Partition, int]
    largest: int
    now: float
    limit: int = 0
    _once: set[tuple[str, int, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        """The first batch is one like that which was in hand."""
        self.limit = self.largest

    def died(self, batch: Batch, now: float) -> bool:
        """The process died over this batch. Whether its one event is guilty."""
        self.now = now
        self.limit = max(1, len(batch) // FEWER)
        if len(batch) > 1:
            return False
        event = batch.topics[0], batch.partitions[0], batch.offsets[0]
        guilty = event in self._once
        self._once ^= {event}
        return guilty

    def answered(self, batch: Batch) -> None:
        """The events of this batch were scored, and the process lives."""
        if len(batch) >= self.limit:
            self.limit = min(self.largest, 2 * self.limit)
        if self._once:
            self._once.difference_update(zip(batch.topics, batch.partitions, batch.offsets, strict=True))

    def over(self, committed: Mapping[Partition, int], now: float) -> bool:
        """Whether every suspect is answered, by this scorer or by another, as the group's committed offsets say."""
        self.suspects = {place: end for place, end in self.suspects.items() if committed.get(place, -1) < end}
        return not self.suspects or now - self.now > QUIET_SECONDS
