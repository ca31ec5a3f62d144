"""The scorers' status topic: read to follow a rollout, written to tell scorers at once that a channel has moved.

Clocks of scorers and of this machine are taken to agree within `STALE_SECONDS`. A scorer that is heard while this runs counts
as live whatever its clock says.
"""

import time
from collections.abc import Callable

import msgspec
from confluent_kafka import OFFSET_BEGINNING

from model_registry.channels.history import ChannelMove
from publisher.kafka.acls import READ, WRITE
from publisher.kafka.partitions import Partition
from publisher.kafka.tail import TopicFollower
from scorer.observability import status_record
from scorer.rollout import fleet_status
from scorer.rollout.fleet_status import Fleet, MoveProgress
from scorer.rollout.produce_one import produce_one
from scorer.settings import Settings

POLL_SECONDS = 0.1


class StatusTopic:
    """The status topic of one configuration, read to its end when it is made. Raises Fatal: 2 where the topic is not there, 3
    where the broker refuses, 4 where it does not answer."""

    def __init__(self, settings: Settings) -> None:
        self._fleet = Fleet()
        needed = {settings.status_topic: frozenset({READ, WRITE})}
        self._following = TopicFollower(settings.kafka, f"{settings.name}.rollout", needed, needed)
        try:
            self._following.begin(OFFSET_BEGINNING)
            for message in self._following.to_end():
                self._fleet.hear(message.key(), message.value(), time.time())
        except BaseException:
            self.close()
            raise
        self._fleet.caught_up = True
        self._wanted: tuple[int, set[Partition]] = 0, set()

    def close(self) -> None:
        self._following.close()

    def follow(self, move: ChannelMove, seconds: float, changed: Callable[[MoveProgress], None]) -> MoveProgress:
        """Until every scorer has flipped or refused, or the time is over; `changed` is called with each new verdict."""
        deadline, shown = time.time() + seconds, None
        while True:
            verdict = self.look(move, POLL_SECONDS)
            if verdict != shown:
                changed(verdict)
                shown = verdict
            if verdict.outcome != fleet_status.WAITING or time.time() >= deadline:
                return verdict

    def look(self, move: ChannelMove, seconds: float = 0.0) -> MoveProgress:
        """Where the move stands, after what comes within so many seconds."""
        for message in self._following.poll(seconds):
            self._fleet.hear(message.key(), message.value(), time.time())
        now = time.time()
        if self._wanted[0] != move.revision:
            self._wanted = move.revision, set()
        fleet_status.add_partitions(self._wanted[1], fleet_status.live_partitions(move, self._fleet, now))
        return fleet_status.move_progress(move, self._fleet, self._wanted[1], now)

    def shadowed(self) -> bool:
        """Whether a shadow runs."""
        return self._fleet.shadowed(time.time())

    def refusals(self, move: ChannelMove, version: str) -> list[str]:
        """Why live scorers refuse a version, a line each; those that have not seen the move yet say nothing."""
        live = self._fleet.live(time.time(), move.channel)
        told = ((record.scorer, record.refused.get(version)) for record in live if record.aspired_revision >= move.revision)
        return [f"{scorer} refuses {version}: {why}" for scorer, why in told if why is not None]


def notify(settings: Settings, move: ChannelMove, repository: str) -> None:
    """Tell the scorers of the channel to look at the registry now. Raises Fatal where the notice cannot be delivered."""
    value = {"repository": repository, "channel": move.channel, "revision": move.revision}  # for people: the key alone counts
    value |= {"digest": move.to_digest, "at": move.at}
    produce_one(settings, settings.status_topic, status_record.notice_key(move.channel).encode(), msgspec.json.encode(value))
