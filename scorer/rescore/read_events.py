"""Read events at given positions of the input topics, outside any group."""

from collections.abc import Collection, Iterator, Mapping

from confluent_kafka import Message

from publisher.kafka.partitions import Partition
from publisher.kafka.reader import TopicReader

GAP = 20_000  # offsets between two wanted events that are rather read than jumped over: a jump costs a new consumer


def spans(wanted: Collection[int]) -> list[tuple[int, int]]:
    """Return the ranges [from, to) of a partition to read for these offsets. Pure."""
    found: list[tuple[int, int]] = []
    for offset in sorted(wanted):
        if found and offset - found[-1][1] < GAP:
            found[-1] = found[-1][0], offset + 1
        else:
            found.append((offset, offset + 1))
    return found


def at(reader: TopicReader, wanted: Mapping[Partition, Collection[int]], most: int) -> Iterator[list[Message]]:
    """Yield the events at these offsets that still exist, up to `most` of one partition at once, in order. Raises Fatal."""
    if not wanted:
        return
    kept, ends = reader.earliest(wanted), reader.visible(wanted)
    there = {place: {o for o in offsets if kept[place] <= o < ends[place]} for place, offsets in wanted.items()}
    stretches = {place: spans(offsets) for place, offsets in there.items() if offsets}
    while stretches:
        for batch in reader.read({place: left.pop(0) for place, left in stretches.items()}):
            mine = there[batch.partition]
            found = [message for offset, message in zip(batch.offsets, batch.messages, strict=True) if offset in mine]
            yield from (found[start : start + most] for start in range(0, len(found), most))
        stretches = {place: left for place, left in stretches.items() if left}
