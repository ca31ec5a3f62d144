"""Elect the leader among the controllers: the member of the group `<name>.rollout` that owns partition 0. Thin I/O."""

import logging

from confluent_kafka import OFFSET_END, Consumer, KafkaError, TopicPartition

from publisher.errors import Fatal
from publisher.kafka import acls, connection, error_codes
from publisher.kafka import clients as kafka
from publisher.kafka.acls import READ, Right
from publisher.kafka.clients import ErrorWatch
from scorer.settings import Settings

log = logging.getLogger(__name__)


class LeaderElection:
    """The membership of this process in the consumer group that elects the leader.

    `is_leader` is true while this process owns partition 0 of the topic of rollouts.
    """

    # The leader does not rely on `is_leader` alone: a new leader's transactional producer fences earlier leaders.

    def __init__(self, settings: Settings, client_id: str) -> None:
        self.is_leader = False
        self._settings = settings
        self._watch = ErrorWatch()
        self._consumer: Consumer = kafka.consumer(settings.kafka, client_id, settings.rollout_group, self._watch, _no_commits)
        self._consumer.subscribe(
            [settings.rollouts_topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )

    def poll(self, seconds: float) -> bool:
        """Poll the group for up to `seconds`, and return whether this process leads.

        Raises:
            Fatal: With code 3 if access is denied.
        """
        message = self._consumer.poll(seconds)
        if self._watch.fatal is not None:
            raise connection.refused(self._settings.kafka, self._watch.fatal)
        error = message.error() if message is not None else None
        if error is not None and error in error_codes.REFUSED:
            topic = self._settings.rollouts_topic
            group = self._settings.rollout_group
            lacking = [Right(READ, acls.TOPIC, topic), Right(READ, acls.GROUP, group)]
            raise acls.refused(self._settings.kafka, lacking)
        if error is not None and error.fatal():
            raise Fatal(
                f"the group {self._settings.rollout_group} rejects this controller: {error.str()}", "restart the controller"
            )
        return self.is_leader

    def close(self) -> None:
        """Leave the group, so that another member takes over immediately."""
        self._consumer.close()
        self.is_leader = False

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Become the leader if partition 0 is assigned. All partitions are paused, because this consumer reads no records."""
        ends = [TopicPartition(partition.topic, partition.partition, OFFSET_END) for partition in partitions]
        consumer.incremental_assign(ends)
        consumer.pause(ends)
        if any(partition.partition == 0 for partition in partitions):
            self.is_leader = True
            log.info("this controller is the leader")

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if any(partition.partition == 0 for partition in partitions):
            self.is_leader = False
            log.info("this controller is no longer the leader")
        consumer.incremental_unassign(partitions)


def _no_commits(error: KafkaError | None, _: list[TopicPartition]) -> None:
    del error  # this group never commits offsets
