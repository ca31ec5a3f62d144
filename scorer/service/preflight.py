"""Check topics, access rights and the replica name before a worker joins its consumer group.

The replica name must be free: no live process may use the same client id, which consists of group and replica name. This module
depends on the brokers and the settings, and creates no topic.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from confluent_kafka import KafkaException, Message
from confluent_kafka.admin import AdminClient

from publisher.errors import USAGE, Fatal, NotAllowed
from publisher.kafka import acls, groups
from publisher.kafka.connection import connect
from publisher.kafka.isolated_groups import IsolatedGroups
from scorer import topics
from scorer.observability.channel_move_listener import ChannelMoveListener
from scorer.observability.status_record import HEARTBEAT_SECONDS, SILENT_SECONDS, parse
from scorer.service.replica_claim import expiry_seconds
from scorer.settings import Settings
from scorer.worker.encode import TargetTopic
from scorer.worker.retry_backoff import replica_conflict

log = logging.getLogger(__name__)

ANSWER_SECONDS = 3.0  # the time limit of a broker's answer to a check
RETRY_SECONDS = 1.0  # before the topics are described again, and the time limit of checks after the start
POLL_SECONDS = 0.5  # between queries whether the group still has a member with our client id
RECENT_SECONDS = 1.5 * HEARTBEAT_SECONDS  # a process is alive if its last status record is at most so old


@dataclass(frozen=True)
class StartCheck:
    """The result of the checks before the start of a worker.

    Attributes:
        output: the topic of scores.
        dead_letter: the topic of dead letters.
        dead_members: the ids of members with this worker's client id whose processes have ended, but which the group has not
            expired yet.
        input_retention: the retention in seconds of each input topic that deletes events by age; empty if it is not known.
        features: the topic of the feature log; None without a feature log.
    """

    output: TargetTopic
    dead_letter: TargetTopic
    dead_members: Set[str] = frozenset()
    input_retention: Mapping[str, float] = field(default_factory=dict)
    features: TargetTopic | None = None

    @property
    def largest_batch(self) -> int:
        """The size limit of a record batch in bytes: the smallest limit among the topics in this object."""
        features = [self.features.max_bytes] if self.features else []
        return min(self.output.max_bytes, self.dead_letter.max_bytes, *features)


def check_start(settings: Settings, stopping: threading.Event) -> StartCheck:
    """Check that a worker may start. Return its output topics, and the dead group members with its client id.

    Raises:
        Fatal: A topic is missing or unfit, an access right is missing, another live process uses the same client id, or no
            broker answers.
    """
    admin = connect(settings.kafka, settings.owner, ANSWER_SECONDS)
    described = _describe_topics(settings, admin)
    output, dead_letter, *features = _targets(settings, described)
    isolated_groups = IsolatedGroups(settings.kafka, settings.owner)
    groups.check_right_to_join(isolated_groups, settings.kafka, settings.name)
    retentions = {name: described[name].retention_seconds for name in settings.input.topics}
    input_retention = {name: seconds for name, seconds in retentions.items() if seconds is not None}
    dead_members = _wait_for_replica(settings, isolated_groups, stopping)
    return StartCheck(output, dead_letter, dead_members, input_retention, next(iter(features), None))


def check_rights(settings: Settings) -> None:
    """Raise NotAllowed if the broker reports a missing access right. The error names the missing rights.

    A worker that cannot continue calls this function to find the cause. All other errors are only logged.
    """
    try:
        admin = connect(settings.kafka, settings.owner, RETRY_SECONDS)
        topics.describe(admin, settings.kafka, topics.required(settings))
        groups.check_right_to_join(IsolatedGroups(settings.kafka, settings.owner), settings.kafka, settings.name)
    except NotAllowed:
        raise
    except Fatal as error:
        log.info("the access rights cannot be checked: %s", error)


def current_targets(settings: Settings) -> tuple[TargetTopic, ...] | None:
    """Return the output and dead-letter topics as they are now, and the topic of the feature log if there is one.

    The result is None if no broker answers, or if a topic is missing.
    """
    features = {settings.features.topic} if settings.features.topic else set()
    names = ({settings.output.topic, settings.dead_letter.topic} | features).intersection(settings.answer_topics)
    try:
        admin = connect(settings.kafka, settings.owner, RETRY_SECONDS)
        described = topics.describe(admin, settings.kafka, acls.to_describe(*names))
    except Fatal as error:
        log.info("the output topics cannot be described: %s", error)
        return None
    return _targets(settings, described) if len(described) == len(names) else None


def _describe_topics(settings: Settings, admin: AdminClient) -> dict[str, topics.DescribedTopic]:
    """Return the topics that `scorer run` needs, by name. Raises Fatal if a topic is missing or unfit."""
    described = topics.describe(admin, settings.kafka, topics.required(settings))
    if topics.faults(settings, described):  # a broker that has just started may not have all metadata yet
        time.sleep(RETRY_SECONDS)
        described = topics.describe(admin, settings.kafka, topics.required(settings))
    if topics.faults(settings, described):
        faults = topics.faults(settings, described, topics.names(admin, settings.kafka))
        hint = topics.CREATE_HINT if topics.missing_faults(settings, described) else "scorer check CONFIG checks the topics"
        raise Fatal("; ".join(faults), hint, USAGE)
    return described


def _targets(settings: Settings, described: Mapping[str, topics.DescribedTopic]) -> tuple[TargetTopic, ...]:
    output = described[settings.output.topic]
    features = [described[settings.features.topic]] if settings.features.topic else []
    dead_letter = described.get(settings.dead_letter.topic, output)  # a shadow writes no dead letters
    return (
        TargetTopic(settings.output.topic, output.partitions, output.max_bytes),
        TargetTopic(settings.dead_letter.topic, dead_letter.partitions, dead_letter.max_bytes),
        *(TargetTopic(topic.name, topic.partitions, topic.max_bytes) for topic in features),
    )


def is_other_process_alive(waited: float, silent: float, unreadable: bool, expiry: float) -> bool | None:
    """Return whether the process of the group member with this worker's client id is alive; None if not known yet.

    Args:
        waited: the seconds since the check began. The member has been in the group during all this time.
        silent: the seconds since the last status record with this worker's client id; without one, since the check began.
        unreadable: whether the status topic cannot be read.
        expiry: the seconds after which the group has expired a dead member.
    """
    # The process is alive if the member stays in the group for more than `expiry` seconds. A status record does not prove it,
    # because other principals can forge status records. The process counts as dead without a status record for SILENT_SECONDS,
    # even if a busy group has not expired the member yet.
    outlasted = waited > expiry
    if unreadable:
        return True if outlasted else None
    if waited < SILENT_SECONDS or RECENT_SECONDS <= silent <= SILENT_SECONDS:
        return None
    if silent > SILENT_SECONDS:
        return False
    return True if outlasted else None


class _Heartbeats:
    """Tracks the status records with this worker's client id.

    `at` is when the last such record arrived, in monotonic seconds. Before the first record it is when tracking began.
    """

    def __init__(self, now: float) -> None:
        self.at = now

    def add(self, message: Message) -> None:
        """Record the time of arrival if the status record in `message` reports a running process."""
        status = parse(message.value())
        if status is not None and status.state == "running":
            self.at = time.monotonic()


def _wait_for_replica(settings: Settings, isolated_groups: IsolatedGroups, stopping: threading.Event) -> Set[str]:
    """Wait until it is known whether another live process uses this worker's client id.

    Returns:
        The ids of the dead group members that use this client id.

    Raises:
        Fatal: Another live process uses the client id.
    """
    if not _members_of_replica(settings, isolated_groups):
        return frozenset()
    log.info("the group has a member with the replica name %s; checking whether its process is alive", settings.replica)
    began = time.monotonic()
    heartbeats = _Heartbeats(began)
    with contextlib.closing(ChannelMoveListener(settings, own=heartbeats.add)) as listener:
        while not stopping.wait(POLL_SECONDS) and (members := _members_of_replica(settings, isolated_groups)):
            now = time.monotonic()
            alive = is_other_process_alive(now - began, now - heartbeats.at, listener.unreadable, expiry_seconds(settings))
            if alive:
                raise replica_conflict("a live process", settings.replica, settings.name)
            if alive is False:
                log.warning(
                    "the member with the replica name %s writes no status records; taking over its name", settings.replica
                )
                return members
    return frozenset()


def _members_of_replica(settings: Settings, isolated_groups: IsolatedGroups) -> Set[str]:
    """Return the ids of the group members with this worker's client id; an empty set if the coordinator does not answer."""
    try:
        return groups.member_ids(isolated_groups, settings.name, settings.owner)
    except KafkaException as error:
        log.info("the group's members are not known yet: %s", error.args[0])
        return frozenset()
