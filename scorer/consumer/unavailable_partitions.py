"""Assigned partitions that cannot be read: out of range, or without a leader. The other partitions are read.

It makes no calls to Kafka.
"""

import logging
from collections.abc import Collection, Iterable, Set

from publisher.kafka.partitions import Partition, in_ranges

log = logging.getLogger(__name__)


class UnavailablePartitions:
    """The unavailable partitions, owned by one thread. If both reasons apply, out of range is reported."""

    def __init__(self) -> None:
        self._outside: dict[Partition, str] = {}
        self._leaderless: dict[Partition, str] = {}
        self._doubted: dict[Partition, int] = {}

    def reasons(self) -> dict[Partition, str]:
        """Return the reason of each partition, as a sentence."""
        return self._leaderless | self._outside

    @property
    def outside(self) -> Collection[Partition]:
        """The partitions whose position is out of range."""
        return self._outside.keys()

    @property
    def leaderless(self) -> Set[Partition]:
        """The partitions without a leader."""
        return self._leaderless.keys()

    def is_doubtful(self, partition: Partition, failed: int | None, current: int) -> bool:
        """Return whether an error at the position `failed` may concern an earlier position than the `current` one.

        After the truncation of a log the client does not report the position (`failed` is None or negative). Such an error is
        doubtful once per position.
        """
        if failed is not None and failed >= 0:
            return failed != current
        before = self._doubted.get(partition)
        self._doubted[partition] = current
        return before != current

    def out_of_range(self, partition: Partition, reason: str) -> None:
        """Record that the position is not in the log."""
        self._leaderless.pop(partition, None)
        self._outside[partition] = reason
        log.error("%s; the other partitions are read", reason)

    def in_range(self, partition: Partition) -> None:
        """Record that the position was moved into the log."""
        self._outside.pop(partition, None)

    def leaders(self, without: Collection[Partition]) -> None:
        """Record the assigned partitions without a leader. The client reads a partition again once it has a leader."""
        led = [p for p in self._leaderless if p not in without]
        for partition in led:
            del self._leaderless[partition]
        if led:
            log.info("partitions that have a leader again: %s", in_ranges(led))
        leaderless = [p for p in without if p not in self._leaderless and p not in self._outside]
        for partition in leaderless:
            self._leaderless[partition] = "{}[{}] has no leader: none of its brokers is available".format(*partition)
        if leaderless:
            log.error("no broker leads %s: these partitions are not read, the other partitions are", in_ranges(leaderless))

    def forget(self, partitions: Iterable[Partition]) -> None:
        """Forget revoked partitions."""
        for partition in partitions:
            for record in (self._outside, self._leaderless, self._doubted):
                record.pop(partition, None)
