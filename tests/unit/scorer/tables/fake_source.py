"""A source of records for tests: topics in memory, of which the reader reads a few records at a time."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from publisher.kafka.partitions import Partition
from publisher.kafka.topics import Topic
from scorer.tables.row_store import TableRecords
from scorer.tables.source import FetchedTableRecords, PartitionEnds

Row = tuple[bytes | None, bytes | None]


@dataclass
class FakeSource:
    """Topics in memory; see `TableSource`. Tests write to `logs`, and replace `topics`.

    `is_available` is whether the brokers answer. `first` has the first retained offset of partitions that are truncated.
    `leaderless` are partitions without a leader.
    """

    topics: dict[str, Topic | None]
    logs: dict[Partition, list[Row]] = field(default_factory=dict)
    first: dict[Partition, int] = field(default_factory=dict)
    per_read: int = 2
    is_available: bool = True
    leaderless: set[Partition] = field(default_factory=set)
    positions: dict[Partition, int] = field(default_factory=dict)
    closed: bool = False
    renewals: int = 0
    _ends: PartitionEnds | None = None
    _topics: Mapping[str, Topic | None] | None = None

    def write(self, partition: Partition, *rows: Row) -> None:
        """Append records to a partition."""
        self.logs.setdefault(partition, []).extend(rows)

    def start(self, partitions: Iterable[Partition]) -> None:
        """Read from the first retained offset on."""
        for partition in partitions:
            self.positions[partition] = self.first.get(partition, 0)

    def stop(self, partitions: Iterable[Partition]) -> None:
        """Forget the positions of partitions."""
        for partition in partitions:
            del self.positions[partition]

    def renew(self) -> None:
        """Count the replaced connections."""
        self.renewals += 1

    def read(self, seconds: float) -> FetchedTableRecords:  # noqa: ARG002 - nothing arrives later
        """Return up to `per_read` records of each partition."""
        records = []
        reached = {}
        lost_partitions = set()
        led_positions = {partition: at for partition, at in self.positions.items() if partition not in self.leaderless}
        for partition, position in led_positions.items() if self.is_available else ():
            if position < self.first.get(partition, 0):
                lost_partitions.add(partition)
                continue
            rows = self.logs.get(partition, [])[position : position + self.per_read]
            if rows:
                removed = np.array([value is None for _, value in rows], np.bool_)
                offsets = np.arange(position, position + len(rows))
                numbers = np.full(len(rows), partition[1], np.int32)
                keys = [key for key, _ in rows]
                records.append((partition[0], TableRecords(numbers, offsets, keys, [value for _, value in rows], removed)))
                self.positions[partition] += len(rows)
            reached[partition] = self.positions[partition]
        return FetchedTableRecords(records, reached, frozenset(lost_partitions))

    def ask_ends(self, partitions: Iterable[Partition], now: float) -> None:
        """Remember the current ends of existing topics, unless the brokers are unavailable."""
        existing = [p for p in partitions if self.is_available and self.topics[p[0]] is not None]
        self._ends = PartitionEnds(now, {p: len(self.logs.get(p, [])) for p in existing if p not in self.leaderless})

    def answered_ends(self) -> PartitionEnds | None:
        """Return the remembered ends."""
        return self._ends

    def ask_topics(self, names: Iterable[str]) -> None:
        """Remember the current topics."""
        self._topics = {name: self.topics[name] for name in names} if self.is_available else {}

    def answered_topics(self) -> Mapping[str, Topic | None] | None:
        """Return the remembered topics."""
        return self._topics

    def close(self) -> None:
        """Record that the source is closed."""
        self.closed = True
