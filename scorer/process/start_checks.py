"""Checks before a scorer takes part: the topics are there and fit, no right is missing, and no live process has its replica."""

import contextlib
import logging
import threading
import time

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from publisher.errors import Fatal, NotAllowed
from publisher.kafka import groups
from publisher.kafka.connection import connect
from scorer import topics
from scorer.intake.patience import ANSWER_SECONDS
from scorer.loop.recovery import taken
from scorer.loop.score_records import Target
from scorer.observe.notices import Notices
from scorer.observe.status import HEARTBEAT_SECONDS, SILENT_SECONDS, Twins
from scorer.settings import Settings

log = logging.getLogger(__name__)

SECOND_LOOK_SECONDS = 1.0
LISTEN_SECONDS = 0.5  # between looks whether the group still counts a process of our name
DEAF_SECONDS = 2.0  # beyond a session, after which the group gives a dead process up
TELLING_SECONDS = 1.5 * HEARTBEAT_SECONDS  # one that was heard so lately lives


def may_begin(settings: Settings, twins: Twins, stopping: threading.Event) -> tuple[Target, Target]:
    """The output and dead-letter topics of a scorer that may begin. Raises Fatal where it may not."""
    admin = connect(settings.kafka, settings.owner, ANSWER_SECONDS)
    targets = _targets(settings, admin)
    groups.check_right_to_join(admin, settings.kafka, settings.name)
    _refuse_a_twin(settings, admin, twins, stopping)
    return targets


def name_missing_rights(settings: Settings) -> None:
    """Raises NotAllowed with the rights that are missing, if the broker tells of some. For a scorer that cannot go on."""
    try:
        admin = connect(settings.kafka, settings.owner, SECOND_LOOK_SECONDS)
        topics.describe(admin, settings.kafka, topics.required(settings))
        groups.check_right_to_join(admin, settings.kafka, settings.name)
    except NotAllowed:
        raise
    except Fatal as error:
        log.info("whether a right is missing is not known: %s", error)


def _targets(settings: Settings, admin: AdminClient) -> tuple[Target, Target]:
    """Output and dead-letter topics as they are. Raises Fatal where a topic is missing or unfit: nothing is created here."""
    found = topics.describe(admin, settings.kafka, topics.required(settings))
    if topics.faults(settings, found):  # a broker that has just come up does not know everything yet: look again
        time.sleep(SECOND_LOOK_SECONDS)
        found = topics.describe(admin, settings.kafka, topics.required(settings))
    if wrong := topics.faults(settings, found):
        raise Fatal("; ".join(wrong), "scorer check CONFIG --create makes what is missing", 2)
    output = found[settings.output.topic]
    dead = found.get(settings.dead_letter.topic, output)  # a shadow writes none
    targets = (settings.output.topic, output), (settings.dead_letter.topic, dead)
    first, second = (Target(name, topic.partitions, topic.max_bytes) for name, topic in targets)
    return first, second


def twin_lives(waited: float, silent: float, deaf: bool, session_seconds: float) -> bool | None:
    """Whether a live process has our replica, which the group counts after `waited` seconds; None while that is not known.

    It has told nothing for `silent` seconds. Where we are `deaf` to what it tells, it lives if it outlasts a session. A busy
    group may count a dead process for longer than that: one that tells nothing is fenced, not waited for.
    """
    if deaf:
        return True if waited > session_seconds + DEAF_SECONDS else None
    if waited < SILENT_SECONDS or TELLING_SECONDS <= silent <= SILENT_SECONDS:
        return None
    return silent < TELLING_SECONDS


def _refuse_a_twin(settings: Settings, admin: AdminClient, twins: Twins, stopping: threading.Event) -> None:
    """Return when no live process has our replica. Raises Fatal (3) where one has it."""
    if not _in_group(settings, admin):
        return
    log.info("replica %s is still in the group; listening whether it lives", settings.replica)
    began = time.monotonic()
    with contextlib.closing(Notices(settings, twins)) as notices:
        while not stopping.wait(LISTEN_SECONDS) and _in_group(settings, admin):
            now = time.monotonic()
            session_seconds = settings.kafka.session_timeout_ms / 1_000
            lives = twin_lives(now - began, now - (twins.heard_at or began), notices.deaf, session_seconds)
            if lives:
                raise taken("a live process", settings.replica, settings.name)
            if lives is False:
                log.warning("replica %s is in the group and tells nothing: taking its place", settings.replica)
                return


def _in_group(settings: Settings, admin: AdminClient) -> bool:
    try:
        return settings.owner in groups.members(admin, settings.name)
    except KafkaException as error:
        log.info("the group's members are not known yet: %s", error.args[0])
        return False
