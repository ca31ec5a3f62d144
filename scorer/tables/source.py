"""The protocol through which the reader gets the records of tables from Kafka."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from publisher.kafka.partitions import Partition
from publisher.kafka.topics import Topic
from scorer.tables.row_store import TableRecords


@dataclass(frozen=True, slots=True)
class FetchedTableRecords:
    """The result of one `TableSource.read`.

    Attributes:
        records: the records of each topic. Records may lack a key.
        reached: the next offset to read in each partition that was read. All records before this offset are in this result or
            in an earlier one. Transaction markers may be directly before this offset.
        lost: the partitions whose read position does not exist in the log. They are no longer read.
    """

    records: Sequence[tuple[str, TableRecords]]
    reached: Mapping[Partition, int]
    lost: frozenset[Partition]


@dataclass(frozen=True, slots=True)
class PartitionEnds:
    """The ends of partitions (last stable offsets). Partitions whose end is unknown are omitted.

    `asked_at` is when the brokers were asked, in monotonic seconds.
    """

    asked_at: float
    ends: Mapping[Partition, int]


class TableSource(Protocol):
    """The source of the records of all tables. All calls come from one thread, the reader."""

    def start(self, partitions: Iterable[Partition]) -> None:
        """Read these partitions from their beginning on."""

    def stop(self, partitions: Iterable[Partition]) -> None:
        """Stop reading these partitions. Later reads return none of their records."""

    def renew(self) -> None:
        """Replace the connection to the brokers, because a topic was recreated. Reads continue at the current positions."""

    def read(self, seconds: float) -> FetchedTableRecords:
        """Wait up to `seconds` for records, and return as soon as some have arrived.

        Raises:
            Fatal: the broker rejects the client, or a right is missing.
        """

    def ask_ends(self, partitions: Iterable[Partition], now: float) -> None:
        """Ask the brokers for the ends of partitions, without waiting. Only one request may be pending."""

    def answered_ends(self) -> PartitionEnds | None:
        """Return the answer to the last request; None while it is pending. After an answer, no request is pending."""

    def ask_topics(self, names: Iterable[str]) -> None:
        """Ask the brokers for the ids and the partitions of topics, without waiting. Only one request may be pending."""

    def answered_topics(self) -> Mapping[str, Topic | None] | None:
        """Return the answer to the last request; None while it is pending. A topic that does not exist is None.

        A topic is omitted if no broker answers.
        """

    def close(self) -> None:
        """Close the connections."""
