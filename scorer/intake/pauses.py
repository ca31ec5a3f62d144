"""Which assigned partitions are not read, and why. Each reason holds by itself: a partition is read again when none is left."""

from collections.abc import Iterable, Set
from typing import Literal

from confluent_kafka import Consumer, TopicPartition

from publisher.kafka.partitions import Partition

Reason = Literal["away", "out of range", "no leader", "revision"]
"""Servers are away that scoring needs; the position is not in the log; nobody tells where the partition begins; a newer
revision has scored the partition."""


class Pauses:
    """For one consumer; its owner thread's."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._reasons: dict[Partition, set[Reason]] = {}

    @property
    def partitions(self) -> Set[Partition]:
        """Those that are paused, for any reason."""
        return self._reasons.keys()

    def pause(self, partitions: Iterable[Partition], reason: Reason) -> None:
        """Stop reading these until this reason is gone."""
        fresh = [p for p in partitions if reason not in self._reasons.get(p, ())]
        for partition in fresh:
            self._reasons.setdefault(partition, set()).add(reason)
        if fresh:
            self._consumer.pause([TopicPartition(*p) for p in fresh])

    def resume(self, partitions: Iterable[Partition], reason: Reason) -> None:
        """This reason is gone. Partitions with another one stay paused."""
        free = []
        for partition in partitions:
            reasons = self._reasons.get(partition, set())
            reasons.discard(reason)
            if not reasons and self._reasons.pop(partition, None) is not None:
                free.append(partition)
        if free:
            self._consumer.resume([TopicPartition(*p) for p in free])

    def forget(self, partitions: Iterable[Partition]) -> None:
        """They go to another owner; should they come back, they are read."""
        if paused := [TopicPartition(*p) for p in partitions if self._reasons.pop(p, None)]:
            self._consumer.resume(paused)
