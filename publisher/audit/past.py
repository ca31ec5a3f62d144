"""Reads topics past compressed batches that cannot be read, so that no batch stops or ends an audit.

A batch that a dead letter or a refusal names is not fetched. Another one that the client cannot decompress is read through the
sandbox (`publisher/kafka/sandboxed.py`), and passed if it does not fit there either.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from publisher.audit.report import Progress
from publisher.errors import Fatal
from publisher.kafka.partitions import Partition, Spans
from publisher.kafka.reader import STALL_SECONDS, Batch, TopicReader, UnreadablePartition
from publisher.kafka.sandboxed import messages_of

EXPANDED_BYTES = 256 << 20  # that one batch may take in the sandbox: the default of the scorer and the relay
POLL_SECONDS = 1.0

Range = tuple[int, int]
"""Offsets from (inclusive), to (exclusive)."""
Ranges = Mapping[Partition, Sequence[Range]]
Found = Callable[[Partition, Range], None]
"""Called with the offsets of a batch that cannot be read."""


def within(span: Range, ranges: Iterable[Range]) -> list[Range]:
    """Return the parts of `span` that lie in the ranges, ascending and without overlap."""
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
    """Return the parts of `span` that lie in none of the ranges, ascending."""
    inner = within(span, ranges)
    starts = [span[0], *(stop for _, stop in inner)]
    stops = [*(start for start, _ in inner), span[1]]
    return [(start, stop) for start, stop in zip(starts, stops, strict=True) if start < stop]


def read(topics: TopicReader, what: str, spans: Spans, progress: Progress) -> Iterator[Batch]:
    """Yield the records of these spans; `progress` is called with how far that is. A batch that cannot be read is passed."""
    return read_past(topics, what, spans, progress, {}, lambda *_: None)


def read_past(
    topics: TopicReader, what: str, spans: Spans, progress: Progress, skipped: Ranges, found: Found
) -> Iterator[Batch]:
    """Yield the records of these spans that lie in no range of `skipped`, each partition in its order. See the module."""
    done, total = 0, sum(stop - start for start, stop in spans.values())
    left = {partition: deque(outside(span, skipped.get(partition, ()))) for partition, span in spans.items()}
    while next_parts := {partition: parts[0] for partition, parts in left.items() if parts}:
        try:
            for batch in topics.read(next_parts):
                left[batch.partition][0] = batch.offsets[-1] + 1, next_parts[batch.partition][1]
                yield batch
                done += len(batch.offsets)
                progress(what, done, total)
        except UnreadablePartition as error:
            parts = left[error.partition]
            start, stop = parts[0]
            for records, following in _sandboxed(topics, error, (start, stop), found):
                parts[0] = following, stop
                yield from records
            if parts[0][0] == start:
                raise
        else:
            for partition in next_parts:
                left[partition].popleft()


def _sandboxed(topics: TopicReader, error: UnreadablePartition, span: Range, found: Found) -> Iterator[tuple[list[Batch], int]]:
    """Read on in the sandbox while it suspects the partition: records, if any, and the offset that follows."""
    partition, (at, stop) = error.partition, span
    sandbox = topics.sandbox(EXPANDED_BYTES)
    sandbox.add(partition, at)
    deadline = time.monotonic() + STALL_SECONDS
    try:
        while at < stop and partition in sandbox:
            taken = sandbox.take(POLL_SECONDS)
            if taken is None:
                if time.monotonic() > deadline:
                    raise Fatal(f"{partition[0]}[{partition[1]}] gave no record in the sandbox for {STALL_SECONDS:.0f} s")
                continue
            deadline = time.monotonic() + STALL_SECONDS
            if taken.unreadable is not None:
                at = taken.unreadable.last + 1
                found(partition, (taken.unreadable.first, min(at, stop)))
                yield [], at
            elif rows := [row for row in taken.rows if row.offset < stop]:
                at = taken.rows[-1].offset + 1
                yield [Batch(partition, [row.offset for row in rows], messages_of(partition, rows))], at
            elif taken.rows:
                at = stop
                yield [], at
    finally:
        sandbox.close()
