"""Partitions of ours that cannot be read while the others go on, and why: out of range, or without a leader."""

import logging
from collections.abc import Collection, Iterable, Set

from publisher.kafka.partitions import Partition, in_ranges

log = logging.getLogger(__name__)


class UnavailablePartitions:
    """One thread owns it. Of the two reasons, out of range is the one that is told."""

    def __init__(self) -> None:
        self._outside: dict[Partition, str] = {}
        self._leaderless: dict[Partition, str] = {}
        self._doubted: dict[Partition, int] = {}

    def why(self) -> dict[Partition, str]:
        """Each of them, with the reason as people are told it."""
        return self._leaderless | self._outside

    @property
    def outside(self) -> Collection[Partition]:
        """Those whose position is out of range."""
        return self._outside.keys()

    @property
    def leaderless(self) -> Set[Partition]:
        """Those that no broker leads."""
        return self._leaderless.keys()

    def is_doubtful(self, partition: Partition, at: int | None, here: int) -> bool:
        """Whether an error about the position `at` may be about an earlier one than ours, which is `here`. The client does not
        say where (`at` is None or negative) if a log was cut: that is doubted once for each position."""
        if at is not None and at >= 0:
            return at != here
        before, self._doubted[partition] = self._doubted.get(partition), here
        return before != here

    def out_of_range(self, partition: Partition, why: str) -> None:
        """Its position is not in the log."""
        self._leaderless.pop(partition, None)
        self._outside[partition] = why
        log.error("%s; the others go on", why)

    def in_range(self, partition: Partition) -> None:
        """It has another position by now."""
        self._outside.pop(partition, None)

    def leaders(self, without: Collection[Partition]) -> None:
        """The partitions of ours without a leader, all of them. The client itself goes on when there is a leader again."""
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
        """They go to another owner."""
        for partition in partitions:
            for known in (self._outside, self._leaderless, self._doubted):
                known.pop(partition, None)
