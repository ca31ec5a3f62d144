"""One consumer as a member of its group: what is known of this client alone, and is forgotten with it."""

import logging
import time
from collections.abc import Callable, Iterable, Set
from typing import Any, Literal

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from publisher.errors import Fatal, MemberLost
from publisher.kafka import acls
from publisher.kafka.error_codes import LOST, NOT_NOW, REFUSED
from publisher.kafka.partitions import Partition
from scorer.consumer.start_offsets import StartPosition

log = logging.getLogger(__name__)

LACKING = {acls.TOPIC: "the right to read this topic", acls.GROUP: "the right to use this consumer group"}
SEEK_SECONDS = 10.0  # a fresh assignment has begun to fetch by then


PauseReason = Literal["away", "out of range", "no leader", "revision", "suspect"]
"""Servers are away that scoring needs; the position is not in the log; nobody tells where the partition begins; a newer
revision has scored the partition; it is read in the sandbox."""


class PausedPartitions:
    """Which assigned partitions are not read, and why: each reason holds by itself, until none is left."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._reasons: dict[Partition, set[PauseReason]] = {}

    @property
    def partitions(self) -> Set[Partition]:
        """Those that are paused, for any reason."""
        return self._reasons.keys()

    def pause(self, partitions: Iterable[Partition], reason: PauseReason) -> None:
        """Stop reading these until this reason is gone."""
        fresh = [p for p in partitions if reason not in self._reasons.get(p, ())]
        for partition in fresh:
            self._reasons.setdefault(partition, set()).add(reason)
        if fresh:
            self._consumer.pause([TopicPartition(*p) for p in fresh])

    def resume(self, partitions: Iterable[Partition], reason: PauseReason) -> None:
        """This reason is gone. Partitions with another one stay paused."""
        free = []
        for partition in partitions:
            reasons = self._reasons.get(partition, set())
            reasons.discard(reason)
            if not reasons and self._reasons.pop(partition, None) is not None:
                free.append(partition)
        if free:
            self._consumer.resume([TopicPartition(*p) for p in free])

    def has(self, partition: Partition, reason: PauseReason) -> bool:
        """Whether the partition is not read for this reason, and maybe others."""
        return reason in self._reasons.get(partition, ())

    def only(self, partition: Partition, reason: PauseReason) -> bool:
        """Whether this is the only reason why the partition is not read."""
        return self._reasons.get(partition) == {reason}

    def forget(self, partitions: Iterable[Partition]) -> None:
        """They go to another owner; should they come back, they are read."""
        if paused := [TopicPartition(*p) for p in partitions if self._reasons.pop(p, None)]:
            self._consumer.resume(paused)


class GroupMembership:
    """`group()` is the group metadata now; None unless `sends_group`, where nobody sends it: it costs a quarter of what a
    batch of one event does. Methods raise MemberLost where another client has to join in place of this one."""

    def __init__(self, consumer: Consumer, *, sends_group: bool) -> None:
        self.pauses = PausedPartitions(consumer)
        self.group: Callable[[], Any] = consumer.consumer_group_metadata if sends_group else lambda: None
        self._consumer = consumer
        self._topic_ids: dict[str, str] = {}
        self._unsought_since = 0.0  # when a seek first failed of those that fail now

    def check_topics(self, beginnings: Iterable[StartPosition]) -> None:
        """See that this client can read these. The leader epochs of a topic that was made again begin at 0: a client that has
        known higher ones of the old topic takes those for outdated, and never reads the new topic (librdkafka 2.16)."""
        for topic, topic_id in {(b.position.topic, b.mark.topic_id) for b in beginnings}:
            if self._topic_ids.setdefault(topic, topic_id) != topic_id:
                raise MemberLost(f"{topic} was made again, and the client reads on at the old one's leader epochs")

    def seek(self, position: TopicPartition) -> bool:
        """Whether reading goes on there; not where an assignment has not begun to fetch, or is about to go."""
        try:
            self._consumer.seek(position)
        except KafkaException as error:
            self._unsought_since = self._unsought_since or time.monotonic()
            if error.args[0] not in NOT_NOW or time.monotonic() > self._unsought_since + SEEK_SECONDS:
                raise MemberLost(f"cannot go back to {position}: {error.args[0]}") from error
            return False
        self._unsought_since = 0.0
        return True


def pass_over(topic: str, error: KafkaError) -> None:
    """Go on without an event of this topic. Raises MemberLost where another consumer has to join, Fatal where a person has to
    act."""
    if error.fatal() or error in LOST:
        raise MemberLost(f"the consumer group refuses this member: {error.str()}")
    if lacking := LACKING.get(REFUSED.why(error) or ""):
        raise Fatal(f"cannot read {topic}: {error.str()}", f"check {lacking}", 3)
    log.warning("consumer: %s", error.str())
