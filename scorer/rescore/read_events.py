"""Read events at given offsets of the input topics, without membership in a consumer group."""

from collections.abc import Collection, Iterator, Mapping

from confluent_kafka import Message

from publisher.kafka.partitions import Partition
from publisher.kafka.reader import TopicReader

GAP = 20_000  # offsets between two wanted events that are read rather than skipped: skipping costs a new consumer


def spans(wanted: Collection[int]) -> list[tuple[int, int]]:
    """Return the offset ranges [from, to) of a partition that must be read to get the wanted offsets. Pure."""
    ranges: list[tuple[int, int]] = []
    for offset in sorted(wanted):
        if ranges and offset - ranges[-1][1] < GAP:
            ranges[-1] = ranges[-1][0], offset + 1
        else:
            ranges.append((offset, offset + 1))
    return ranges


def at(reader: TopicReader, wanted: Mapping[Partition, Collection[int]], most: int) -> Iterator[list[Message]]:
    """Yield the events at the offsets `wanted`, in lists of at most `most` events. Each list is from one partition.

    Events that no longer exist are left out.

    Raises:
        Fatal: If a topic cannot be read.
    """
    if not wanted:
        return
    lows = reader.earliest(wanted)
    ends = reader.visible(wanted)
    retained = {place: {o for o in offsets if lows[place] <= o < ends[place]} for place, offsets in wanted.items()}
    stretches = {place: spans(offsets) for place, offsets in retained.items() if offsets}
    while stretches:
        for batch in reader.read({place: left.pop(0) for place, left in stretches.items()}):
            offsets = retained[batch.partition]
            events = [message for offset, message in zip(batch.offsets, batch.messages, strict=True) if offset in offsets]
            yield from (events[start : start + most] for start in range(0, len(events), most))
        stretches = {place: left for place, left in stretches.items() if left}
