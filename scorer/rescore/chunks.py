"""Divide the score records of a rescore job into chunks, each of which is corrected in one transaction. No I/O of its own."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from confluent_kafka import Message

from publisher.kafka.reader import PartitionBatch
from scorer.rescore.counts import RescoreCounts
from scorer.rescore.selection import AsJson, ScoreSelection, read
from scorer.scores.decode_record import ScoreRecord

SCANNED = 200_000  # the most records of a chunk, selected or not


class SelectedScore(NamedTuple):
    """A selected score record: its partition and offset in the topic of scores, its key, and its value, decoded and raw."""

    partition: int
    offset: int
    key: bytes | None
    record: ScoreRecord
    value: bytes = b""


@dataclass(slots=True)
class RescoreChunk:
    """The score records that a rescore job processes in one transaction.

    Attributes:
        selected: The selected records. Records of one partition are in the order of offsets.
        reached: The offset after the last record of the chunk, by partition.
        counts_by_partition: For each partition, the counts of its records by result.
        unreadable: The partition and offset of each record that cannot be decoded.
        scanned: The number of all records, selected or not.
    """

    selected: list[SelectedScore] = field(default_factory=list)
    reached: dict[int, int] = field(default_factory=dict)
    counts_by_partition: dict[int, RescoreCounts] = field(default_factory=dict)
    unreadable: list[tuple[int, int]] = field(default_factory=list)
    scanned: int = 0

    def counts_of(self, partition: int) -> RescoreCounts:
        """Return the counts of a partition, which the caller may increase."""
        return self.counts_by_partition.setdefault(partition, RescoreCounts())

    def add(self, partition: int, offset: int, message: Message, selection: ScoreSelection, as_json: AsJson) -> None:
        """Add a record of the topic of scores. A record that is not selected, or that cannot be decoded, is only counted."""
        self.scanned += 1
        self.reached[partition] = offset + 1
        record = read(message.value(), as_json)
        if record is None:
            self.unreadable.append((partition, offset))
            self.counts_of(partition).unfit += 1
        elif selection.includes(record):
            self.selected.append(SelectedScore(partition, offset, message.key(), record, message.value() or b""))
        else:
            self.counts_of(partition).others += 1


def chunks(batches: Iterable[PartitionBatch], selection: ScoreSelection, as_json: AsJson, most: int) -> Iterator[RescoreChunk]:
    """Yield all score records in chunks.

    A chunk has at most SCANNED records, and at most `most` of them are selected.
    """
    chunk = RescoreChunk()
    for batch in batches:
        for offset, message in zip(batch.offsets, batch.messages, strict=True):
            if len(chunk.selected) >= most or chunk.scanned >= SCANNED:
                yield chunk
                chunk = RescoreChunk()
            chunk.add(batch.partition[1], offset, message, selection, as_json)
    if chunk.scanned:
        yield chunk
