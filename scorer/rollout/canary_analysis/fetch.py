"""Take records of several partitions from a consumer as columns: natively if the plugin is available, else from its messages.

Depends on the Kafka client only and does not interpret records. Thin I/O.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import compress, count, pairwise
from operator import ne
from typing import NamedTuple, Protocol, cast

import numpy as np
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from numpy.typing import NDArray

from publisher.kafka.error_codes import END
from publisher.kafka.headers import Headers, headers_of
from publisher.kafka.partitions import Partition
from scorer.native.byte_columns import Column
from scorer.native.fetch import MessageColumns, NativeFetcher
from scorer.native.librdkafka import librdkafka_plugin

Numbers = NDArray[np.int64]


class PartitionBatch(NamedTuple):
    """Records of one partition, in its order: their rows in the taken columns, (n,), and their offsets, (n,)."""

    partition: Partition
    rows: Numbers
    offsets: Numbers


class Failure(NamedTuple):
    """An error in place of a record: its partition, its offset if known, and the Kafka error."""

    partition: Partition
    offset: int | None
    error: KafkaError


@dataclass(frozen=True, slots=True)
class TakenRecords:
    """The records of one call.

    Attributes:
        values: The value of each row.
        keys: The key of each row.
        headers: Returns the headers of the given rows.
        batches: The rows of each partition.
        failures: The errors that were received in place of records.
        ends: For each partition of which the end was reached, the next offset to read.
        size: The size of all values in bytes.
    """

    values: Column
    keys: Column
    headers: Callable[[Numbers], list[Headers]]
    batches: list[PartitionBatch]
    failures: list[Failure]
    ends: Mapping[Partition, int]
    size: int


class RecordSource(Protocol):
    """The records of one consumer.

    `forward` is called before partitions are assigned, and `close` before the consumer is closed. All calls come from one
    thread.
    """

    def forward(self, partitions: list[TopicPartition]) -> None:
        """Prepare for partitions that are about to be assigned."""

    def take(self, most: int, seconds: float) -> TakenRecords:
        """Return at most `most` records that arrive within `seconds`."""

    def close(self) -> None:
        """Release all held records; call it before the consumer is closed."""


def source_of(consumer: Consumer) -> RecordSource:
    """Return the native source if the consumer was created for it, else the one in Python."""
    native, handle = librdkafka_plugin(), getattr(consumer, "handle", 0)
    return ColumnSource(consumer, NativeFetcher(native, handle)) if native and handle else MessageSource(consumer)


class MessageSource:
    """Records as the Python messages of a consumer."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def forward(self, partitions: list[TopicPartition]) -> None:
        """Do nothing: messages need no preparation."""

    def take(self, most: int, seconds: float) -> TakenRecords:
        """Return at most `most` records that arrive within `seconds`."""
        messages = self._consumer.consume(most, seconds)
        bad = [row for row, error in enumerate(map(Message.error, messages)) if error is not None]
        errors = [_failure(messages.pop(row)) for row in reversed(bad)][::-1]
        failures = [failure for failure in errors if failure.error not in END]
        ends = {failure.partition: failure.offset or 0 for failure in errors if failure.error in END}
        values, keys = ([*map(read, messages)] for read in (Message.value, Message.key))
        size = sum(map(len, messages))
        return TakenRecords(values, keys, lambda rows: _headers(messages, rows), _batches(messages), failures, ends, size)

    def close(self) -> None:
        """Do nothing: no record is held."""


def _failure(message: Message) -> Failure:
    partition = message.topic() or "", message.partition() or 0
    return Failure(partition, message.offset(), cast("KafkaError", message.error()))


def _headers(messages: list[Message], rows: Numbers) -> list[Headers]:
    return headers_of(messages[row] for row in rows.tolist())[0]


def _batches(messages: list[Message]) -> list[PartitionBatch]:
    offsets = np.array([*map(Message.offset, messages)], np.int64)
    places = cast("list[Partition]", [*zip(map(Message.topic, messages), map(Message.partition, messages), strict=True)])
    others = compress(count(1), map(ne, places, places[1:]))  # rows of another partition than the row before
    runs: dict[Partition, list[Numbers]] = {}
    for start, end in pairwise([0, *others, len(places)]):
        if start < end:
            runs.setdefault(places[start], []).append(np.arange(start, end))
    joined = ((partition, np.concatenate(each)) for partition, each in runs.items())
    return [PartitionBatch(partition, rows, offsets[rows]) for partition, rows in joined]


class ColumnSource:
    """Records of a consumer as columns, from a native queue of their own."""

    def __init__(self, consumer: Consumer, taker: NativeFetcher) -> None:
        self._consumer = consumer
        self._taker = taker

    def forward(self, partitions: list[TopicPartition]) -> None:
        """Redirect the partitions that are about to be assigned to the native queue."""
        self._taker.forward(partitions)

    def take(self, most: int, seconds: float) -> TakenRecords:
        """Return at most `most` records that arrive within `seconds`."""
        event = self._consumer.poll(0)  # an event of the client and never a record: records have a queue of their own
        failures = [] if event is None or event.error() is None else [_failure(event)]
        self._taker.collect(most, seconds)
        ends, columns = self._taker.ends(), self._taker.columns()
        failures += [_failed(columns, row) for row in np.flatnonzero(columns.codes).tolist()]
        rows = np.flatnonzero(columns.codes == 0)
        lanes, batches = columns.lanes[rows], []
        for lane in np.unique(lanes).tolist():
            members = rows[lanes == lane]
            batches.append(PartitionBatch(columns.places[lane], members, columns.offsets[members]))
        size = int(columns.values.ends[-1]) if len(columns) else 0
        return TakenRecords(columns.values, columns.keys, columns.headers_at, batches, failures, ends, size)

    def close(self) -> None:
        """Release the native queue; call it before the consumer is closed."""
        self._taker.close()


def _failed(columns: MessageColumns, row: int) -> Failure:
    (message,), offset = columns.values.some(np.array([row])), int(columns.offsets[row])
    error = KafkaError(int(columns.codes[row]), (message or b"").decode(errors="replace") or None)
    return Failure(columns.places[columns.lanes[row]], offset if offset >= 0 else None, error)
