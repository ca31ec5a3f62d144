"""Records of several partitions as columns, taken from a consumer: natively where that is built, else as its messages. Thin
I/O."""

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


class Batch(NamedTuple):
    """Records of one partition, in its order: their rows in what was taken, (n,), and their offsets, (n,)."""

    partition: Partition
    rows: Numbers
    offsets: Numbers


class Failure(NamedTuple):
    """What came in place of a record: of which partition, at which offset if that is known, and why."""

    partition: Partition
    offset: int | None
    error: KafkaError


@dataclass(frozen=True, slots=True)
class Taken:
    """`values` and `keys` have an entry a row, `headers` gives those of some rows, `size` is how many bytes the values have.
    `ends` are the partitions whose end was reached, each with the next offset to read."""

    values: Column
    keys: Column
    headers: Callable[[Numbers], list[Headers]]
    batches: list[Batch]
    failures: list[Failure]
    ends: Mapping[Partition, int]
    size: int


class Source(Protocol):
    """Where the records of one consumer come from."""

    def forward(self, partitions: list[TopicPartition]) -> None:
        """These are about to be assigned."""

    def take(self, most: int, seconds: float) -> Taken:
        """Up to so many records that come within so many seconds."""

    def close(self) -> None:
        """Let go of what is held, before the consumer is closed."""


def source_of(consumer: Consumer) -> Source:
    """The native one where this consumer was made for it, else that in Python."""
    native, handle = librdkafka_plugin(), getattr(consumer, "handle", 0)
    return Queued(consumer, NativeFetcher(native, handle)) if native and handle else Polled(consumer)


class Polled:
    """Messages of a consumer as they are."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def forward(self, partitions: list[TopicPartition]) -> None:
        """Nothing has to be said."""

    def take(self, most: int, seconds: float) -> Taken:
        messages = self._consumer.consume(most, seconds)
        bad = [row for row, error in enumerate(map(Message.error, messages)) if error is not None]
        told = [_failure(messages.pop(row)) for row in reversed(bad)][::-1]
        failures = [failure for failure in told if failure.error not in END]
        ends = {failure.partition: failure.offset or 0 for failure in told if failure.error in END}
        values, keys = ([*map(read, messages)] for read in (Message.value, Message.key))
        size = sum(map(len, messages))
        return Taken(values, keys, lambda rows: _headers(messages, rows), _batches(messages), failures, ends, size)

    def close(self) -> None:
        """Nothing is held."""


def _failure(message: Message) -> Failure:
    partition = message.topic() or "", message.partition() or 0
    return Failure(partition, message.offset(), cast("KafkaError", message.error()))


def _headers(messages: list[Message], rows: Numbers) -> list[Headers]:
    return headers_of(messages[row] for row in rows.tolist())[0]


def _batches(messages: list[Message]) -> list[Batch]:
    offsets = np.array([*map(Message.offset, messages)], np.int64)
    places = cast("list[Partition]", [*zip(map(Message.topic, messages), map(Message.partition, messages), strict=True)])
    others = compress(count(1), map(ne, places, places[1:]))  # rows of another partition than the row before
    runs: dict[Partition, list[Numbers]] = {}
    for start, end in pairwise([0, *others, len(places)]):
        if start < end:
            runs.setdefault(places[start], []).append(np.arange(start, end))
    found = ((partition, np.concatenate(each)) for partition, each in runs.items())
    return [Batch(partition, rows, offsets[rows]) for partition, rows in found]


class Queued:
    """Messages of a consumer as columns, from a queue of their own."""

    def __init__(self, consumer: Consumer, taker: NativeFetcher) -> None:
        self._consumer, self._taker = consumer, taker

    def forward(self, partitions: list[TopicPartition]) -> None:
        self._taker.forward(partitions)

    def take(self, most: int, seconds: float) -> Taken:
        told = self._consumer.poll(0)  # of the client, and of no record: those have a queue of their own
        failures = [] if told is None or told.error() is None else [_failure(told)]
        self._taker.collect(most, seconds)
        ends, columns = self._taker.ends(), self._taker.columns()
        failures += [_failed(columns, row) for row in np.flatnonzero(columns.codes).tolist()]
        rows = np.flatnonzero(columns.codes == 0)
        lanes, batches = columns.lanes[rows], []
        for lane in np.unique(lanes).tolist():
            mine = rows[lanes == lane]
            batches.append(Batch(columns.places[lane], mine, columns.offsets[mine]))
        size = int(columns.values.ends[-1]) if len(columns) else 0
        return Taken(columns.values, columns.keys, columns.headers_at, batches, failures, ends, size)

    def close(self) -> None:
        self._taker.close()


def _failed(columns: MessageColumns, row: int) -> Failure:
    (said,), offset = columns.values.some(np.array([row])), int(columns.offsets[row])
    error = KafkaError(int(columns.codes[row]), (said or b"").decode(errors="replace") or None)
    return Failure(columns.places[columns.lanes[row]], offset if offset >= 0 else None, error)
