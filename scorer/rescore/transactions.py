"""Divide the score records of a job into chunks of one transaction each. Does no I/O except through the given batches."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from confluent_kafka import Message

from publisher.kafka.reader import PartitionBatch
from scorer.rescore.counts import RescoreCounts
from scorer.rescore.selection import AsJson, ScoreSelection, read
from scorer.scores.decode_record import ScoreRecord

SCANNED = 200_000  # records of one transaction if few of them are selected


class SelectedScore(NamedTuple):
    """A score record to correct, and its position."""

    partition: int
    offset: int
    key: bytes | None
    record: ScoreRecord


@dataclass(slots=True)
class RescoreChunk:
    """A chunk of records.

    Attributes:
        given: The selected records in the order of each partition.
        reached: The offset behind the last record, by partition.
        tallies: The counts of the records, by partition.
        unreadable: The positions of undecodable records.
        scanned: The number of records.
    """

    given: list[SelectedScore] = field(default_factory=list)
    reached: dict[int, int] = field(default_factory=dict)
    tallies: dict[int, RescoreCounts] = field(default_factory=dict)
    unreadable: list[tuple[int, int]] = field(default_factory=list)
    scanned: int = 0

    def tally(self, partition: int) -> RescoreCounts:
        """Return the counts of a partition."""
        return self.tallies.setdefault(partition, RescoreCounts())

    def add(self, partition: int, offset: int, message: Message, selection: ScoreSelection, as_json: AsJson) -> None:
        """Add a record."""
        self.scanned += 1
        self.reached[partition] = offset + 1
        record = read(message.value(), as_json)
        if record is None:
            self.unreadable.append((partition, offset))
            self.tally(partition).unfit += 1
        elif selection.takes(record):
            self.given.append(SelectedScore(partition, offset, message.key(), record))
        else:
            self.tally(partition).others += 1


def chunks(batches: Iterable[PartitionBatch], selection: ScoreSelection, as_json: AsJson, most: int) -> Iterator[RescoreChunk]:
    """Yield all records in chunks with up to `most` selected ones."""
    chunk = RescoreChunk()
    for batch in batches:
        for offset, message in zip(batch.offsets, batch.messages, strict=True):
            if len(chunk.given) >= most or chunk.scanned >= SCANNED:
                yield chunk
                chunk = RescoreChunk()
            chunk.add(batch.partition[1], offset, message, selection, as_json)
    if chunk.scanned:
        yield chunk
