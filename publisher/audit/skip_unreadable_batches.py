"""Read topics and skip unreadable compressed batches, so that no batch stops an audit or crashes its process.

A batch that is known as unreadable, from a dead letter or from a relay's refusal topic, is not fetched at all.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

from publisher.audit.report import Progress
from publisher.kafka.partitions import Partition, Spans
from publisher.kafka.reader import PartitionBatch, Range, TopicReader, Unread

Ranges = Mapping[Partition, Sequence[Range]]


def within(span: Range, ranges: Iterable[Range]) -> list[Range]:
    """Return the parts of `span` that are in at least one of the ranges, ascending and without overlap."""
    parts: list[Range] = []
    for start, stop in sorted((max(start, span[0]), min(stop, span[1])) for start, stop in ranges):
        if start >= stop:
            continue
        if parts and start <= parts[-1][1]:
            parts[-1] = parts[-1][0], max(stop, parts[-1][1])
        else:
            parts.append((start, stop))
    return parts


def outside(span: Range, ranges: Iterable[Range]) -> list[Range]:
    """Return the parts of `span` that are in none of the ranges, ascending."""
    inner = within(span, ranges)
    starts = [span[0], *(stop for _, stop in inner)]
    stops = [*(start for start, _ in inner), span[1]]
    return [(start, stop) for start, stop in zip(starts, stops, strict=True) if start < stop]


def read(topics: TopicReader, subject: str, spans: Spans, progress: Progress) -> Iterator[PartitionBatch]:
    """Yield the records in these offset ranges, and report the progress. A batch that cannot be read is logged and skipped."""
    return read_past(topics, subject, spans, progress, {}, None)


def read_past(
    topics: TopicReader, subject: str, spans: Spans, progress: Progress, skipped: Ranges, unread: Unread | None
) -> Iterator[PartitionBatch]:
    """Yield the records in these offset ranges, in offset order for each partition. Batches that cannot be read are skipped.

    Args:
        topics: reads the cluster.
        subject: a name for the data that is read, passed to `progress`.
        spans: the offset ranges to read.
        progress: called after each batch.
        skipped: the ranges that are not fetched.
        unread: called with each range that cannot be read; None to log it.
    """
    done = 0
    total = sum(stop - start for start, stop in spans.values())
    remaining = {partition: deque(outside(span, skipped.get(partition, ()))) for partition, span in spans.items()}
    while parts := {partition: ranges.popleft() for partition, ranges in remaining.items() if ranges}:
        for batch in topics.read(parts, unread=unread):
            yield batch
            done += len(batch.offsets)
            progress(subject, done, total)
