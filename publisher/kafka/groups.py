"""Where consumer groups stand in a cluster, who their members are, and moving a group that has none. Thin I/O."""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from publisher.errors import Fatal, Retriable
from publisher.kafka import clients as kafka
from publisher.kafka.clients import KafkaSettings
from publisher.kafka.error_codes import REFUSED_CODES


class GroupPosition(msgspec.Struct, frozen=True):
    """Up to where a consumer group has committed a partition, and the metadata of that commit."""

    topic: str
    partition: int
    next: int
    metadata: str = ""


class Target(NamedTuple):
    """A position that a group is to take."""

    topic: str
    partition: int
    next: int
    metadata: str


class Follower:
    """Asks again and again where groups stand, for long-lived processes: by consumers that join nothing. (The administrative
    client ends the process where its connection to a group's coordinator breaks at the wrong moment: librdkafka 5397.)"""

    def __init__(self, settings: KafkaSettings, client_id: str, groups: Iterable[str], answer_seconds: float) -> None:
        self._seconds = answer_seconds
        # read_uncommitted: what is being committed by an open transaction is not waited for
        self._consumers = {
            group: kafka.reader(settings, client_id, **{"group.id": group, "isolation.level": "read_uncommitted"})
            for group in groups
        }

    def positions(self, group: str, partitions: Iterable[tuple[str, int]]) -> tuple[GroupPosition, ...]:
        """What a group has committed of these. Raises Retriable where the cluster does not answer, Fatal (3) where it
        refuses."""
        wanted = [TopicPartition(*partition) for partition in partitions]
        self._consumers[group].poll(0)  # what it has to say of its connections must not pile up
        try:
            found = self._consumers[group].committed(wanted, timeout=self._seconds)
        except KafkaException as exception:
            raise _failure(exception.args[0], group, "the source") from exception
        for partition in found:
            if partition.error is not None:
                raise _failure(partition.error, group, "the source")
        return tuple(GroupPosition(p.topic, p.partition, p.offset, p.metadata or "") for p in found if p.offset >= 0)

    def close(self) -> None:
        """Let the clients go."""
        for consumer in self._consumers.values():
            consumer.close()


class ConsumerGroups:
    """Questions to one cluster. Methods raise Retriable where it does not answer in `answer_seconds`, Fatal (3) where it
    refuses."""

    def __init__(self, admin: AdminClient, name: str, answer_seconds: float) -> None:
        self._admin = admin
        self._name = name
        self._seconds = answer_seconds

    def positions(self, group: str) -> tuple[GroupPosition, ...]:
        """Every committed position of a group; none where it has none. What is being committed by an open transaction is not
        waited for."""
        wanted = [ConsumerGroupTopicPartitions(group)]
        try:
            answer = self._admin.list_consumer_group_offsets(wanted, require_stable=False, request_timeout=self._seconds)
            found = answer[group].result().topic_partitions or []
        except KafkaException as exception:
            if exception.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                return ()
            raise _failure(exception.args[0], group, self._name) from exception
        kept = sorted((p.topic, p.partition, p.offset, p.metadata or "") for p in found if p.offset >= 0)
        return tuple(GroupPosition(*row) for row in kept)

    def members(self, group: str) -> list[str]:
        """The client ids of its members now."""
        try:
            found = self._admin.describe_consumer_groups([group], request_timeout=self._seconds)[group].result()
        except KafkaException as exception:
            if exception.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                return []
            raise _failure(exception.args[0], group, self._name) from exception
        return sorted(member.client_id for member in found.members)

    def move(self, group: str, targets: Iterable[Target]) -> None:
        """Commit these positions. Raises Fatal (3) where the group has members by now."""
        offsets = [TopicPartition(t.topic, t.partition, t.next, t.metadata or None) for t in targets]
        if not offsets:
            return
        request = ConsumerGroupTopicPartitions(group, offsets)
        try:
            moved = self._admin.alter_consumer_group_offsets([request], request_timeout=self._seconds)[group].result()
        except KafkaException as exception:
            if exception.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID:
                raise Fatal(f"group {group} has members in {self._name}", "stop them first", 3) from exception
            raise _failure(exception.args[0], group, self._name) from exception
        for partition in moved.topic_partitions or []:
            if partition.error is not None:
                where = f"{partition.topic}[{partition.partition}]"
                raise Fatal(f"{self._name} does not take the position of {where}: {partition.error.str()}", "see its log", 3)


def _failure(error: KafkaError, group: str, cluster: str) -> Exception:
    if error.code() in REFUSED_CODES:
        hint = f"grant this client Describe (to move it: Read) on group {group}, and Read on its topics"
        return Fatal(f"{cluster} refuses group {group}: {error.str()}", hint, 3)
    return Retriable(f"{cluster} does not answer: {error.str()}")
