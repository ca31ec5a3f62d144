"""Check that destination partitions still contain the last copy that their checkpoints name. Reads partitions backwards.

A loss is reported only if it is certain. Retention deletes the oldest records first. The last copy is therefore lost if only
older copies exist, or if no copy exists and retention has not deleted any record. Compaction may delete any record, so callers
must not pass compacted topics.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from publisher.kafka.headers import headers_of_one
from publisher.kafka.partitions import Offsets, Partition
from publisher.kafka.reader import PartitionBatch, TopicReader
from publisher.kafka.source_position import offset_of, origin_of

FIRST_SPAN = 64  # offsets that are read first, transaction markers included
LARGEST_SPAN = 100_000  # offsets; if so many at the end contain no copy, the search ends without a result


class ExpectedTail(NamedTuple):
    """The last copy of a source partition, according to its checkpoint.

    Attributes:
        origin: the value of the header `x-origin` in copies of this partition, without the offset at its end.
        copied: the source offset of the last copy.
    """

    origin: bytes
    copied: int


def find_lost_tails(reader: TopicReader, expected: Mapping[Partition, ExpectedTail]) -> dict[Partition, int]:
    """Find the destination partitions that no longer contain the last record that was copied to them.

    Args:
        reader: reads the destination.
        expected: the last copy by destination partition.

    Returns:
        For each such partition, the source offset of the last existing copy; -1 if no copy exists.

    Raises:
        Fatal: if a partition cannot be read.
    """
    lows = reader.earliest(expected)
    ends = reader.written(expected)
    visible = reader.visible(expected)
    undecided = {partition: (visible[partition], end) for partition, end in ends.items() if visible[partition] < end}
    undecided_copies = _last_copies(reader.read(undecided, undecided=True), expected)
    unread_ends = {p: visible[p] for p, tail in expected.items() if undecided_copies.get(p, -1) < tail.copied}
    last_copies: Offsets = {}
    span = FIRST_SPAN
    while unread_ends:
        spans = {p: (max(lows[p], end - span), end) for p, end in unread_ends.items()}
        copies = _last_copies(reader.read(spans), expected)
        last_copies |= copies
        last_copies |= {p: -1 for p, (begin, _) in spans.items() if begin == 0 and p not in copies}
        unread_ends = {p: begin for p, (begin, _) in spans.items() if p not in copies and begin > lows[p]}
        unread_ends = {p: end for p, end in unread_ends.items() if ends[p] - end < LARGEST_SPAN}
        span *= 4
    return {partition: offset for partition, offset in last_copies.items() if offset < expected[partition].copied}


def _last_copies(batches: Iterable[PartitionBatch], expected: Mapping[Partition, ExpectedTail]) -> Offsets:
    """Return the source offset of the last copy of each partition in these batches. Partitions without a copy are omitted."""
    last: Offsets = {}
    for batch in batches:
        prefix = expected[batch.partition].origin
        for message in batch.messages:
            origin = origin_of(headers_of_one(message), batch.partition) or b""
            if (offset := offset_of(origin, prefix)) >= 0:
                last[batch.partition] = offset
    return last
