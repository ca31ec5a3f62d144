"""Read the topic `<name>.rollouts` and write operators' records to it. Thin I/O."""

import contextlib
import re
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime

from confluent_kafka import OFFSET_BEGINNING

from publisher.errors import REFUSED, Fatal
from publisher.kafka.acls import READ, WRITE
from publisher.kafka.topic_follower import TopicFollower
from scorer.rollout.canary_analysis.contestants import Contestants
from scorer.rollout.controller import log_records
from scorer.rollout.controller.log_records import COMMAND, EntryKind, LogEntry, LoggedVersion, OperatorCommand, Verb
from scorer.rollout.controller.plan import RolloutPlan
from scorer.rollout.controller.rollout_state import Rollout, RolloutLog
from scorer.rollout.produce_one import ANSWER_SECONDS, produce_one
from scorer.settings import Settings


class RolloutLogTopic:
    """The log of all rollouts. On creation, the topic of rollouts is read to its end. `poll` reads further records.

    Raises:
        Fatal: With code 2 if the topic does not exist, 3 if access is denied, 4 if the broker is unavailable.
    """

    # With `writes`, the constructor also checks that this process may write to the topic.

    def __init__(self, settings: Settings, *, writes: bool = False) -> None:
        self.ledger = RolloutLog()
        needed = {settings.rollouts_topic: frozenset({READ, WRITE} if writes else {READ})}
        self._following = TopicFollower(settings.kafka, f"{settings.name}.rollout", needed, needed)
        try:
            self._following.begin(OFFSET_BEGINNING)
            for message in self._following.to_end():
                self.ledger.apply(message.key(), message.value())
        except BaseException:
            self.close()
            raise

    def poll(self, seconds: float = 0.0) -> None:
        """Apply the records that arrive within `seconds` to the log."""
        for message in self._following.poll(seconds):
            self.ledger.apply(message.key(), message.value())

    def close(self) -> None:
        """Close the consumer."""
        self._following.close()


@contextlib.contextmanager
def open_log(settings: Settings, *, writes: bool = False) -> Iterator[RolloutLog]:
    """Read the topic of rollouts to its end, and yield the log of all rollouts.

    If `writes` is true, also check that this process may write to the topic.
    """
    with contextlib.closing(RolloutLogTopic(settings, writes=writes)) as topic:
        yield topic.ledger


def begin(settings: Settings, plan: RolloutPlan, rivals: Contestants, revision: int, by: str, reason: str) -> str:
    """Start a rollout of a channel that is at the revision `revision`, and return the id of the rollout.

    Raises:
        Fatal: With code 3 if another rollout runs.
    """
    # The log entry that starts the rollout is written and read back from the topic.
    champion, candidate = (LoggedVersion(each.digest, each.version) for each in rivals)
    with contextlib.closing(RolloutLogTopic(settings, writes=True)) as topic:
        _check_free(topic.ledger)
        at = datetime.now(UTC)
        name = f"{re.sub('[^a-zA-Z0-9._-]', '-', plan.candidate)}-{at:%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:4]}"
        values = plan.model_dump(mode="json", exclude_none=True)
        entry = LogEntry(
            name,
            0,
            EntryKind.STARTED,
            round(at.timestamp() * 1_000),
            by,
            why=[reason] if reason else [],
            plan=values,
            champion=champion,
            candidate=candidate,
            revision=revision,
        )
        produce_one(settings, settings.rollouts_topic, f"{name}/0".encode(), log_records.encode(entry))
        deadline = time.monotonic() + ANSWER_SECONDS
        while name not in topic.ledger.rollouts and name not in topic.ledger.refused:
            if time.monotonic() > deadline:
                raise Fatal(f"the start of {name} was written, but cannot be read back", "see `scorer rollout status`")
            topic.poll(0.1)
        if name in topic.ledger.refused:
            _check_free(topic.ledger)
    return name


def _check_free(ledger: RolloutLog) -> None:
    if (running := ledger.running) is not None:
        message = f"the rollout {running.id} of {running.rivals.candidate.version} is still running"
        raise Fatal(message, "wait until the rollout ends, or end it: scorer rollout abort CONFIG", REFUSED)


def send_command(settings: Settings, rollout: Rollout, verb: Verb, by: str, reason: str) -> None:
    """Send an operator's command about the current step to the controller of a rollout.

    Raises:
        Fatal: If the record cannot be written.
    """
    now_ms = time.time_ns() // 1_000_000
    command = OperatorCommand(verb, by, reason, now_ms, rollout.step)
    key = f"{rollout.id}/{COMMAND}/{now_ms}-{uuid.uuid4().hex[:8]}"
    produce_one(settings, settings.rollouts_topic, key.encode(), log_records.encode(command))
