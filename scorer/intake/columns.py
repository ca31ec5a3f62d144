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
