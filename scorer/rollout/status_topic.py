"""Read the scorers' status topic to follow a channel move, and write to the topic to notify scorers of a move."""

# The clocks of the scorers and of this machine are assumed to agree within `STALE_SECONDS`. A scorer whose record arrives while
# this process runs counts as live regardless of its clock.

import time
from collections.abc import Callable

import msgspec
from confluent_kafka import OFFSET_BEGINNING

from model_registry.channels.history import ChannelMove
from publisher.kafka.acls import READ, WRITE
from publisher.kafka.partitions import Partition
from publisher.kafka.topic_follower import TopicFollower
from scorer.observability import status_record
from scorer.rollout import fleet_status
from scorer.rollout.fleet_status import Fleet, MoveProgress
from scorer.rollout.produce_one import produce_one
from scorer.settings import Settings

POLL_SECONDS = 0.1


class StatusTopic:
    """The status topic that all scorers with the same `name` share. On creation, the topic is read to its end.

    Raises:
        Fatal: With code 2 if the topic does not exist, 3 if access is denied, 4 if the broker is unavailable.
    """

    def __init__(self, settings: Settings) -> None:
        self._fleet = Fleet()
        needed = {settings.status_topic: frozenset({READ, WRITE})}
        self._following = TopicFollower(settings.kafka, f"{settings.name}.rollout", needed, needed)
        try:
            self._following.begin(OFFSET_BEGINNING)
            for message in self._following.to_end():
                self._fleet.update(message.key(), message.value(), time.time())
        except BaseException:
            self.close()
            raise
        self._fleet.caught_up = True
        self._wanted: tuple[int, set[Partition]] = 0, set()

    def close(self) -> None:
        """Close the consumer."""
        self._following.close()

    def wait_for_flips(self, move: ChannelMove, seconds: float, changed: Callable[[MoveProgress], None]) -> MoveProgress:
        """Poll until every scorer has applied or refused the move, or `seconds` have passed. Return the last progress.

        `changed` is called whenever the progress has changed.
        """
        deadline = time.time() + seconds
        reported = None
        while True:
            verdict = self.poll(move, POLL_SECONDS)
            if verdict != reported:
                changed(verdict)
                reported = verdict
            if verdict.outcome != fleet_status.WAITING or time.time() >= deadline:
                return verdict

    def poll(self, move: ChannelMove, seconds: float = 0.0) -> MoveProgress:
        """Read the records that arrive within `seconds`, and return the progress of a move."""
        for message in self._following.poll(seconds):
            self._fleet.update(message.key(), message.value(), time.time())
        now = time.time()
        if self._wanted[0] != move.revision:
            self._wanted = move.revision, set()
        fleet_status.add_partitions(self._wanted[1], fleet_status.live_partitions(move, self._fleet, now))
        return fleet_status.move_progress(move, self._fleet, self._wanted[1], now)

    def shadowed(self) -> bool:
        """Return whether a shadow runs."""
        return self._fleet.shadowed(time.time())

    def refusals(self, move: ChannelMove, version: str) -> list[str]:
        """Return the reasons why live scorers refuse a version, one line for each scorer.

        Scorers that have not received the move are ignored.
        """
        live = self._fleet.live(time.time(), move.channel)
        refusals = ((record.scorer, record.refused.get(version)) for record in live if record.aspired_revision >= move.revision)
        return [f"{scorer} refuses {version}: {reason}" for scorer, reason in refusals if reason is not None]


def notify(settings: Settings, move: ChannelMove, repository: str) -> None:
    """Notify the channel's scorers to poll the registry now.

    Raises:
        Fatal: If the notice cannot be delivered.
    """
    value = {
        "repository": repository,
        "channel": move.channel,
        "revision": move.revision,
    }  # informative: scorers read the key only
    value |= {"digest": move.to_digest, "at": move.at}
    produce_one(settings, settings.status_topic, status_record.notice_key(move.channel).encode(), msgspec.json.encode(value))
