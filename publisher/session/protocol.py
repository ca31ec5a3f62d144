"""What every way of delivery offers to the loop that publishes through it: one protocol, the record, the counters.

`transactions.py` keeps it exactly once, `delivery.py` at least once. Whoever drives a session knows no more than this.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from confluent_kafka import TopicPartition

from publisher.kafka.headers import Headers

Record = tuple[str, bytes | None, bytes | None, int, int, Headers]
"""(topic, value, key, partition, timestamp in Unix ms or 0 for now, headers): a plain tuple, it is made once an event."""


@dataclass(slots=True)
class Counters:
    """What a session did so far; plain numbers that the metrics read. `commit_seconds` is what the owner thread waited,
    `last_commit_seconds` what the last commit took, whoever waited for it. `open_since` (monotonic seconds) is when the
    transaction began that is not decided yet, or the wait for others that are not, if there is one."""

    commits: int = 0
    aborts: int = 0
    fenced: int = 0
    rotations: int = 0
    commit_seconds: float = 0.0
    last_commit_seconds: float = 0.0
    open_since: float | None = None

    def committed(self, waited: float, took: float) -> None:
        """The broker has confirmed a commit that took so many seconds, for which the owner thread waited so many."""
        self.commits += 1
        self.commit_seconds += waited
        self.last_commit_seconds = took


class Session(Protocol):
    """Publishes batches. One thread owns it. After Aborted only `recover`, `release` and `close` are allowed."""

    counters: Counters
    transactional: bool
    """Whether each publish is a transaction: the broker pays for each, so the caller leaves some time between two."""

    def open(self) -> None:
        """Wait until the session can publish. Raises Fatal where the broker does not let it."""

    def publish(
        self, records: Iterable[Record], offsets: Sequence[TopicPartition], group_metadata: Any, *, overlap: bool = False
    ) -> None:
        """Write the records of a batch; `offsets` (next offset to read, with metadata) are the group's positions after it.

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
