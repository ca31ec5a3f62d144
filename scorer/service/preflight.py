"""Checks before a scorer joins: the topics exist and fit, no right is missing, and no live process has its replica."""

import contextlib
import logging
import threading
import time
from collections.abc import Mapping, Set
from dataclasses import dataclass

from confluent_kafka import KafkaException, Message
from confluent_kafka.admin import AdminClient

from publisher.errors import Fatal, NotAllowed
from publisher.kafka import acls, groups
from publisher.kafka.connection import connect
from scorer import topics
from scorer.observability.channel_move_listener import ChannelMoveListener
from scorer.observability.status_record import HEARTBEAT_SECONDS, SILENT_SECONDS, parse
from scorer.service.replica_claim import expiry_seconds
from scorer.settings import Settings
from scorer.worker.encode import Target
from scorer.worker.retry_backoff import replica_conflict

ANSWER_SECONDS = 3.0  # how long a check waits for a broker's answer
log = logging.getLogger(__name__)

SECOND_LOOK_SECONDS = 1.0
LISTEN_SECONDS = 0.5  # between looks whether the group still counts a process of our name
TELLING_SECONDS = 1.5 * HEARTBEAT_SECONDS  # one that was heard so lately lives


@dataclass(frozen=True)
class Start:
    """The result of the checks: the topics to write to, and the dead members of the group with our client id."""

    output: Target
    dead_letter: Target
    dead_members: Set[str] = frozenset()


def may_begin(settings: Settings, stopping: threading.Event) -> Start:
    """Check that a scorer may start. Raises Fatal if it may not."""
    admin = connect(settings.kafka, settings.owner, ANSWER_SECONDS)
    targets = _targets(settings, admin)
    groups.check_right_to_join(admin, settings.kafka, settings.name)
    return Start(*targets, _refuse_a_twin(settings, admin, stopping))


def name_missing_rights(settings: Settings) -> None:
    """Raise NotAllowed with the missing rights, if the broker reports some. For a scorer that cannot continue."""
    try:
        admin = connect(settings.kafka, settings.owner, SECOND_LOOK_SECONDS)
        topics.describe(admin, settings.kafka, topics.required(settings))
        groups.check_right_to_join(admin, settings.kafka, settings.name)
    except NotAllowed:
        raise
    except Fatal as error:
        log.info("whether a right is missing is not known: %s", error)


def _targets(settings: Settings, admin: AdminClient) -> tuple[Target, Target]:
    """Return the output and dead-letter topics. Raises Fatal if a topic is missing or unfit: nothing is created here."""
    found = topics.describe(admin, settings.kafka, topics.required(settings))
    if topics.faults(settings, found):  # a broker that has just come up does not know everything yet: look again
        time.sleep(SECOND_LOOK_SECONDS)
        found = topics.describe(admin, settings.kafka, topics.required(settings))
    if topics.faults(settings, found):
        wrong = topics.faults(settings, found, topics.names(admin, settings.kafka))
        raise Fatal("; ".join(wrong), topics.CREATE_HINT, 2)
    return _as_targets(settings, found)


def targets_now(settings: Settings) -> tuple[Target, Target] | None:
    """Return the current output and dead-letter topics; None if no broker reports them, or one is missing."""
    names = {settings.output.topic, settings.dead_letter.topic}.intersection(settings.answer_topics)
    try:
        admin = connect(settings.kafka, settings.owner, SECOND_LOOK_SECONDS)
        found = topics.describe(admin, settings.kafka, acls.to_describe(*names))
    except Fatal as error:
        log.info("the topics of answers are not known: %s", error)
        return None
    return _as_targets(settings, found) if len(found) == len(names) else None


def _as_targets(settings: Settings, found: Mapping[str, topics.DescribedTopic]) -> tuple[Target, Target]:
    output = found[settings.output.topic]
    dead = found.get(settings.dead_letter.topic, output)  # a shadow writes none
    targets = (settings.output.topic, output), (settings.dead_letter.topic, dead)
    first, second = (Target(name, topic.partitions, topic.max_bytes) for name, topic in targets)
    return first, second


def twin_lives(waited: float, silent: float, deaf: bool, expiry: float) -> bool | None:
    """Return whether a live process has our replica, which the group counts after `waited` seconds; None: not known yet.

    Only its place in the group shows that it lives: the group has expired a dead member after `expiry` seconds. That no status
    record came for `silent` seconds shows that it is dead, and is fenced, even if a busy group counts it for longer. A record
    shows nothing: others can forge it. `deaf`: the status topic cannot be read.
    """
    outlasted = waited > expiry
    if deaf:
        return True if outlasted else None
    if waited < SILENT_SECONDS or TELLING_SECONDS <= silent <= SILENT_SECONDS:
        return None
    if silent > SILENT_SECONDS:
        return False
    return True if outlasted else None


class _Heartbeats:
    """The time of the last status record of a running process with our name (monotonic seconds)."""

    def __init__(self, now: float) -> None:
        self.at = now

    def hear(self, message: Message) -> None:
        status = parse(message.value())
        if status is not None and status.state == "running":
            self.at = time.monotonic()


def _refuse_a_twin(settings: Settings, admin: AdminClient, stopping: threading.Event) -> Set[str]:
    """Return the dead members of our replica when no live process has it. Raises Fatal (3) where one has it."""
    if not _of_replica(settings, admin):
        return frozenset()
    log.info("replica %s is still in the group; listening whether it lives", settings.replica)
    began = time.monotonic()
    heartbeats = _Heartbeats(began)
    with contextlib.closing(ChannelMoveListener(settings, own=heartbeats.hear)) as notices:
        while not stopping.wait(LISTEN_SECONDS) and (members := _of_replica(settings, admin)):
            now = time.monotonic()
            lives = twin_lives(now - began, now - heartbeats.at, notices.deaf, expiry_seconds(settings))
            if lives:
                raise replica_conflict("a live process", settings.replica, settings.name)
            if lives is False:
                log.warning("replica %s is in the group and tells nothing: taking its place", settings.replica)
                return members
    return frozenset()


def _of_replica(settings: Settings, admin: AdminClient) -> Set[str]:
    """Return the members of the group under our client id; none if they are not known."""
    try:
        return groups.member_ids(admin, settings.name, settings.owner)
    except KafkaException as error:
        log.info("the group's members are not known yet: %s", error.args[0])
        return frozenset()
