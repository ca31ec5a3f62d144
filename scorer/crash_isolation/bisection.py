"""Find, by bisection, the events that crash a process. Pure.

The suspects are the events that were in flight when the worker process died. They are scored in a sandbox process. After each
death fewer events are scored at once, until the failing event is alone in its batch.
"""

# A single death may have another cause. Therefore an event is marked as failing only after two successive processes have died
# with this event alone in flight.

from collections.abc import Mapping
from dataclasses import dataclass, field

from publisher.kafka.partitions import Partition
from scorer.decoding.batch import Batch

FEWER = 8  # divides the batch size after a death; in a simulation, one failing event among 4,096 cost 10 deaths
QUIET_SECONDS = 600.0  # a bisection ends after this time without a death, even if suspects in partitions of others remain


@dataclass(slots=True)
class Bisection:
    """The state of a search for the event that crashes a process: the remaining suspects, and the largest batch.

    Attributes:
        suspects: an end offset for each partition. The uncommitted events of the partition before this offset are its suspects.
        largest: the configured maximum number of events per batch.
        now: the time of the last death, or of the start (monotonic seconds).
        limit: the current maximum number of events per batch.
    """

    suspects: dict[Partition, int]
    largest: int
    now: float
    limit: int = 0
    _died_once: set[tuple[str, int, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Start with the configured maximum of events per batch."""
        self.limit = self.largest

    def died(self, batch: Batch, now: float) -> bool:
        """Record that a process died while this batch was in flight.

        Returns True if the batch has a single event, and two processes in a row have died while they scored this event. The
        event is then the cause.
        """
        # An event is the cause after two successive processes have died while it was the only event in flight.
        self.now = now
        self.limit = max(1, len(batch) // FEWER)
        if len(batch) > 1:
            return False
        event = batch.topics[0], batch.partitions[0], batch.offsets[0]
        is_failing = event in self._died_once
        self._died_once ^= {event}
        return is_failing

    def record_scored(self, batch: Batch) -> None:
        """Record that this batch was scored without a death. If it had at least `limit` events, double the limit."""
        if len(batch) >= self.limit:
            self.limit = min(self.largest, 2 * self.limit)
        if self._died_once:
            self._died_once.difference_update(zip(batch.topics, batch.partitions, batch.offsets, strict=True))

    def is_over(self, committed: Mapping[Partition, int], now: float) -> bool:
        """Return whether the bisection is over: all suspects are committed, or no process has died for QUIET_SECONDS.

        Args:
            committed: the committed offsets by partition.
            now: monotonic seconds.
        """
        self.suspects = {partition: end for partition, end in self.suspects.items() if committed.get(partition, -1) < end}
        return not self.suspects or now - self.now > QUIET_SECONDS
