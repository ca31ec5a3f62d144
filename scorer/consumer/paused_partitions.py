"""The state of one consumer as a group member, which is forgotten with the client."""

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
"""Why a partition is paused.

Model servers are unavailable; the position is not in the log; no broker knows where the partition begins; a newer revision has
scored the
partition; it is read in the sandbox.
"""


class PausedPartitions:
    """The assigned partitions that are not read, with their reasons. Each reason holds until it is removed."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._reasons: dict[Partition, set[PauseReason]] = {}

    @property
    def partitions(self) -> Set[Partition]:
        """The partitions that are paused for any reason."""
        return self._reasons.keys()

    def pause(self, partitions: Iterable[Partition], reason: PauseReason) -> None:
        """Stop reading these partitions until this reason is removed."""
        fresh = [p for p in partitions if reason not in self._reasons.get(p, ())]
        for partition in fresh:
            self._reasons.setdefault(partition, set()).add(reason)
        if fresh:
            self._consumer.pause([TopicPartition(*p) for p in fresh])

    def resume(self, partitions: Iterable[Partition], reason: PauseReason) -> None:
        """Remove this reason. Partitions with another one stay paused."""
        free = []
        for partition in partitions:
            reasons = self._reasons.get(partition, set())
            reasons.discard(reason)
            if not reasons and self._reasons.pop(partition, None) is not None:
                free.append(partition)
        if free:
            self._consumer.resume([TopicPartition(*p) for p in free])

    def has(self, partition: Partition, reason: PauseReason) -> bool:
        """Return whether the partition is paused for this reason, possibly among others."""
        return reason in self._reasons.get(partition, ())

    def only(self, partition: Partition, reason: PauseReason) -> bool:
        """Return whether this is the only reason why the partition is paused."""
        return self._reasons.get(partition) == {reason}

    def forget(self, partitions: Iterable[Partition]) -> None:
        """Forget partitions that go to another owner."""
        if paused := [TopicPartition(*p) for p in partitions if self._reasons.pop(p, None)]:
            self._consumer.resume(paused)


class GroupMembership:
    """The membership of one client.

    `group()` returns the current group metadata; None unless `sends_group`, because it costs a quarter of a batch of one
    event. Methods raise
    MemberLost if another client must join instead of this one.
    """

    def __init__(self, consumer: Consumer, *, sends_group: bool) -> None:
        self.pauses = PausedPartitions(consumer)
        self.group: Callable[[], Any] = consumer.consumer_group_metadata if sends_group else lambda: None
        self._consumer = consumer
        self._topic_ids: dict[str, str] = {}
        self._unsought_since = 0.0  # when a seek first failed of those that fail now

    def check_topics(self, beginnings: Iterable[StartPosition]) -> None:
        """Check that this client can read these partitions.

        The leader epochs of a recreated topic start at 0: a client that has seen higher ones of the old topic treats them as
        outdated, and never reads
        the new topic (librdkafka 2.16).
        """
        for topic, topic_id in {(b.position.topic, b.mark.topic_id) for b in beginnings}:
            if self._topic_ids.setdefault(topic, topic_id) != topic_id:
                raise MemberLost(f"{topic} was made again, and the client reads on at the old one's leader epochs")

    def seek(self, position: TopicPartition) -> bool:
        """Return whether reading continues at the position.

        Not if an assignment has not started to fetch, or is about to end.
        """
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
    """Ignore a failure of this topic. Raises MemberLost if another consumer must join, Fatal if an operator must act."""
    if error.fatal() or error in LOST:
        raise MemberLost(f"the consumer group refuses this member: {error.str()}")
    if lacking := LACKING.get(REFUSED.reason(error) or ""):
        raise Fatal(f"cannot read {topic}: {error.str()}", f"check {lacking}", 3)
    log.warning("consumer: %s", error.str())
