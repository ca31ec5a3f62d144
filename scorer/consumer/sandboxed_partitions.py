"""Read partitions in the sandbox, a child process that may crash; see `publisher/kafka/sandboxed_reads.py`.

A partition is read in the sandbox in three cases:
- Its last owner died, possibly because a decompressed record batch did not fit in memory. The metadata of the committed offset
  names the owner.
- The client cannot decompress a record batch.
- The last owner has read the partition in the sandbox, according to the metadata of the committed offset.
"""

import time
from collections.abc import Callable, Collection, Iterable

from publisher.kafka.partitions import Partition
from publisher.kafka.sandbox_program import Row
from publisher.kafka.sandboxed_reads import Sandboxed, UnreadableBatch
from scorer.consumer.fence_dead_owners import DeadOwners
from scorer.consumer.start_offsets import StartPosition
from scorer.decoding.batch import Batch, UnreadableRange


class SandboxedInputPartitions:
    """The partitions of one consumer that are read in the sandbox process. One thread makes all calls.

    Attributes:
        cleared: the partitions that no longer need the sandbox. The client must read them again.
    """

    def __init__(self, sandbox: Sandboxed, owner: str) -> None:
        self.cleared: set[Partition] = set()
        self._sandbox = sandbox
        self._owner = owner
        self._members: set[str] = set()
        self._waiting: tuple[Partition, list[Row]] | None = None

    def __bool__(self) -> bool:
        return bool(self._sandbox or self._waiting)

    def __contains__(self, partition: object) -> bool:
        return partition in self._sandbox or (self._waiting is not None and self._waiting[0] == partition)

    def suspects_among(self, starts: Iterable[StartPosition], dead: DeadOwners, member: str) -> dict[Partition, int]:
        """Return the assigned partitions that must be read in the sandbox process, each with its start offset.

        Args:
            starts: the start positions of the assigned partitions.
            dead: the dead owners that were found at this assignment.
            member: the current member id of this process.
        """
        # The sandbox must read a partition if the offset's metadata says so, or if its last owner is dead. An owner with the
        # name of this scorer is dead if this process never had the owner's member id. Names alone are not sufficient: a scorer
        # that died may have joined the group again under the same name.
        self._members.add(member)
        offsets = {}
        for start in starts:
            partition = start.position.topic, start.position.partition
            owner = start.metadata.owner
            is_dead = owner in dead.names or start.metadata.member in dead.members
            is_earlier_process = owner == self._owner and start.metadata.member not in self._members
            if start.metadata.suspect or is_dead or is_earlier_process:
                offsets[partition] = start.position.offset
        return offsets

    def add(self, partition: Partition, offset: int) -> None:
        """Read this partition in the sandbox from this offset on."""
        self._drop([partition])
        self._sandbox.add(partition, offset)

    def forget(self, partitions: Collection[Partition]) -> None:
        """Stop reading revoked partitions, and drop their records that were not returned yet."""
        self._drop(partitions)
        self._sandbox.forget(partitions)

    def take(self, limit: Callable[[int], int], readable: Callable[[Partition], bool], wait: float) -> Batch | None:
        """Return the next events of one sandboxed partition; None if no event is available within `wait`.

        Args:
            limit: a function from the timestamp of the first event, in Unix ms, to the maximum number of events.
            readable: a function that returns whether a partition may be read now.
            wait: how long to wait for an answer of the sandbox, in seconds.

        Returns:
            A batch of events, or a batch with one entry that stands for an unreadable record batch.
        """
        if self._waiting is None:
            taken = self._sandbox.take(wait, readable)
            if taken is None:
                return None
            if taken.released:
                self.cleared.add(taken.partition)
            if taken.unreadable is not None:
                return placeholder_batch(taken.unreadable, time.time_ns() // 1_000_000)
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
        """End the sandbox process."""
        self._sandbox.close()

    def _drop(self, partitions: Collection[Partition]) -> None:
        if self._waiting is not None and self._waiting[0] in partitions:
            self._waiting = None
        self.cleared.difference_update(partitions)


def batch_of(partition: Partition, rows: list[Row]) -> Batch:
    """Convert records that the sandbox has read to a batch. The caller sets the epochs of the batch."""
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


def placeholder_batch(unreadable: UnreadableBatch, now_ms: int) -> Batch:
    """Return a batch with a single entry, which stands for an unreadable record batch.

    `now_ms` (Unix ms) is the timestamp of the entry.
    """
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
