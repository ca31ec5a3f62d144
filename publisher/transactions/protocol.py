"""What every way of delivery offers to the loop that publishes through it: one protocol, the record, the counters.

`exactly_once.py` and `at_least_once.py` keep it. Who drives a session knows no more than this.
"""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from confluent_kafka import Producer, TopicPartition

from publisher.kafka.headers import Headers

Record = tuple[str, bytes | None, bytes | None, int, int, Headers]
"""(topic, value, key, partition, timestamp in Unix ms or 0 for now, headers): a plain tuple, it is made once an event."""


class PackedRecordBatch(Sequence[Record]):
    """Records that one call hands to a producer."""

    @abstractmethod
    def write(self, producer: Producer, first: int) -> int:
        """Hand the records from `first` on to a producer that has its handle. The number of the first that it does not take:
        their count, where it takes all."""


@dataclass(slots=True)
class Counters:
    """What a session did so far; plain numbers that the metrics read. `commit_seconds` is the time that the owner thread has
    waited for commits. `last_commit_seconds` is what the commit of the last batch took, 0 where batches have none of their own;
    `last_ending_seconds` the part of it after the records had arrived. `open_since` (monotonic seconds) is when the undecided
    transaction began, or the wait for those of others."""

    commits: int = 0
    aborts: int = 0
    fenced: int = 0
    rotations: int = 0
    commit_seconds: float = 0.0
    last_commit_seconds: float = 0.0
    last_ending_seconds: float = 0.0
    open_since: float | None = None

    def committed(self, waited: float, took: float = 0.0, ending: float = 0.0) -> None:
        """The broker has confirmed a commit; all in seconds, see the class."""
        self.commits += 1
        self.commit_seconds += waited
        self.last_commit_seconds, self.last_ending_seconds = took, ending


class Session(Protocol):
    """Publishes batches. One thread owns it. After Aborted only `recover`, `release` and `close` are allowed."""

    counters: Counters
    sends_group: bool
    """Whether `publish` has a use for the group's metadata: they are dear to ask for."""

    def open(self) -> None:
        """Wait until the session can publish. Raises Fatal where the broker does not let it."""

    def publish(
        self, records: Iterable[Record], offsets: Sequence[TopicPartition], group_metadata: Any, *, overlap: bool = False
    ) -> None:
        """Write the records of a batch, which may be a `PackedRecordBatch`. `offsets` (next offset to read, with metadata) are
        the group's positions after it.

        Raises Aborted, or Fenced, where nobody knows whether that succeeded: then the batch is done again. With `overlap` it
        may return before that is known; the next `settle` tells, which the next `publish` begins with.
        """

    def settle(self) -> None:
        """Wait for the outcome of a publish that has returned before it. Raises Aborted, or Fenced, as that one would have."""

    def tick(self) -> None:
        """Work that is due between two batches. Raises Aborted as `publish` does, and for positions that are not committed."""

    def checkpoint(self) -> None:
        """Return once everything published is confirmed and its positions are committed. Raises Aborted."""

    def decide(self) -> None:
        """Wait until the broker's committed offsets hold still; `settle` tells of a failure. Never raises."""

    def release(self, partitions: Iterable[TopicPartition], *, lost: bool) -> None:
        """These partitions go to another owner: commit their positions, unless they are `lost` already. Never raises."""

    def recover(self) -> None:
        """After Aborted: from here on the committed offsets tell where to go on. Raises Fatal where there is no going on, and
        Aborted where the owner does not want to wait for it any longer."""

    def close(self) -> None:
        """Give up what is not confirmed. Never raises."""
