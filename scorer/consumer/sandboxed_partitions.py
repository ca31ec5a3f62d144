"""Partitions that are read in the sandbox, as batches; see `publisher/kafka/sandboxed_reads.py`.

A partition is read in the sandbox if its last owner died, because a fetched batch that expands beyond the memory ends the
process before any
event is in flight. The owner in the metadata of the committed offsets records this: it survives the process, its container and
its disk. A
partition is also read there if the client reports a batch that it cannot decompress, or if the mark of its committed offset
states that its last
owner had not passed the batch: a rebalance does not remove the suspicion.
"""

import time
from collections.abc import Callable, Collection, Iterable

from publisher.kafka.partitions import Partition
from publisher.kafka.sandbox_program import Row
from publisher.kafka.sandboxed_reads import Sandboxed, UnreadableBatch
from scorer.consumer.start_offsets import StartPosition
from scorer.decoding.batch import Batch, UnreadableRange


class SandboxedInputPartitions:
    """The sandboxed partitions of one consumer, owned by its thread.

    `cleared` are those that the consumer itself reads from now on.
    """

    def __init__(self, sandbox: Sandboxed, owner: str) -> None:
        self.cleared: set[Partition] = set()
        self._sandbox = sandbox
        self._owner = owner
        self._held: set[Partition] = set()
        self._waiting: tuple[Partition, list[Row]] | None = None

    def __bool__(self) -> bool:
        return bool(self._sandbox or self._waiting)

    def __contains__(self, partition: object) -> bool:
        return partition in self._sandbox or (self._waiting is not None and self._waiting[0] == partition)

    def among(self, beginnings: Iterable[StartPosition], dead: Collection[str]) -> dict[Partition, int]:
        """Return the start offsets of suspects, and of partitions whose last owner is `dead` or had this name."""
        found = {}
        for beginning in beginnings:
            place, owner = (beginning.position.topic, beginning.position.partition), beginning.mark.owner
            if beginning.mark.suspect or owner in dead or (owner == self._owner and place not in self._held):
                found[place] = beginning.position.offset
            self._held.add(place)
        return found

    def add(self, partition: Partition, offset: int) -> None:
        """Read this partition in the sandbox, from that offset."""
        self._drop([partition])
        self._sandbox.add(partition, offset)

    def forget(self, partitions: Collection[Partition]) -> None:
        """Forget partitions that go to another owner."""
        self._drop(partitions)
        self._sandbox.forget(partitions)

    def take(self, limit: Callable[[int], int], readable: Callable[[Partition], bool], wait: float) -> Batch | None:
        """Return the next events of a `readable` partition, or an entry that stands for an unreadable batch."""
        if self._waiting is None:
            taken = self._sandbox.take(wait, readable)
            if taken is None:
                return None
            if taken.cleared:
                self.cleared.add(taken.partition)
            if taken.unreadable is not None:
                return entry_of(taken.unreadable, time.time_ns() // 1_000_000)
            if not taken.rows:
                return None
            self._waiting = taken.partition, taken.rows
        partition, rows = self._waiting
        if not readable(partition):
            return None
        count = max(1, limit(max(0, rows[0].timestamp[1])))
        self._waiting = (partition, rows[count:]) if count < len(rows) else None
        return batch_of(partition, rows[:count])

    def close(self) -> None:
        self._sandbox.close()

    def _drop(self, partitions: Collection[Partition]) -> None:
        if self._waiting is not None and self._waiting[0] in partitions:
            self._waiting = None
        self.cleared.difference_update(partitions)


def batch_of(partition: Partition, rows: list[Row]) -> Batch:
    """Return these records as a batch without epochs."""
    topic, number = partition
    return Batch(
        topics=[topic] * len(rows),
        partitions=[number] * len(rows),
        offsets=[row.offset for row in rows],
        keys=[row.key for row in rows],
        values=[row.value for row in rows],
        timestamps=[max(0, row.timestamp[1]) for row in rows],
        headers=[None if row.headers is None else [*row.headers] for row in rows],
        unread=[at for at, row in enumerate(rows) if row.unread is not None],
        leader_epochs={partition: rows[-1].leader_epoch},
    )


def entry_of(unreadable: UnreadableBatch, now_ms: int) -> Batch:
    """Return a batch of one entry, which stands for all unreadable records. `now_ms` is the wall clock."""
    topic, number = unreadable.partition
    return Batch(
        topics=[topic],
        partitions=[number],
        offsets=[unreadable.last],
        keys=[None],
        values=[None],
        timestamps=[now_ms],
        headers=[None],
        unreadable={0: UnreadableRange(unreadable.first, str(unreadable))},
        leader_epochs={unreadable.partition: None},
    )
