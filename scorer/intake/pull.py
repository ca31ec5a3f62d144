"""Pulls the messages of one batch from a consumer: what there is, up to limits in events and in bytes."""

from collections.abc import Callable, Sequence
from operator import itemgetter

from confluent_kafka import Consumer, Message

from publisher.kafka.headers import headers_of
from scorer.events.batch import Batch, End

BATCH_BYTES = 16 * 1_024 * 1_024  # what the events of a batch may hold together; one of any size is always taken


class Pull:
    """`end` is what the last pull stopped at."""

    def __init__(self) -> None:
        self.end: End = "empty"
        self._largest = 0

    def messages(self, consumer: Consumer, wait: float, limit: Callable[[int], int]) -> list[Message]:
        """The first message within `wait` seconds, and what is there behind it. `limit(timestamp_ms)` says, from the first
        event's time, how many events to take. A first message that is an error comes alone."""
        self.end = "empty"
        first = consumer.poll(wait)
        if first is None:
            return []
        messages = [first]
        if first.error() is not None:
            return messages
        most = limit(first.timestamp()[1])
        size = largest = len(first)
        while (more := chunk(most - len(messages), size, max(largest, self._largest))) > 0:
            came = consumer.consume(more, 0)
            messages += came
            sizes = list(map(len, came))
            size, largest = size + sum(sizes), max(largest, *sizes, 0)
            if len(came) < more:
                break
        else:
            self.end = "events" if len(messages) >= most else "bytes"
        self._largest = largest
        return messages


def chunk(events: int, size: int, largest: int) -> int:
    """How many more events to read at once: at most `events`, and in all no more than BATCH_BYTES bytes are expected.

    `size` bytes were read so far, `largest` is the largest event among them. 0 where the batch is full.
    """
    if events <= 0 or size >= BATCH_BYTES:
        return 0
    return max(1, min(events, (BATCH_BYTES - size) // max(1, largest)))


def batch_of(messages: Sequence[Message], end: End) -> Batch:
    """The batch that these messages are, one or more, without epochs: each attribute of all of them at once, in C."""
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
        unread=list(unread),
    )


def _times(messages: Sequence[Message]) -> list[int]:
    """Unix ms, 0 where the broker has none."""
    stamps = list(map(itemgetter(1), map(Message.timestamp, messages)))
    return stamps if min(stamps) >= 0 else [max(stamp, 0) for stamp in stamps]
