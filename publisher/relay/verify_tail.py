"""Does a destination still hold the last record that a checkpoint says was copied? Reads partitions backwards.

The answer is no only where that is certain. Copies lie in the order of their source, and retention deletes from the beginning:
where an older copy is the last one there, or nothing was ever deleted and there is none, the end of the log was cut. What
compaction takes cannot be told from that, so compacted topics are not to be asked about.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from publisher.kafka.headers import headers_of_one
from publisher.kafka.partitions import Offsets, Partition
from publisher.kafka.reader import Batch, TopicReader
from publisher.kafka.source_position import offset_of, origin_of

LOOK_BACK = 64  # offsets of a partition, at first: markers of transactions are among them
LARGEST_LOOK = 100_000  # offsets: many writers share the topic, and nothing is certain


class Expected(NamedTuple):
    """`origin` begins the `x-origin` of every copy of the source partition, `copied` is the offset of the last one."""

    origin: bytes
    copied: int


def cut(reader: TopicReader, expected: Mapping[Partition, Expected]) -> dict[Partition, int]:
    """The destination partitions that lack their last copy: the source offset of the last one there, or -1. Raises Fatal."""
    lows, ends, visible = reader.earliest(expected), reader.written(expected), reader.visible(expected)
    undecided = {partition: (visible[partition], end) for partition, end in ends.items() if visible[partition] < end}
    ahead = _last(reader.read(undecided, undecided=True), expected)
    asked = {p: visible[p] for p, wanted in expected.items() if ahead.get(p, -1) < wanted.copied}
    found: Offsets = {}
    back = LOOK_BACK
    while asked:
        spans = {p: (max(lows[p], at - back), at) for p, at in asked.items()}
        last = _last(reader.read(spans), expected)
        found |= last
        found |= {p: -1 for p, (begin, _) in spans.items() if begin == 0 and p not in last}
        asked = {p: begin for p, (begin, _) in spans.items() if p not in last and begin > lows[p]}
        asked = {p: at for p, at in asked.items() if ends[p] - at < LARGEST_LOOK}
        back *= 4
    return {partition: last for partition, last in found.items() if last < expected[partition].copied}


def _last(batches: Iterable[Batch], expected: Mapping[Partition, Expected]) -> Offsets:
    """The source offset of the last copy of each partition."""
    found: Offsets = {}
    for batch in batches:
        begins = expected[batch.partition].origin
        for message in batch.messages:
            origin = origin_of(headers_of_one(message), batch.partition) or b""
            if (offset := offset_of(origin, begins)) >= 0:
                found[batch.partition] = offset
    return found
