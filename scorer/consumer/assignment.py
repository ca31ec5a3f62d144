"""The state of the assigned partitions: epoch, positions and offset metadata. No Kafka calls.

Every assignment of a partition starts a new epoch. A batch may be published only while the epochs of its fetch are unchanged,
because the
broker does not check who owns the partition of an offset.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from confluent_kafka import TopicPartition
from msgspec.structs import replace

from publisher.kafka.partitions import Partition
from scorer.consumer.offset_metadata import OffsetMetadata
from scorer.consumer.start_offsets import AnswerStartOffsets, StartPosition, known
from scorer.decoding.batch import Batch


@dataclass(slots=True)
class _Owned:
    """The state of one assigned partition.

    `committed` is the group's position, with its `mark` and `leader_epoch`; `next` is the offset to read next, `read` the
    offset behind the
    last fetched event. At `level_ms` (Unix ms) no event waited behind the answered ones. If the topic was recreated,
    `answers_from` is set
    until the first answer to it is committed. A `suspect` is read in the sandbox, which every mark committed meanwhile
    records.
    """

    epoch: int
    mark: OffsetMetadata
    committed: int
    leader_epoch: int
    next: int
    answers_from: AnswerStartOffsets | None
    read: int = 0
    level_ms: int = 0
    suspect: bool = False

    def marked(self, owner: str) -> OffsetMetadata:
        """Return the mark with this owner's name."""
        return replace(self.mark, owner=owner, suspect=self.suspect)


class AssignedPartitions:
    """The assigned partitions, owned by one thread.

    `changes` counts assignments and losses: an epoch is the count at its start.
    """

    def __init__(self) -> None:
        self.changes = 0
        self._owned: dict[Partition, _Owned] = {}
        self._arrived: set[Partition] = set()

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._owned)

    def __contains__(self, partition: object) -> bool:
        return partition in self._owned

    def __len__(self) -> int:
        return len(self._owned)

    def assign(self, beginnings: Iterable[StartPosition]) -> None:
        """Add these partitions, which are read from these positions."""
        self.changes += 1
        for beginning in beginnings:
            self._arrived.add(self._begin(beginning, self.changes))

    def rewind(self, beginning: StartPosition) -> None:
        """Read this partition from this position again, in the same epoch."""
        before = self._owned[beginning.position.topic, beginning.position.partition]
        place = self._begin(beginning, before.epoch)
        self._owned[place].answers_from = beginning.after or before.answers_from
        self._owned[place].suspect = before.suspect

    def leave(self, partitions: Iterable[Partition]) -> None:
        """Remove these partitions."""
        self.changes += 1
        for partition in partitions:
            self._owned.pop(partition, None)
            self._arrived.discard(partition)

    def suspect(self, partition: Partition, *, suspect: bool = True) -> None:
        """Record whether this partition is read in the sandbox."""
        if partition in self._owned:
            self._owned[partition].suspect = suspect

    def arrivals(self) -> frozenset[Partition]:
        """Return the assigned partitions that were not admitted yet; see `admit`."""
        return frozenset(self._arrived)

    def admit(self, partitions: Iterable[Partition]) -> None:
        """Mark these new partitions as checked."""
        self._arrived.difference_update(partitions)

    def unchanged_since(self, changes: int) -> set[Partition]:
        """Return the partitions that have been assigned without interruption since `changes` were counted."""
        return {partition for partition, owned in self._owned.items() if owned.epoch <= changes}

    def epochs(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Return the epochs of these assigned partitions."""
        return {partition: self._owned[partition].epoch for partition in partitions}

    def still(self, epochs: Mapping[Partition, int]) -> bool:
        """Return whether all of these partitions are assigned, with these epochs."""
        owned = self._owned
        return all(partition in owned and owned[partition].epoch == epoch for partition, epoch in epochs.items())

    def mark(self, partition: Partition) -> OffsetMetadata:
        """Return the mark of the committed offset; an empty one if the partition is not assigned."""
        return self._owned[partition].mark if partition in self._owned else OffsetMetadata()

    def marks(self) -> dict[Partition, OffsetMetadata]:
        """Return the marks of all partitions."""
        return {partition: owned.mark for partition, owned in self._owned.items()}

    def answers_from(self, partition: Partition) -> AnswerStartOffsets | None:
        """Return where the answers begin, if the topic was recreated and none of its events has been answered."""
        return self._owned[partition].answers_from if partition in self._owned else None

    def committed(self) -> dict[Partition, int]:
        """Return the committed positions."""
        return {partition: owned.committed for partition, owned in self._owned.items()}

    def next(self, partition: Partition) -> int | None:
        """Return the offset to read next; None if the partition is not assigned."""
        return self._owned[partition].next if partition in self._owned else None

    def read(self, reached: Mapping[Partition, int]) -> None:
        """Record that the events before these offsets have been fetched."""
        for partition, offset in reached.items():
            owned = self._owned[partition]
            owned.next = owned.read = offset

    def reach(self, ends: Mapping[Partition, int], now_ms: int) -> None:
        """Advance to the ends of partitions, past offsets without an event. All events before them have been fetched.

        `now_ms` is the wall clock.
        """
        for partition, offset in ends.items():
            owned = self._owned.get(partition)
            if owned is not None:
                owned.next = max(owned.next, offset)
                if owned.read <= owned.committed:
                    owned.level_ms = now_ms

    def level_ms(self) -> dict[Partition, int]:
        """Return when the end of each partition was last reached with everything answered, in Unix ms; 0 if it was not."""
        return {partition: owned.level_ms for partition, owned in self._owned.items()}

    def remembered(self, told: TopicPartition) -> TopicPartition:
        """Return the group's position, or ours if the group has none yet."""
        owned = self._owned.get((told.topic, told.partition))
        if told.offset >= 0 or owned is None:
            return told
        return TopicPartition(told.topic, told.partition, owned.committed, owned.mark.encode())

    def offsets(
        self, batch: Batch, mark: OffsetMetadata, reached: Mapping[Partition, int] | None = None
    ) -> list[TopicPartition]:
        """Return the positions after a batch, or its `reached` part, with this mark, the topic ids and leader epochs."""
        marks: dict[tuple[str, bool], str] = {}
        positions = []
        for partition, offset in (reached or batch.reached).items():
            owned = self._owned.get(partition)
            kind = (mark.topic_id, False) if owned is None else (owned.mark.topic_id, owned.suspect)
            if kind not in marks:
                marks[kind] = replace(mark, topic_id=kind[0], suspect=kind[1]).encode()
            positions.append(TopicPartition(*partition, offset, marks[kind], known(batch.leader_epochs[partition])))
        return positions

    def commit(self, batch: Batch, mark: OffsetMetadata) -> None:
        """Record that the offsets after a batch are committed with this mark. Partitions lost meanwhile are ignored."""
        for partition, offset in batch.reached.items():
            owned = self._owned.get(partition)
            if owned is not None and owned.epoch == batch.epochs[partition]:
                owned.mark = replace(mark, topic_id=owned.mark.topic_id, suspect=owned.suspect)
                owned.committed = offset
                owned.leader_epoch = known(batch.leader_epochs[partition])
                owned.answers_from = None

    def passed(self, owner: str) -> list[TopicPartition]:
        """Return the positions beyond the committed offsets, under their marks with this owner's name.

        Only valid while no event is in flight: then no event lies between. The positions carry no leader epoch. The last event
        may be of an older epoch than the marker behind it, and a client that begins there would report a truncated log.
        """
        rows = ((partition, owned) for partition, owned in self._owned.items() if owned.next > owned.committed)
        return [TopicPartition(*p, o.next, o.marked(owner).encode(), known(None)) for p, o in rows]

    def pass_by(self, positions: Iterable[TopicPartition], owner: str) -> None:
        """Record that positions from `passed` are committed."""
        for position in positions:
            owned = self._owned.get((position.topic, position.partition))
            if owned is not None and owned.committed < position.offset <= owned.next:
                owned.mark = owned.marked(owner)
                owned.committed, owned.leader_epoch = position.offset, known(None)

    def claims(self, partitions: Iterable[Partition], owner: str) -> list[TopicPartition]:
        """Return the unchanged committed offsets, with marks of this owner."""
        rows = ((partition, self._owned[partition]) for partition in partitions)
        return [TopicPartition(*p, o.committed, o.marked(owner).encode(), o.leader_epoch) for p, o in rows]

    def claimed(self, partitions: Iterable[Partition], owner: str) -> None:
        """Record that these ownership marks are committed."""
        for partition in partitions:
            owned = self._owned[partition]
            owned.mark = owned.marked(owner)

    def _begin(self, beginning: StartPosition, epoch: int) -> Partition:
        position = beginning.position
        place = position.topic, position.partition
        leader_epoch = known(position.leader_epoch)
        self._owned[place] = _Owned(epoch, beginning.mark, position.offset, leader_epoch, position.offset, beginning.after)
        return place
