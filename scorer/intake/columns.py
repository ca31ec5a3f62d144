"""Messages as the columns of a batch: each attribute of all of them at once, in C, and none of them twice."""

from collections.abc import Sequence
from operator import itemgetter

from confluent_kafka import Message

from publisher.kafka.headers import headers_of
from scorer.events.batch import Batch, End


def batch_of(messages: Sequence[Message], end: End) -> Batch:
    """The batch that these messages are, one or more; without epochs."""
    headers, unread = headers_of(messages)
    return Batch(
        topics=list(map(Message.topic, messages)),  # type: ignore[arg-type]
        partitions=list(map(Message.partition, messages)),  # type: ignore[arg-type]
        offsets=list(map(Message.offset, messages)),  # type: ignore[arg-type]
        keys=list(map(Message.key, messages)),
        values=list(map(Message.value, messages)),
        timestamps=_times(messages),
        headers=headers,
        end=end,
        unread=unread,
    )


def _times(messages: Sequence[Message]) -> list[int]:
    """Unix ms, 0 where the broker has none."""
    stamps = list(map(itemgetter(1), map(Message.timestamp, messages)))
    return stamps if min(stamps) >= 0 else [max(stamp, 0) for stamp in stamps]


BATCH_BYTES = 16 * 1_024 * 1_024  # what the events of a batch may hold together; one of any size is always taken


def chunk(events: int, size: int, largest: int) -> int:
    """How many more events to read at once: at most `events`, and in all no more than BATCH_BYTES bytes are expected.

    `size` bytes were read so far, `largest` is the largest event among them. 0 where the batch is full.
    """
    if events <= 0 or size >= BATCH_BYTES:
        return 0
    return max(1, min(events, (BATCH_BYTES - size) // max(1, largest)))
