"""Who of several controllers acts: the member of the group `<name>.rollout` that has the topic's partition. Thin I/O."""

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
    """`mine` says whether this process is to act. Whoever acts fences those before it besides (`leadership_term.py`)."""

    def __init__(self, settings: Settings, client_id: str) -> None:
        self.mine = False
        self._settings = settings
        self._watch = ErrorWatch()
        self._consumer: Consumer = kafka.consumer(settings.kafka, client_id, settings.rollout_group, self._watch, _no_commits)
        self._consumer.subscribe([settings.rollouts_topic], on_assign=self._assigned, on_revoke=self._gone, on_lost=self._gone)

    def poll(self, seconds: float) -> bool:
        """Hear what the group says, within so many seconds; whether this process is to act. Raises Fatal (3) where the broker
        refuses."""
        message = self._consumer.poll(seconds)
        if self._watch.fatal is not None:
            raise connection.refused(self._settings.kafka, self._watch.fatal)
        error = message.error() if message is not None else None
        if error is not None and error in error_codes.REFUSED:
            topic, group = self._settings.rollouts_topic, self._settings.rollout_group
            lacking = [Right(READ, acls.TOPIC, topic), Right(READ, acls.GROUP, group)]
            raise acls.refused(self._settings.kafka, lacking)
        if error is not None and error.fatal():
            raise Fatal(f"the group {self._settings.rollout_group} refuses this member: {error.str()}", "start it again")
        return self.mine

    def close(self) -> None:
        """Leave: another has it at once."""
        self._consumer.close()
        self.mine = False

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """What is read here does not matter: it begins at the end, and stays there."""
        ends = [TopicPartition(each.topic, each.partition, OFFSET_END) for each in partitions]
        consumer.incremental_assign(ends)
        consumer.pause(ends)
        if any(each.partition == 0 for each in partitions):
            self.mine = True
            log.info("this controller acts")

    def _gone(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if any(each.partition == 0 for each in partitions):
            self.mine = False
            log.info("this controller acts no more")
        consumer.incremental_unassign(partitions)


def _no_commits(error: KafkaError | None, _: list[TopicPartition]) -> None:
    """Nothing is ever committed."""
    del error
