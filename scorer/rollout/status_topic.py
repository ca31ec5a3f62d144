"""The scorers' status topic: read to follow a rollout, written to tell scorers at once that a channel has moved.

Clocks of scorers and of this machine are taken to agree within `STALE_SECONDS`. A scorer that is heard while this runs counts
as live whatever its clock says.
"""

import time
from collections.abc import Callable

import msgspec
from confluent_kafka import OFFSET_BEGINNING, KafkaError

from model_registry.channels.history import Move
from publisher.errors import Fatal
from publisher.kafka import clients as kafka
from publisher.kafka.following import Following
from publisher.kafka.partitions import Partition
from publisher.kafka.rights import READ, WRITE
from scorer.observe import status
from scorer.rollout import progress
from scorer.rollout.progress import Fleet, Verdict
from scorer.settings import Settings

ANSWER_SECONDS = 10.0
POLL_SECONDS = 0.1


class StatusTopic:
    """The status topic of one configuration, read to its end when it is made. Raises Fatal: 2 where the topic is not there, 3
    where the broker refuses, 4 where it does not answer."""

    def __init__(self, settings: Settings) -> None:
        self._fleet = Fleet()
        needed = {settings.status_topic: frozenset({READ, WRITE})}
        self._following = Following(settings.kafka, f"{settings.name}.rollout", needed, needed)
        try:
            self._following.begin(OFFSET_BEGINNING)
            for message in self._following.to_end():
                self._fleet.hear(message.key(), message.value(), time.time())
        except BaseException:
            self.close()
            raise
        self._fleet.caught_up = True

    def close(self) -> None:
        self._following.close()

    def follow(self, move: Move, seconds: float, changed: Callable[[Verdict], None]) -> Verdict:
        """Until every scorer has flipped or refused, or the time is over; `changed` is called with each new verdict."""
        deadline, wanted, shown = time.time() + seconds, set[Partition](), None
        while True:
            for message in self._following.news(POLL_SECONDS):
                self._fleet.hear(message.key(), message.value(), time.time())
            now = time.time()
            wanted |= progress.partitions(move, self._fleet, now)
            verdict = progress.judge(move, self._fleet, wanted, now)
            if verdict != shown:
                changed(verdict)
                shown = verdict
            if verdict.outcome != progress.WAITING or now >= deadline:
                return verdict


def notify(settings: Settings, move: Move, repository: str) -> None:
    """Tell the scorers of the channel to look at the registry now. Raises Fatal where the notice cannot be delivered."""
    value = {"repository": repository, "channel": move.channel, "revision": move.revision}  # for people: the key alone counts
    value |= {"digest": move.to_digest, "at": move.at}
    failed: list[KafkaError] = []
    timing = {"message.timeout.ms": int(ANSWER_SECONDS * 1_000), "linger.ms": 0}
    producer = kafka.plain_producer(settings.kafka, f"{settings.name}.rollout", **timing)
    producer.produce(
        settings.status_topic,
        msgspec.json.encode(value),
        status.notice_key(move.channel),
        on_delivery=lambda error, _: failed.append(error) if error else None,
    )
    if producer.flush(ANSWER_SECONDS + 1) or failed:
        why = failed[0].str() if failed else "no answer"
        raise Fatal(f"the notice could not be written to {settings.status_topic}: {why}", "check the broker and the rights")
