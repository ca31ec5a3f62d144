"""The protocol of a session, which publishes batches exactly once or at least once, and the type of the published records.

`exactly_once.py` and `at_least_once.py` implement the protocol. The worker's loop depends on nothing else of a session.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Protocol, overload

from confluent_kafka import Producer, TopicPartition

from publisher.kafka.headers import Headers
from publisher.transactions.counters import Counters

Record = tuple[str, bytes | None, bytes | None, int, int, Headers]
"""Topic, value, key, partition, timestamp (Unix ms, or 0 for the current time), headers. A plain tuple, since each event
creates one."""


class PackedRecordBatch(Sequence[Record]):
    """A batch of records that is passed to a producer with one call, instead of one call of `produce` per record."""

    @abstractmethod
    def write(self, producer: Producer, first: int) -> int:
        """Pass the records from index `first` on to a producer that has a librdkafka handle (`HandledProducer`).

        Returns:
            The index of the first record that the producer rejects, or the number of records if it accepts all of them.
        """


class RecordParts(Sequence[Record]):
    """Several batches of records that are published together, in order. A part may be a `PackedRecordBatch`."""

    def __init__(self, parts: Iterable[Sequence[Record]]) -> None:
        self.parts = [part for part in parts if len(part)]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __iter__(self) -> Iterator[Record]:
        return chain.from_iterable(self.parts)

    @overload
    def __getitem__(self, at: int) -> Record: ...
    @overload
    def __getitem__(self, at: slice) -> list[Record]: ...
    def __getitem__(self, at: int | slice) -> Record | list[Record]:
        return list(self)[at]


class Session(Protocol):
    """Publishes batches. A batch has records, and the consumer group's offsets after the events of the batch.

    One thread owns a session. After Aborted only `recover`, `release` and `close` are allowed.
    """

    counters: Counters
    sends_group: bool
    """Whether `publish` uses the consumer group's metadata, which are expensive to request."""

    def open(self) -> None:
        """Wait until the session can publish. Raises Fatal if the broker rejects its producers."""

    def publish(
        self, records: Iterable[Record], offsets: Sequence[TopicPartition], group_metadata: Any, *, overlap: bool = False
    ) -> None:
        """Publish the records of a batch, and the group's positions after the batch.

        Args:
            records: the records, which may be a `PackedRecordBatch` or `RecordParts`.
            offsets: the positions: for each input partition the next offset to read, with metadata.
            group_metadata: the consumer's group metadata, requested after the events were read.
            overlap: whether the call may return before the outcome is known. The next `wait_for_publish` reports the outcome;
                the next `publish` calls `wait_for_publish` first.

        Raises:
            Aborted: if the outcome is a failure or unknown. The batch must be read again after a recovery.
        """

    def wait_for_publish(self) -> None:
        """Wait for the outcome of the last `publish`, if it returned before the outcome was known.

        Raises:
            Aborted: if the outcome is a failure or unknown.
        """

    def tick(self) -> None:
        """Do the work that is due between two batches.

        Raises:
            Aborted: for the same reasons as `publish`, and if no positions could be committed for too long.
        """

    def checkpoint(self) -> None:
        """Wait until all published records are confirmed and their positions are committed. Raises Aborted."""

    def wait_for_commit(self) -> None:
        """Wait until no commit is pending, so that the broker's committed offsets do not move. Never raises.

        `wait_for_publish` reports a failed commit.
        """

    def release(self, partitions: Iterable[TopicPartition], *, lost: bool) -> None:
        """Commit the positions of partitions that move to another member of the group. Never raises.

        If the partitions are `lost`, another member may already own them, and no position is committed.
        """

    def recover(self) -> None:
        """Recover from Aborted. Afterwards the committed offsets show where to continue.

        Raises:
            Fatal: if the session cannot continue.
            Aborted: if the process is asked to stop, or another process may have taken over the transactional ids.
        """

    def close(self) -> None:
        """Discard unconfirmed records and release the producers. Never raises."""
