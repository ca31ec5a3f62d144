"""The bisection after a death: which events are suspects, how many are scored at once, and when one is marked as failing. Pure.

The suspects are scored by a sandbox process that may die. After a death fewer events are scored at once, until the failing one
is alone. An event is marked as failing if two processes in a row died while it was the only event in flight: one death may
have another cause.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from publisher.kafka.partitions import Partition
from scorer.decoding.batch import Batch

FEWER = 8  # times fewer events after a death: measured in simulation, 10 deaths for one guilty event among 4,096
QUIET_SECONDS = 600.0  # partitions that another scorer holds may be behind: an examination without a death ends all the same


@dataclass(slots=True)
class Bisection:
    """The state of a bisection.

    `suspects`: the uncommitted events before these offsets. `largest`: the maximum number of events per batch; `limit`: the
    current one. `now` is in monotonic seconds.
    """

    suspects: dict[Partition, int]
    largest: int
    now: float
    limit: int = 0
    _once: set[tuple[str, int, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Start with a batch like the one in flight at the death."""
        self.limit = self.largest

    def died(self, batch: Batch, now: float) -> bool:
        """Record a death over this batch; return whether its only event is marked as failing."""
        self.now = now
        self.limit = max(1, len(batch) // FEWER)
        if len(batch) > 1:
            return False
        event = batch.topics[0], batch.partitions[0], batch.offsets[0]
        guilty = event in self._once
        self._once ^= {event}
        return guilty

    def answered(self, batch: Batch) -> None:
        """Record that this batch was scored without a death."""
        if len(batch) >= self.limit:
            self.limit = min(self.largest, 2 * self.limit)
        if self._once:
            self._once.difference_update(zip(batch.topics, batch.partitions, batch.offsets, strict=True))

    def over(self, committed: Mapping[Partition, int], now: float) -> bool:
        """Return whether every suspect is answered, by this scorer or another one, by the committed offsets."""
        self.suspects = {place: end for place, end in self.suspects.items() if committed.get(place, -1) < end}
        return not self.suspects or now - self.now > QUIET_SECONDS
