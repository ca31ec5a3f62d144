"""The consumer groups of a cluster: read their committed positions and members, and move the positions of a group. Thin I/O.

Long-lived processes must use `GroupReader` for positions and `IsolatedGroups` for members and rights. Short commands may use an
administrative client instead.
"""

# The administrative client may end its process if a coordinator fails or returns during a query (librdkafka #4605, #5397).

import logging
from collections.abc import Collection, Iterable
from typing import NamedTuple

import msgspec
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from publisher.errors import Fatal, Retriable
from publisher.kafka import acls
from publisher.kafka import clients as kafka
from publisher.kafka.acls import DESCRIBE, GROUP, READ, TOPIC, Right
from publisher.kafka.clients import KafkaSettings
from publisher.kafka.error_codes import EVICTED, NO_ANSWER, NO_SUCH_GROUP, REFUSED, no_answer
from publisher.kafka.group_query_program import DescribedMember, GroupDescription, describe
from publisher.kafka.isolated_groups import IsolatedGroups
from publisher.kafka.partitions import Partition

DECIDED_SECONDS = 0.3  # the coordinator answers within this time unless one of the positions is in an open transaction
NO_PARTITION = 2**31 - 1  # a partition number for which no group commits a position
ANSWER_SECONDS = 5.0
LONGEST_SHOWN = 100  # characters of a client id

log = logging.getLogger(__name__)


class GroupPosition(msgspec.Struct, frozen=True):
    """The committed or planned position of a consumer group in a partition.

    Attributes:
        topic: the topic.
        partition: the partition.
        next: the next offset to read.
        metadata: the metadata of the commit.
    """

    topic: str
    partition: int
    next: int
    metadata: str = ""


class GroupReader:
    """Reads the committed positions of one group, with a consumer that does not join the group.

    `committed` and `undecided` raise KafkaException if the coordinator does not answer or rejects the request.

    Args:
        decided: whether to wait for open transactions that may change a position. Otherwise the last committed position is
            returned at once.
    """

    def __init__(self, settings: KafkaSettings, client_id: str, group: str, *, decided: bool) -> None:
        self._settings = settings
        self._group = group
        isolation = "read_committed" if decided else "read_uncommitted"
        self._consumer: Consumer = kafka.reader(settings, client_id, **{"group.id": group, "isolation.level": isolation})

    def committed(
        self, partitions: Iterable[Partition], seconds: float, *, allow_partial: bool = False
    ) -> list[TopicPartition]:
        """Return the committed offset of each partition with its metadata; the offset is negative if there is none.

        Args:
            partitions: the partitions.
            seconds: how long to wait for the answer.
            allow_partial: whether to omit partitions for which the coordinator reports an error, instead of raising it.
        """
        self._consumer.poll(0)  # otherwise its connection errors accumulate
        positions = self._consumer.committed([TopicPartition(*partition) for partition in partitions], timeout=seconds)
        for partition in positions:
            if partition.error is not None and not allow_partial:
                raise KafkaException(partition.error)
        return [partition for partition in positions if partition.error is None]

    def positions(self, partitions: Collection[Partition], seconds: float, cluster: str) -> tuple[GroupPosition, ...]:
        """Return the committed positions. Partitions without a committed position are omitted.

        Args:
            partitions: the partitions.
            seconds: how long to wait for the answer.
            cluster: the name of the cluster in error messages.

        Raises:
            Retriable: if the cluster does not answer.
            NotAllowed: if a right is missing.
        """
        try:
            return _positions(self.committed(partitions, seconds))
        except KafkaException as exception:
            topics = (Right(DESCRIBE, TOPIC, topic) for topic in sorted({topic for topic, _ in partitions}))
            raise _failure(
                self._settings, exception.args[0], cluster, Right(DESCRIBE, GROUP, self._group), *topics
            ) from exception

    def undecided(self, partitions: list[Partition], *, singly: bool) -> list[Partition]:
        """Return the partitions whose committed position an open transaction may still change.

        Args:
            partitions: the partitions to check. To check again later, pass the previous result.
            singly: whether to check the partitions one by one, up to the first undecided partition. The result then also
                contains the partitions after it, which were not checked. If False, the result is all partitions or none.

        Raises:
            KafkaException: if the coordinator does not answer at all.
        """
        # While one of the requested partitions is undecided, the client repeats the request, and sends no other request. All
        # partitions are therefore requested together first, with a short time limit. With `singly`, the undecided partition is
        # last in the result, after the partitions that were not requested.
        if not partitions:
            return []
        unused = partitions[0][0], NO_PARTITION  # always decided: there is no answer only if the coordinator is unavailable
        if not self._is_decided([unused], ANSWER_SECONDS):
            raise no_answer("the group's coordinator does not answer")
        if self._is_decided(partitions, DECIDED_SECONDS):
            return []
        for number, partition in enumerate(partitions if singly else ()):
            if not self._is_decided([partition], DECIDED_SECONDS):
                return [*partitions[number + 1 :], partition]
        return [] if singly else partitions

    def _is_decided(self, partitions: list[Partition], seconds: float) -> bool:
        try:
            self.committed(partitions, seconds)
        except KafkaException as exception:
            if exception.args[0] in NO_ANSWER:
                return False
            raise
        return True

    def close(self) -> None:
        self._consumer.close()


class ConsumerGroups:
    """Reads and moves the positions of the consumer groups of one cluster; `name` is the name of the cluster in messages.

    Methods raise Retriable if the cluster does not answer within `answer_seconds`, and Fatal with exit code 3 if it rejects the
    request.
    """

    def __init__(self, admin: AdminClient, settings: KafkaSettings, name: str, answer_seconds: float) -> None:
        self._admin = admin
        self._settings = settings
        self._name = name
        self._seconds = answer_seconds

    def positions(self, group: str) -> tuple[GroupPosition, ...]:
        """Return every committed position of a group, without waiting for open transactions."""
        requested = [ConsumerGroupTopicPartitions(group)]
        try:
            answer = self._admin.list_consumer_group_offsets(requested, require_stable=False, request_timeout=self._seconds)
            return _positions(answer[group].result().topic_partitions or [])
        except KafkaException as exception:
            if exception.args[0] in NO_SUCH_GROUP:
                return ()
            raise _failure(self._settings, exception.args[0], self._name, Right(DESCRIBE, GROUP, group)) from exception

    def members(self, group: str) -> list[str]:
        try:
            return members(self._admin, group, self._seconds)
        except KafkaException as exception:
            raise _failure(self._settings, exception.args[0], self._name, Right(DESCRIBE, GROUP, group)) from exception

    def move(self, group: str, targets: Iterable[GroupPosition]) -> None:
        """Commit these positions for the group. Raises Fatal with exit code 3 if the group has members."""
        offsets = [TopicPartition(t.topic, t.partition, t.next, t.metadata) for t in targets]
        if not offsets:
            return
        request = ConsumerGroupTopicPartitions(group, offsets)
        topics = sorted({partition.topic for partition in offsets})
        needed = Right(READ, GROUP, group), *(Right(READ, TOPIC, topic) for topic in topics)
        try:
            moved = self._admin.alter_consumer_group_offsets([request], request_timeout=self._seconds)[group].result()
        except KafkaException as exception:
            if exception.args[0] in EVICTED:
                raise Fatal(
                    f"group {group} has members in {self._name}", "stop all members of the group first", 3
                ) from exception
            raise _failure(self._settings, exception.args[0], self._name, *needed) from exception
        for partition in moved.topic_partitions or []:
            if partition.error in REFUSED:
                raise _failure(self._settings, partition.error, self._name, *needed)
            if partition.error is not None:
                where = f"{partition.topic}[{partition.partition}]"
                message = f"{self._name} rejects the position of group {group} in {where}: {partition.error.str()}"
                raise Fatal(message, "see the broker's log", 3)


class GroupMember(NamedTuple):
    """A member of a consumer group, with the number of partitions that are assigned to it.

    `client_id` may contain any text, because foreign programs may join the group.
    """

    client_id: str
    host: str
    partitions: int

    def __str__(self) -> str:
        client_id = "".join(character if character.isprintable() else "?" for character in self.client_id[:LONGEST_SHOWN])
        partitions = "1 partition" if self.partitions == 1 else f"{self.partitions} partitions"
        return f"client id {client_id!r} on host {self.host.removeprefix('/')} ({partitions})"


GroupSource = AdminClient | IsolatedGroups
"""An object that describes groups: an administrative client in a short command, `IsolatedGroups` in a long-lived process."""


def described(source: GroupSource, group: str, seconds: float = ANSWER_SECONDS) -> list[GroupMember]:
    """Return the current members of a consumer group. Raises KafkaException if the coordinator does not answer."""
    return sorted(GroupMember(m.client_id, m.host, m.partitions) for m in _described(source, group, seconds))


def members(source: GroupSource, group: str, seconds: float = ANSWER_SECONDS) -> list[str]:
    """Return the client ids of a consumer group's members. Raises KafkaException if the coordinator does not answer."""
    return sorted(client_ids_by_member(source, group, seconds).values())


def client_ids_by_member(source: GroupSource, group: str, seconds: float = ANSWER_SECONDS) -> dict[str, str]:
    """Return the client id of each member of a consumer group, by id. Raises KafkaException if no coordinator answers."""
    return {member.member_id: member.client_id for member in _described(source, group, seconds)}


def member_ids(source: GroupSource, group: str, client_id: str, seconds: float = ANSWER_SECONDS) -> frozenset[str]:
    """Return the ids of a consumer group's members with this client id.

    Raises:
        KafkaException: if the coordinator does not answer.
    """
    members = client_ids_by_member(source, group, seconds)
    return frozenset(member_id for member_id, member_client_id in members.items() if member_client_id == client_id)


def _described(source: GroupSource, group: str, seconds: float) -> list[DescribedMember]:
    try:
        return _describe(source, group, seconds, rights=False).members
    except KafkaException as exception:
        if exception.args[0] in NO_SUCH_GROUP:
            return []
        raise


def _describe(source: GroupSource, group: str, seconds: float, *, rights: bool) -> GroupDescription:
    if isinstance(source, IsolatedGroups):
        return source.describe(group, seconds, rights=rights)
    return describe(source, group, seconds, rights=rights)


def check_right_to_join(source: GroupSource, settings: KafkaSettings, group: str) -> None:
    """Raise NotAllowed if this client has no right to join the group. Nothing is checked if the broker does not answer."""
    missing_rights = [Right(READ, GROUP, group)]
    try:
        allowed = _describe(source, group, ANSWER_SECONDS, rights=True).operations
    except KafkaException as exception:
        if exception.args[0] in REFUSED:
            raise acls.refused(settings, missing_rights) from None
        log.info("cannot read the access rights to the consumer group %s yet: %s", group, exception.args[0])
        return
    if allowed and READ.value not in allowed:
        raise acls.refused(settings, missing_rights)


def _positions(partitions: Iterable[TopicPartition]) -> tuple[GroupPosition, ...]:
    rows = sorted((p.topic, p.partition, p.offset, p.metadata or "") for p in partitions if p.offset >= 0)
    return tuple(GroupPosition(*row) for row in rows)


def _failure(settings: KafkaSettings, error: KafkaError, cluster: str, *needed: Right) -> Exception:
    """Return the error to raise for a Kafka error: NotAllowed for a missing right, otherwise Retriable."""
    # The broker does not report which right is missing, so the message of NotAllowed names every right in `needed`.
    if error in REFUSED:
        kind = REFUSED.reason(error)
        return acls.refused(settings, [right for right in needed if right.kind == kind] or needed)
    return Retriable(f"{cluster} does not answer: {error.str()}")
