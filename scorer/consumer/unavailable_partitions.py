"""Assigned partitions that cannot be read, and why: out of range, or without a leader. The others continue."""

import logging
from collections.abc import Collection, Iterable, Set

from publisher.kafka.partitions import Partition, in_ranges

log = logging.getLogger(__name__)


class UnavailablePartitions:
    """The unavailable partitions, owned by one thread. Of two reasons, out of range is reported."""

    def __init__(self) -> None:
        self._outside: dict[Partition, str] = {}
        self._leaderless: dict[Partition, str] = {}
        self._doubted: dict[Partition, int] = {}

    def why(self) -> dict[Partition, str]:
        """Return each partition with the reason in words."""
        return self._leaderless | self._outside

    @property
    def outside(self) -> Collection[Partition]:
        """Return the partitions whose position is out of range."""
        return self._outside.keys()

    @property
    def leaderless(self) -> Set[Partition]:
        """Return the partitions without a leader."""
        return self._leaderless.keys()

    def is_doubtful(self, partition: Partition, at: int | None, here: int) -> bool:
        """Return whether an error about the position `at` may concern an earlier one than ours, which is `here`.

        The client does not report the position (`at` is None or negative) if a log was truncated: this is doubted once per
        position.
        """
        if at is not None and at >= 0:
            return at != here
        before, self._doubted[partition] = self._doubted.get(partition), here
        return before != here

    def out_of_range(self, partition: Partition, why: str) -> None:
        """Record that the position is not in the log."""
        self._leaderless.pop(partition, None)
        self._outside[partition] = why
        log.error("%s; the others go on", why)

    def in_range(self, partition: Partition) -> None:
        """Record that the partition has another position now."""
        self._outside.pop(partition, None)

    def leaders(self, without: Collection[Partition]) -> None:
        """Record the assigned partitions without a leader. The client continues when there is a leader again."""
        led = [p for p in self._leaderless if p not in without]
        for partition in led:
            del self._leaderless[partition]
        if led:
            log.info("partitions that have a leader again: %s", in_ranges(led))
        leaderless = [p for p in without if p not in self._leaderless and p not in self._outside]
        for partition in leaderless:
            self._leaderless[partition] = "{}[{}] has no leader: none of its brokers is there".format(*partition)
        if leaderless:
            log.error("no broker leads %s: these partitions are not read, the others are", in_ranges(leaderless))

    def forget(self, partitions: Iterable[Partition]) -> None:
        """Forget partitions that go to another owner."""
        for partition in partitions:
            for known in (self._outside, self._leaderless, self._doubted):
                known.pop(partition, None)
