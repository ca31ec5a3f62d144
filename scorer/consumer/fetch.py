"""Fetch the events of one batch from a consumer, within limits on events and bytes."""

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from operator import itemgetter
from typing import Protocol

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from publisher.kafka.error_codes import END
from publisher.kafka.headers import headers_of
from publisher.kafka.partitions import Partition
from scorer.decoding.batch import Batch, End

SHORTEST_WAIT = 0.001  # seconds
BATCH_BYTES = 16 * 1_024 * 1_024  # the most bytes of the events of a batch; one event of any size is always taken

FetchFailure = tuple[Partition, int | None, KafkaError]
"""A failure instead of an event: partition, offset if known, and error."""


class FetchSource(Protocol):
    """The source of the events of one consumer. All calls come from the thread that owns the consumer.

    A fetch starts with `first`, may call `more` several times if `first` returned a timestamp, and ends with `taken`. A call of
    `first` or `skip` discards events that an interrupted fetch left behind.
    """

    @property
    def count(self) -> int:
        """The number of events of the current fetch."""

    @property
    def size(self) -> int:
        """The size of these events in bytes."""

    @property
    def largest(self) -> int:
        """The size of the largest of these events in bytes."""

    def forward(self, partitions: list[TopicPartition]) -> None:
        """Prepare for the assignment of these partitions."""

    def first(self, wait: float) -> int | None:
        """Poll the group, and fetch the first event within `wait` seconds.

        Returns:
            Its timestamp in Unix ms; None if no event arrived, or a failure, or the end of a partition.
        """

    def more(self, most: int, wait: float) -> int:
        """Fetch up to `most` more events that are available or arrive within `wait` seconds; return their number."""

    def taken(self) -> "FetchedEvents":
        """Return the fetched events."""

    def skip(self, most: int, wait: float) -> Sequence[FetchFailure]:
        """Poll the group for up to `wait` seconds and skip up to `most` events; return the failures among them."""

    def close(self) -> None:
        """Release the fetched events, before the consumer is closed."""


class FetchedEvents(Protocol):
    """The result of one fetch."""

    @property
    def failures(self) -> Sequence[FetchFailure]:
        """The failures that the client returned instead of events."""

    @property
    def ends(self) -> Mapping[Partition, int]:
        """The partitions whose end was reached, each with the next offset to read.

        All events before that offset have been fetched. It lies behind transaction markers and aborted records, which are
        offsets without an event.
        """

    @property
    def partitions(self) -> set[Partition]:
        """The partitions of the fetched events."""

    def batch(self, without: set[Partition], end: End) -> Batch | None:
        """Return the events except those of the partitions in `without`; None if no event is left."""


class BatchFetcher:
    """Fetches batches. `end` is the reason why the last fetch stopped."""

    def __init__(self) -> None:
        self.end: End = "empty"
        self._largest = 0

    def take(self, source: FetchSource, wait: float, limit: Callable[[int], int], until: float) -> FetchedEvents:
        """Fetch the available events. A failure that arrives first is returned alone.

        Args:
            source: the source of the events.
            wait: how long to wait for the first event, in seconds.
            limit: returns the maximum number of events, given the timestamp of the first one in Unix ms.
            until: how long to wait for more events, in monotonic seconds.
        """
        self.end = "empty"
        first = source.first(wait)
        if first is None:
            return source.taken()
        most = limit(first)
        while (more := chunk(most - source.count, source.size, max(source.largest, self._largest))) > 0:
            if source.more(more, max(0.0, until - time.monotonic())) < more:
                break
        else:
            self.end = "events" if source.count >= most else "bytes"
        self._largest = source.largest
        return source.taken()


def chunk(events: int, size: int, largest: int) -> int:
    """Return how many more events to read at once: at most `events`, with at most BATCH_BYTES expected in total.

    `size` bytes were read so far, `largest` is the largest event among them. 0 if the batch is full.
    """
    if events <= 0 or size >= BATCH_BYTES:
        return 0
    return max(1, min(events, (BATCH_BYTES - size) // max(1, largest)))


class PythonFetchSource:
    """The source in Python, for a build without the native part; see `FetchSource`."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._begin()

    def _begin(self) -> None:
        self._messages: list[Message] = []
        self._ends: dict[Partition, int] = {}
        self.size = 0
        self.largest = 0

    @property
    def count(self) -> int:
        return len(self._messages)

    def forward(self, partitions: list[TopicPartition]) -> None:
        """Do nothing: this source needs no preparation."""

    def first(self, wait: float) -> int | None:
        self._begin()
        message = self._consumer.poll(wait)
        if message is None:
            return None
        self._add([message])
        return None if message.error() is not None else message.timestamp()[1]

    def more(self, most: int, wait: float) -> int:
        until = time.monotonic() + wait
        count = self._add(self._consumer.consume(most, wait))
        while count < most and (left := until - time.monotonic()) >= SHORTEST_WAIT:  # ends of partitions replaced events
            count += self._add(self._consumer.consume(most - count, left))
        return count

    def _add(self, messages: list[Message]) -> int:
        """Store the messages and return their number; ends of partitions are only recorded."""
        ends = [message for message in messages if (error := message.error()) is not None and error in END]
        if ends:
            self._ends |= {_place(message): message.offset() or 0 for message in ends}
            messages = [message for message in messages if (error := message.error()) is None or error not in END]
        self._messages += messages
        sizes = list(map(len, messages))
        self.size += sum(sizes)
        self.largest = max(self.largest, *sizes, 0)
        return len(messages)

    def taken(self) -> "FetchedMessages":
        return FetchedMessages(self._messages, self._ends)

    def skip(self, most: int, wait: float) -> Sequence[FetchFailure]:
        self._begin()
        self._add(self._consumer.consume(most, wait))
        return self.taken().failures

    def close(self) -> None:
        self._begin()


class FetchedMessages:
    """The messages of one fetch; see `FetchedEvents`."""

    def __init__(self, messages: Sequence[Message], ends: Mapping[Partition, int]) -> None:
        self.ends = ends
        errors = list(map(Message.error, messages))
        self.failures: Sequence[FetchFailure] = ()
        if any(errors):
            failed = zip(compress(messages, errors), filter(None, errors), strict=True)
            self.failures = [(_place(message), message.offset(), error) for message, error in failed]
            messages = [message for message, error in zip(messages, errors, strict=True) if error is None]
        self._messages = messages
        self._places = list(map(_place, messages))
        self.partitions = set(self._places)

    def batch(self, without: set[Partition], end: End) -> Batch | None:
        messages = self._messages
        if without:
            messages = [m for m, place in zip(messages, self._places, strict=True) if place not in without]
        return batch_of(messages, end) if messages else None


def batch_of(messages: Sequence[Message], end: End) -> Batch:
    """Return these messages, one or more, as a batch without epochs.

    Each attribute is read for all messages in one loop in C.
    """
    headers, unread = headers_of(messages)
    batch = Batch(
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
    batch.leader_epochs = {place: messages[at].leader_epoch() for place, at in batch.last.items()}
    return batch


def _place(message: Message) -> Partition:
    return message.topic(), message.partition()  # type: ignore[return-value]


def _times(messages: Sequence[Message]) -> list[int]:
    """Return Unix ms, 0 without a timestamp."""
    stamps = list(map(itemgetter(1), map(Message.timestamp, messages)))
    return stamps if min(stamps) >= 0 else [max(stamp, 0) for stamp in stamps]
