"""Check that destination partitions still contain the last copy that their checkpoints name. Reads partitions backwards.

A partition is reported only if the loss is certain. Copies have the order of their source, and retention deletes the oldest
records. So the end of the log was lost if its last copy is an older one, or if no copy exists although nothing was deleted.
Compaction may delete any record: compacted topics must not be passed.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from publisher.kafka.headers import headers_of_one
from publisher.kafka.partitions import Offsets, Partition
from publisher.kafka.reader import PartitionBatch, TopicReader
from publisher.kafka.source_position import offset_of, origin_of

FIRST_SPAN = 64  # offsets of a partition; transaction markers are among them
LARGEST_SPAN = 100_000  # offsets: behind more records of other writers nothing is certain


class ExpectedTail(NamedTuple):
    """The last copy of a source partition: the prefix of its `x-origin`, and its source offset `copied`."""

    origin: bytes
    copied: int


def find_lost_tails(reader: TopicReader, expected: Mapping[Partition, ExpectedTail]) -> dict[Partition, int]:
    """Return the destination partitions without their last copy, with the source offset of the last existing copy.

    The offset is -1 if no copy exists.

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
    """Return the source offset of the last copy in each partition."""
    last: Offsets = {}
    for batch in batches:
        prefix = expected[batch.partition].origin
        for message in batch.messages:
            origin = origin_of(headers_of_one(message), batch.partition) or b""
            if (offset := offset_of(origin, prefix)) >= 0:
                last[batch.partition] = offset
    return last
