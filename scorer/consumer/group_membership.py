"""The membership of one client in the consumer group, and the failures after which another client must join.

A membership ends when its client is closed. This module does not know which partitions are assigned.
"""

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from publisher.errors import Fatal, MemberLost
from publisher.kafka import acls
from publisher.kafka.error_codes import LOST, NOT_NOW, REFUSED
from scorer.consumer.start_offsets import StartPosition

log = logging.getLogger(__name__)

LACKING = {acls.TOPIC: "the right to read this topic", acls.GROUP: "the right to use this consumer group"}
SEEK_SECONDS = 10.0  # a client starts to fetch a new assignment within this time; later failures of seeks are final


class GroupMembership:
    """The membership of one client in the group. Methods raise MemberLost if a new client must join in place of this client.

    Attributes:
        group: a function that returns the current group metadata. It returns None if the publisher does not send group metadata
            with the offsets (`sends_group=False`).
    """

    # Without the metadata, the call of the client is saved, which takes a quarter of the time of a batch of one event.

    def __init__(self, consumer: Consumer, *, sends_group: bool) -> None:
        self.group: Callable[[], Any] = consumer.consumer_group_metadata if sends_group else lambda: None
        self._consumer = consumer
        self._topic_ids: dict[str, str] = {}
        self._seeks_fail_since = 0.0  # monotonic seconds; 0 if the last seek succeeded

    def check_topics(self, starts: Iterable[StartPosition]) -> None:
        """Raise MemberLost if a topic was recreated since this client joined."""
        # The leader epochs of a recreated topic start at 0. A client that knows higher epochs of the deleted topic treats the
        # new epochs as outdated, and never reads the new topic (librdkafka 2.16).
        for topic, topic_id in {(start.position.topic, start.metadata.topic_id) for start in starts}:
            if self._topic_ids.setdefault(topic, topic_id) != topic_id:
                raise MemberLost(f"{topic} was recreated, and the client still has the leader epochs of the deleted topic")

    def seek(self, position: TopicPartition) -> bool:
        """Seek to the position. Return False if the client rejects the seek; the caller must then retry later.

        Raises MemberLost if the client rejects all seeks for SEEK_SECONDS, or if the seek fails for another reason.
        """
        # The client rejects a seek while it has not yet started to fetch a new assignment, and while an assignment ends.
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
    """Log a Kafka error of a topic if the client recovers from the error by itself; otherwise raise an exception.

    Raises:
        MemberLost: The client cannot recover, and a new client must join.
        Fatal: An access right is missing (exit code 3).
    """
    if error.fatal() or error in LOST:
        raise MemberLost(f"the consumer group rejects this member: {error.str()}")
    if lacking := LACKING.get(REFUSED.reason(error) or ""):
        raise Fatal(f"cannot read {topic}: {error.str()}", f"check {lacking}", 3)
    log.warning("the Kafka consumer reports an error: %s", error.str())
