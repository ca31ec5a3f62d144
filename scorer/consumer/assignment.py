"""The positions of the assigned partitions: assignment epoch, offsets and offset metadata. No Kafka calls.

Every assignment of a partition starts a new epoch. A batch may be published only if each of its partitions still has the epoch
that it had at the fetch. This check is needed because a broker also accepts offsets from a group member that does not own the
partition.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from confluent_kafka import TopicPartition
from msgspec.structs import replace

from publisher.kafka.partitions import Partition
from scorer.consumer.offset_metadata import OffsetMetadata
from scorer.consumer.start_offsets import AnswerStartOffsets, StartPosition, leader_epoch_field
from scorer.decoding.batch import Batch


@dataclass(slots=True)
class _Owned:
    """The positions of one assigned partition.

    Attributes:
        epoch: the value of `AssignedPartitions.changes` when the partition was assigned.
        metadata: the metadata of the committed offset.
        committed: the group's committed offset.
        leader_epoch: the leader epoch of the committed offset, -1 if unknown.
        next: the offset to read next.
        answers_from: the offsets in the output topic and dead-letter topic from which records answer events of the recreated
            input topic; None if the topic was not recreated, or if the group has already committed answers to its events.
        read: the offset after the last fetched event.
        level_ms: the last time when all events of the partition were answered (no lag), in Unix ms; 0 if never.
        sandboxed: whether the sandbox process reads the partition, because its records may crash this process.
    """

    epoch: int
    metadata: OffsetMetadata
    committed: int
    leader_epoch: int
    next: int
    answers_from: AnswerStartOffsets | None
    read: int = 0
    level_ms: int = 0
    sandboxed: bool = False


class AssignedPartitions:
    """The positions of the partitions that are assigned to this consumer. One thread makes all calls.

    Attributes:
        changes: a counter that each assignment and each loss of partitions increments. The epoch of a partition is the value of
            `changes` when the partition was assigned.
        member: the member id of this consumer in the group, which is part of the metadata of every committed offset.
    """

    def __init__(self) -> None:
        self.changes = 0
        self.member = ""
        self._owned: dict[Partition, _Owned] = {}
        self._arrived: set[Partition] = set()

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._owned)

    def __contains__(self, partition: object) -> bool:
        return partition in self._owned

    def __len__(self) -> int:
        return len(self._owned)

    def assign(self, starts: Iterable[StartPosition]) -> None:
        """Add newly assigned partitions, with their start positions, in a new epoch."""
        self.changes += 1
        for start in starts:
            self._arrived.add(self._start(start, self.changes))

    def rewind(self, start: StartPosition) -> None:
        """Reset an assigned partition to this start position, within the same assignment epoch."""
        before = self._owned[start.position.topic, start.position.partition]
        partition = self._start(start, before.epoch)
        self._owned[partition].answers_from = start.after or before.answers_from
        self._owned[partition].sandboxed = before.sandboxed

    def remove(self, partitions: Iterable[Partition]) -> None:
        """Remove partitions that are revoked, lost, or without a start position."""
        self.changes += 1
        for partition in partitions:
            self._owned.pop(partition, None)
            self._arrived.discard(partition)

    def set_sandboxed(self, partition: Partition, *, sandboxed: bool = True) -> None:
        """Record whether the sandbox, a child process that may crash, reads this partition."""
        if partition in self._owned:
            self._owned[partition].sandboxed = sandboxed

    def arrivals(self) -> frozenset[Partition]:
        """Return the assigned partitions that were not passed to `admit` yet."""
        return frozenset(self._arrived)

    def admit(self, partitions: Iterable[Partition]) -> None:
        """Record that the worker has checked which revision of the model channel scored these partitions last."""
        self._arrived.difference_update(partitions)

    def unchanged_since(self, changes: int) -> set[Partition]:
        """Return the partitions that were assigned when `changes` had this value, and have been assigned since then."""
        return {partition for partition, owned in self._owned.items() if owned.epoch <= changes}

    def epochs(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Return the assignment epoch of each of these partitions. All of them must be assigned."""
        return {partition: self._owned[partition].epoch for partition in partitions}

    def are_current(self, epochs: Mapping[Partition, int]) -> bool:
        """Return whether all these partitions are still assigned with the given epochs."""
        owned = self._owned
        return all(partition in owned and owned[partition].epoch == epoch for partition, epoch in epochs.items())

    def metadata(self, partition: Partition) -> OffsetMetadata:
        """Return the metadata of the committed offset; empty metadata if the partition is not assigned."""
        return self._owned[partition].metadata if partition in self._owned else OffsetMetadata()

    def metadata_by_partition(self) -> dict[Partition, OffsetMetadata]:
        """Return the metadata of the committed offset of each assigned partition."""
        return {partition: owned.metadata for partition, owned in self._owned.items()}

    def answers_from(self, partition: Partition) -> AnswerStartOffsets | None:
        """Return the output and dead-letter offsets at which the answers to a recreated input topic begin.

        Returns None if the topic was not recreated, or if the group has already committed answers to its events.
        """
        return self._owned[partition].answers_from if partition in self._owned else None

    def committed(self) -> dict[Partition, int]:
        """Return the committed offset of each assigned partition."""
        return {partition: owned.committed for partition, owned in self._owned.items()}

    def next(self, partition: Partition) -> int | None:
        """Return the offset to read next; None if the partition is not assigned."""
        return self._owned[partition].next if partition in self._owned else None

    def read(self, reached: Mapping[Partition, int]) -> None:
        """Record that all events before these offsets have been fetched. The next fetch starts at these offsets."""
        for partition, offset in reached.items():
            owned = self._owned[partition]
            owned.next = owned.read = offset

    def advance_to_end(self, ends: Mapping[Partition, int], now_ms: int) -> None:
        """Advance the next offset of each partition to the partition's end. The skipped offsets contain no events.

        Args:
            ends: the end offset of each partition. All events before it have been fetched.
            now_ms: the wall clock in Unix ms.
        """
        for partition, offset in ends.items():
            owned = self._owned.get(partition)
            if owned is not None:
                owned.next = max(owned.next, offset)
                if owned.read <= owned.committed:
                    owned.level_ms = now_ms

    def level_ms(self) -> dict[Partition, int]:
        """Return, for each partition, the last time when all its events were answered, in Unix ms; 0 if never."""
        return {partition: owned.level_ms for partition, owned in self._owned.items()}

    def position_or_recorded(self, group_position: TopicPartition) -> TopicPartition:
        """Return `group_position`, or the committed position in this object if `group_position` has no offset."""
        owned = self._owned.get((group_position.topic, group_position.partition))
        if group_position.offset >= 0 or owned is None:
            return group_position
        return TopicPartition(group_position.topic, group_position.partition, owned.committed, owned.metadata.encode())

    def offsets(
        self, batch: Batch, mark: OffsetMetadata, reached: Mapping[Partition, int] | None = None
    ) -> list[TopicPartition]:
        """Return the positions to commit after a batch.

        Args:
            batch: the published batch.
            mark: the metadata for the positions. This method replaces its fields `topic_id`, `suspect` and `member`.
            reached: the offset to commit for each partition if only a part of the batch is published; None if the whole batch
                is published.
        """
        marks: dict[tuple[str, bool], str] = {}
        positions = []
        for partition, offset in (reached or batch.reached).items():
            owned = self._owned.get(partition)
            kind = (mark.topic_id, False) if owned is None else (owned.metadata.topic_id, owned.sandboxed)
            if kind not in marks:
                marks[kind] = replace(mark, topic_id=kind[0], suspect=kind[1], member=self.member).encode()
            leader_epoch = leader_epoch_field(batch.leader_epochs[partition])
            positions.append(TopicPartition(*partition, offset, marks[kind], leader_epoch))
        return positions

    def commit(self, batch: Batch, mark: OffsetMetadata) -> None:
        """Record that the positions after a batch are committed with this metadata. Lost partitions are ignored."""
        for partition, offset in batch.reached.items():
            owned = self._owned.get(partition)
            if owned is not None and owned.epoch == batch.epochs[partition]:
                owned.metadata = replace(mark, topic_id=owned.metadata.topic_id, suspect=owned.sandboxed, member=self.member)
                owned.committed = offset
                owned.leader_epoch = leader_epoch_field(batch.leader_epochs[partition])
                owned.answers_from = None

    def positions_without_events(self, owner: str) -> list[TopicPartition]:
        """Return the positions to commit for partitions whose next offset is greater than the committed offset.

        The offsets between them contain no events. The metadata names `owner` as the owner. Call this method only while no
        event is in flight. Otherwise a position could be after an event that is not answered yet.
        """
        # The positions have no leader epoch, because the last event may have an older epoch than the transaction marker after
        # it. A client that starts at the marker with the older epoch would report that the log was truncated.
        rows = ((partition, owned) for partition, owned in self._owned.items() if owned.next > owned.committed)
        return [
            TopicPartition(*partition, owned.next, self._metadata_for(owned, owner).encode(), leader_epoch_field(None))
            for partition, owned in rows
        ]

    def record_committed(self, positions: Iterable[TopicPartition], owner: str) -> None:
        """Record that these positions from `positions_without_events` are committed."""
        for position in positions:
            owned = self._owned.get((position.topic, position.partition))
            if owned is not None and owned.committed < position.offset <= owned.next:
                owned.metadata = self._metadata_for(owned, owner)
                owned.committed = position.offset
                owned.leader_epoch = leader_epoch_field(None)

    def ownership_positions(self, partitions: Iterable[Partition], owner: str) -> list[TopicPartition]:
        """Return the committed offsets of these partitions as positions to commit, with `owner` in the metadata."""
        rows = ((partition, self._owned[partition]) for partition in partitions)
        return [
            TopicPartition(*partition, owned.committed, self._metadata_for(owned, owner).encode(), owned.leader_epoch)
            for partition, owned in rows
        ]

    def record_ownership(self, partitions: Iterable[Partition], owner: str) -> None:
        """Record that the positions from `ownership_positions` are committed."""
        for partition in partitions:
            owned = self._owned[partition]
            owned.metadata = self._metadata_for(owned, owner)

    def _metadata_for(self, owned: _Owned, owner: str) -> OffsetMetadata:
        """Return the metadata of the committed offset, with its owner replaced. An empty `owner` also clears the member id."""
        return replace(owned.metadata, owner=owner, suspect=owned.sandboxed, member=self.member if owner else "")

    def _start(self, start: StartPosition, epoch: int) -> Partition:
        position = start.position
        partition = position.topic, position.partition
        leader_epoch = leader_epoch_field(position.leader_epoch)
        self._owned[partition] = _Owned(epoch, start.metadata, position.offset, leader_epoch, position.offset, start.after)
        return partition
