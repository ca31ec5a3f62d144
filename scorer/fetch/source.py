"""The contract of fetch sources: how records are fetched from a consumer, and the result of one fetch."""

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
"""A failure that the client returned instead of an event: partition, offset (None if unknown), and error."""


class PartitionRecords(NamedTuple):
    """The records of one partition in a fetch.

    Attributes:
        partition: the topic and the partition.
        rows: (n,) the indices of the records in the columns of the fetch, ascending.
        offsets: (n,) the offsets of the records, ascending.
    """

    partition: Partition
    rows: NDArray[np.int64]
    offsets: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FetchedRecords:
    """The records of one fetch as columns.

    Attributes:
        values: the value of each row. A row is a record if an entry of `partitions` contains it, and otherwise an error.
        keys: the key of each row.
        headers: a function that takes the rows of n records, (n,), and returns the headers of each record.
        partitions: for each partition, the rows and offsets of its records.
        size: the size of all values in bytes.
    """

    values: Column
    keys: Column
    headers: Callable[[NDArray[np.int64]], list[Headers]]
    partitions: Sequence[PartitionRecords]
    size: int


class FetchSource(Protocol):
    """The source from which the events of one consumer are fetched. All calls come from the thread that owns the consumer.

    A fetch consists of one call of `first`, any number of calls of `more` if `first` returned a timestamp, and one call of
    `finish`. The events of a fetch without `finish` are discarded by the next `first` or `skip`.
    """

    @property
    def count(self) -> int:
        """The number of events of the current fetch."""

    @property
    def size(self) -> int:
        """The total size of the events of the current fetch in bytes."""

    @property
    def largest(self) -> int:
        """The size of the largest event of the current fetch in bytes."""

    def forward(self, partitions: list[TopicPartition]) -> None:
        """Prepare for the assignment of these partitions. Call this method before the partitions are assigned."""

    def first(self, wait: float) -> int | None:
        """Start a fetch: poll the group, and fetch the first event within `wait` seconds.

        Returns:
            The timestamp of the event in Unix ms. None if no event arrived, or if a failure or the end of a partition arrived
                first.
        """

    def more(self, most: int, wait: float) -> int:
        """Fetch up to `most` further events, waiting for at most `wait` seconds. Return their number."""

    def finish(self) -> "FetchedEvents":
        """End the fetch, and return its events."""

    def skip(self, most: int, wait: float) -> Sequence[FetchFailure]:
        """Poll the consumer for up to `wait` seconds and discard up to `most` events. Return the failures that arrive."""

    def close(self) -> None:
        """Release the fetched events. Call this method before the consumer is closed."""


class FetchedEvents(Protocol):
    """The result of one fetch: the events, the errors of the Kafka client, and the partitions that were read to their end."""

    @property
    def failures(self) -> Sequence[FetchFailure]:
        """The failures that the client returned instead of events."""

    @property
    def ends(self) -> Mapping[Partition, int]:
        """The partitions whose end was reached, each with the next offset to read.

        All events before this offset have been fetched.
        """
        # The offset is after transaction markers and aborted records, which have offsets but are no events.

    @property
    def partitions(self) -> set[Partition]:
        """The partitions of the fetched events."""

    def batch(self, without: set[Partition], end: End) -> Batch | None:
        """Return the events as a batch, without the partitions in `without`; None if no event remains.

        `end` is the reason why the fetch has stopped; it is stored in the batch.
        """

    def columns(self) -> FetchedRecords:
        """Return all events as columns."""
