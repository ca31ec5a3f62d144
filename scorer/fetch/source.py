"""The contract of fetch sources: how records are taken from a consumer, and what one fetch returns."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from confluent_kafka import KafkaError, TopicPartition
from numpy.typing import NDArray

from publisher.kafka.partitions import Partition
from scorer.decoding.batch import Batch, End, Headers
from scorer.native.byte_columns import Column

SHORTEST_WAIT = 0.001  # seconds
FetchFailure = tuple[Partition, int | None, KafkaError]
"""A failure instead of an event: partition, offset if known, and error."""


class PartitionRecords(NamedTuple):
    """The records of one partition in a fetch: their rows, (n,), and their offsets, (n,), both ascending."""

    partition: Partition
    rows: NDArray[np.int64]
    offsets: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FetchedRecords:
    """The records of one fetch as columns.

    Attributes:
        values: the value of each row; rows that are in no partition are failures.
        keys: the key of each row.
        headers: returns the headers of the given rows, (n,).
        partitions: the rows by partition.
        size: the size of all values in bytes.
    """

    values: Column
    keys: Column
    headers: Callable[[NDArray[np.int64]], list[Headers]]
    partitions: Sequence[PartitionRecords]
    size: int


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

    def columns(self) -> FetchedRecords:
        """Return all events as columns."""
