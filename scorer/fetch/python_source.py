"""The fetch source in Python, for a build without the native library. It fetches messages with the consumer's own methods."""

import time
from collections.abc import Mapping, Sequence
from itertools import compress, count, pairwise
from operator import itemgetter, ne

import numpy as np
from confluent_kafka import Consumer, Message, TopicPartition
from numpy.typing import NDArray

from publisher.kafka.error_codes import END
from publisher.kafka.headers import headers_of
from publisher.kafka.partitions import Partition
from scorer.decoding.batch import Batch, End
from scorer.fetch.source import SHORTEST_WAIT, FetchedRecords, FetchFailure, PartitionRecords


class PythonFetchSource:
    """The fetch source in Python, for a build without the native library; see `FetchSource`."""

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
        """Do nothing, because this source needs no preparation."""

    def first(self, wait: float) -> int | None:
        self._begin()
        message = self._consumer.poll(wait)
        if message is None:
            return None
        self._add([message])
        return None if message.error() is not None else message.timestamp()[1]

    def more(self, most: int, wait: float) -> int:
        until = time.monotonic() + wait
        received = self._add(self._consumer.consume(most, wait))
        while received < most and (left := until - time.monotonic()) >= SHORTEST_WAIT:  # ends of partitions replaced events
            received += self._add(self._consumer.consume(most - received, left))
        return received

    def _add(self, messages: list[Message]) -> int:
        """Store the events and failures among the messages, and return their number."""
        # The ends of partitions are recorded too.
        ends = [message for message in messages if (error := message.error()) is not None and error in END]
        if ends:
            self._ends |= {_place(message): message.offset() or 0 for message in ends}
            messages = [message for message in messages if (error := message.error()) is None or error not in END]
        self._messages += messages
        sizes = list(map(len, messages))
        self.size += sum(sizes)
        self.largest = max(self.largest, *sizes, 0)
        return len(messages)

    def finish(self) -> "FetchedMessages":
        return FetchedMessages(self._messages, self._ends)

    def skip(self, most: int, wait: float) -> Sequence[FetchFailure]:
        self._begin()
        self._add(self._consumer.consume(most, wait))
        return self.finish().failures

    def close(self) -> None:
        self._begin()


class FetchedMessages:
    """The result of one fetch in Python, as messages; see `FetchedEvents`."""

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

    def columns(self) -> FetchedRecords:
        messages = self._messages
        return FetchedRecords(
            values=list(map(Message.value, messages)),
            keys=list(map(Message.key, messages)),
            headers=lambda rows: headers_of(messages[row] for row in rows.tolist())[0],
            partitions=self._rows_by_partition(),
            size=sum(map(len, messages)),
        )

    def _rows_by_partition(self) -> list[PartitionRecords]:
        offsets = np.array([*map(Message.offset, self._messages)], np.int64)
        changes = compress(count(1), map(ne, self._places, self._places[1:]))  # rows of another partition than the row before
        rows: dict[Partition, list[NDArray[np.int64]]] = {}
        for start, end in pairwise([0, *changes, len(self._places)]):
            if start < end:
                rows.setdefault(self._places[start], []).append(np.arange(start, end))
        joined = ((partition, np.concatenate(ranges)) for partition, ranges in rows.items())
        return [PartitionRecords(partition, numbers, offsets[numbers]) for partition, numbers in joined]


def batch_of(messages: Sequence[Message], end: End) -> Batch:
    """Create a batch from one or more messages; `end` is why the fetch stopped. The caller sets the assignment epochs.

    For speed, each attribute is read from all messages in one loop in C.
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
    """Return the timestamp of each message in Unix ms; 0 for a message without a timestamp."""
    stamps = list(map(itemgetter(1), map(Message.timestamp, messages)))
    return stamps if min(stamps) >= 0 else [max(stamp, 0) for stamp in stamps]
