"""The contract of a session, whichever delivery it guarantees: the protocol, the record and the counters.

`exactly_once.py` and `at_least_once.py` implement it. The worker's loop depends on nothing else of a session.
"""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from confluent_kafka import Producer, TopicPartition

from publisher.kafka.headers import Headers

Record = tuple[str, bytes | None, bytes | None, int, int, Headers]
"""Topic, value, key, partition, timestamp (Unix ms, or 0 for the current time), headers. A plain tuple, since each event
creates one."""


class PackedRecordBatch(Sequence[Record]):
    """Records that one call passes to a producer."""

    @abstractmethod
    def write(self, producer: Producer, first: int) -> int:
        """Pass the records from `first` on to a producer that has its handle.

        Returns:
            The index of the first record that the producer rejects, or the number of records if it takes all.
        """


@dataclass(slots=True)
class Counters:
    """The totals of a session, as plain numbers that the metrics read from other threads.

    Attributes:
        commits: confirmed commits.
        aborts: failed transactions.
        fenced: failures because another producer took an id.
        rotations: producers replaced after a slow commit.
        commit_seconds: total time that the owner thread has waited for commits.
        last_commit_seconds: duration of the last batch's commit; 0 if batches have no commit of their own.
        last_ending_seconds: the part of it after the records had arrived.
        open_since: when the undecided transaction began, or the wait for those of others (monotonic seconds).
    """

    commits: int = 0
    aborts: int = 0
    fenced: int = 0
    rotations: int = 0
    commit_seconds: float = 0.0
    last_commit_seconds: float = 0.0
    last_ending_seconds: float = 0.0
    open_since: float | None = None

    def committed(self, waited: float, commit_seconds: float = 0.0, ending: float = 0.0) -> None:
        """Count a confirmed commit; all arguments are in seconds (see the class)."""
        self.commits += 1
        self.commit_seconds += waited
        self.last_commit_seconds = commit_seconds
        self.last_ending_seconds = ending


class Session(Protocol):
    """Publishes batches. One thread owns it. After Aborted only `recover`, `release` and `close` are allowed."""

    counters: Counters
    sends_group: bool
    """Whether `publish` uses the group's metadata, which are expensive to request."""

    def open(self) -> None:
        """Wait until the session can publish. Raises Fatal if the broker does not let it."""

    def publish(
        self, records: Iterable[Record], offsets: Sequence[TopicPartition], group_metadata: Any, *, overlap: bool = False
    ) -> None:
        """Publish the records of a batch and the group's positions after it.

        Args:
            records: the records, which may be a `PackedRecordBatch`.
            offsets: the positions: the next offset to read, with metadata.
            group_metadata: the consumer's group metadata, requested after the events were read.
            overlap: whether the call may return before the outcome is known. The next `wait_for_publish` reports it; the next
                `publish` begins with one.

        Raises:
            Aborted: if the outcome is a failure or unknown. The batch must be read again after a recovery.
        """

    def wait_for_publish(self) -> None:
        """Wait for the outcome of a publish that returned before it. Raises Aborted, as that publish would have."""

    def tick(self) -> None:
        """Do the work that is due between two batches. Raises Aborted as `publish` does, and if positions stay uncommitted."""

    def checkpoint(self) -> None:
        """Return once everything published is confirmed and its positions are committed. Raises Aborted."""

    def wait_for_commit(self) -> None:
        """Wait until no commit is pending, so that the broker's committed offsets do not move. Never raises.

        `wait_for_publish` reports a failure.
        """

    def release(self, partitions: Iterable[TopicPartition], *, lost: bool) -> None:
        """Commit the positions of partitions that go to another owner, unless they are `lost` already. Never raises."""

    def recover(self) -> None:
        """Return to a state in which the committed offsets show where to continue, after Aborted.

        Raises:
            Fatal: if the session cannot continue.
            Aborted: if the owner stops waiting, or another process may own what this session writes.
        """

    def close(self) -> None:
        """Discard what is not confirmed. Never raises."""
