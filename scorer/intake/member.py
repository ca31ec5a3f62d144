"""One consumer as a member of its group: what is known of this client alone, and is forgotten with it."""

import time
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from publisher.errors import MemberLost
from publisher.kafka.error_codes import NOT_NOW
from scorer.intake.beginnings import Beginning
from scorer.intake.pauses import Pauses

SEEK_SECONDS = 10.0  # a fresh assignment has begun to fetch by then


class Member:
    """`group()` is the group metadata now; None unless `sends_group`, where nobody sends it: it costs a quarter of what a
    batch of one event does. Methods raise MemberLost where another client has to join in place of this one."""

    def __init__(self, consumer: Consumer, *, sends_group: bool) -> None:
        self.pauses = Pauses(consumer)
        self.group: Callable[[], Any] = consumer.consumer_group_metadata if sends_group else lambda: None
        self._consumer = consumer
        self._topic_ids: dict[str, str] = {}
        self._unsought_since = 0.0  # when a seek first failed of those that fail now

    def check_topics(self, beginnings: Iterable[Beginning]) -> None:
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
