"""Which version scored each partition last, and the changes as they came. Folded from the topic of swaps."""

from collections import deque
from dataclasses import dataclass, field

from publisher.kafka.partitions import Partition
from scorer.console.records import SwapRecord

KEPT = 500  # changes that are shown at all


@dataclass(slots=True)
class SwapFold:
    """`last` has each partition's newest change, `recent` the newest of all, newest first."""

    last: dict[Partition, SwapRecord] = field(default_factory=dict)
    recent: deque[SwapRecord] = field(default_factory=lambda: deque(maxlen=KEPT))

    def hear(self, record: SwapRecord) -> None:
        """Take in a record that is newer than all before of its partition."""
        self.last[record.place] = record
        self.recent.appendleft(record)
