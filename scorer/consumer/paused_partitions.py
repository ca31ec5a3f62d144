"""The state of one consumer as a group member: which partitions are paused, and which topics it has read.

The state ends with the client: another client starts with an empty one.
"""

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
SEEK_SECONDS = 10.0  # the client has started to fetch a new assignment by then


PauseReason = Literal["backend unavailable", "out of range", "no leader", "revision", "suspect"]
"""Why a partition is paused, in the order of the values:

model servers are unavailable; the position is not in the log; there is no leader that knows the start offset; a newer revision
scored the partition; the partition is read in the sandbox.
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
        """Forget revoked partitions."""
        if paused := [TopicPartition(*p) for p in partitions if self._reasons.pop(p, None)]:
            self._consumer.resume(paused)


class GroupMembership:
    """The membership of one client. Methods raise MemberLost if another client must join instead of this one.

    Attributes:
        pauses: the paused partitions.
        group: returns the current group metadata; None unless `sends_group`, because the call takes a quarter of the time of a
            batch of one event.
    """

    def __init__(self, consumer: Consumer, *, sends_group: bool) -> None:
        self.pauses = PausedPartitions(consumer)
        self.group: Callable[[], Any] = consumer.consumer_group_metadata if sends_group else lambda: None
        self._consumer = consumer
        self._topic_ids: dict[str, str] = {}
        self._seeks_fail_since = 0.0  # monotonic seconds; 0 if the last seek succeeded

    def check_topics(self, starts: Iterable[StartPosition]) -> None:
        """Check that this client can read these partitions.

        The leader epochs of a recreated topic start at 0. A client that knows higher epochs of the deleted topic treats them as
        outdated, and never reads the new topic (librdkafka 2.16).
        """
        for topic, topic_id in {(start.position.topic, start.mark.topic_id) for start in starts}:
            if self._topic_ids.setdefault(topic, topic_id) != topic_id:
                raise MemberLost(f"{topic} was recreated, and the client still has the leader epochs of the deleted topic")

    def seek(self, position: TopicPartition) -> bool:
        """Seek, and return whether reading continues at the position.

        A seek is rejected if the client has not started to fetch an assignment, or is about to end it. The caller retries.
        """
        try:
            self._consumer.seek(position)
        except KafkaException as error:
            self._seeks_fail_since = self._seeks_fail_since or time.monotonic()
            if error.args[0] not in NOT_NOW or time.monotonic() > self._seeks_fail_since + SEEK_SECONDS:
                raise MemberLost(f"cannot seek to {position}: {error.args[0]}") from error
            return False
        self._seeks_fail_since = 0.0
        return True


def check_failure(topic: str, error: KafkaError) -> None:
    """Log a failure of this topic that the client recovers from.

    Raises:
        MemberLost: Another consumer must join.
        Fatal: 3 if an operator must act.
    """
    if error.fatal() or error in LOST:
        raise MemberLost(f"the consumer group rejects this member: {error.str()}")
    if lacking := LACKING.get(REFUSED.reason(error) or ""):
        raise Fatal(f"cannot read {topic}: {error.str()}", f"check {lacking}", 3)
    log.warning("consumer: %s", error.str())
