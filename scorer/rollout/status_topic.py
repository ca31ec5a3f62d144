"""The scorers' status topic: read to follow a rollout, written to tell scorers at once that a channel has moved.

Clocks of scorers and of this machine are taken to agree within `STALE_SECONDS`. A scorer that is heard while this runs counts
as live whatever its clock says.
"""

import time
from collections.abc import Callable
from typing import Self

from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition

from model_registry.channels.history import Move
from publisher.errors import Fatal
from publisher.kafka import clients as kafka
from publisher.kafka import rights, topics
from publisher.kafka.connection import refused
from publisher.kafka.error_codes import END, PASSING, REFUSED
from publisher.kafka.rights import READ, WRITE, Right
from scorer.observe import status
from scorer.rollout import progress
from scorer.rollout.progress import Fleet, Verdict
from scorer.settings import Settings

ANSWER_SECONDS = 10.0
POLL_SECONDS = 0.1


class StatusTopic:
    """The status topic of one configuration, read to its end when it is entered. `clock` gives Unix seconds.

    Raises Fatal: 2 where the topic is not there, 3 where the broker refuses, 4 where it does not answer.
    """

    def __init__(self, settings: Settings, *, clock: Callable[[], float] = time.time) -> None:
        self.fleet = Fleet()
        self._settings, self._clock, self._topic = settings, clock, settings.status_topic
        self._name = f"{settings.name}.rollout"
        self._watch = kafka.ErrorWatch()
        self._at_end = False

    def __enter__(self) -> Self:
        needed = {self._topic: frozenset({READ, WRITE})}
        found = topics.existing(self._settings.kafka, self._name, needed, needed)
        following = {"enable.partition.eof": True, "error_cb": self._watch}
        self._consumer = kafka.reader(self._settings.kafka, self._name, **following)
        try:
            self._read(found[self._topic].partitions)
        except BaseException:
            self._consumer.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def follow(self, move: Move, seconds: float, changed: Callable[[Verdict], None]) -> Verdict:
        """Until every scorer has flipped or refused, or the time is over; `changed` is called with each new verdict."""
        deadline, wanted, shown = self._clock() + seconds, set[progress.Partition](), None
        while True:
            self._poll()
            now = self._clock()
            wanted |= progress.partitions(move, self.fleet, now)
            verdict = progress.judge(move, self.fleet, wanted, now)
            if verdict != shown:
                changed(verdict)
                shown = verdict
            if verdict.outcome != progress.WAITING or now >= deadline:
                return verdict

    def _read(self, partitions: int) -> None:
        """Take in the last record of every scorer."""
        self._consumer.assign([TopicPartition(self._topic, number, OFFSET_BEGINNING) for number in range(partitions)])
        behind, deadline = partitions, self._clock() + ANSWER_SECONDS
        while behind > 0:
            behind -= self._poll()
            if self._clock() > deadline:
                raise Fatal(f"topic {self._topic} cannot be read to its end", "check the broker, and for open transactions")
        self._at_end = True

    def _poll(self) -> int:
        """Take in new records. Returns how many partitions have been read to their ends."""
        ended = 0
        messages = self._consumer.consume(500, POLL_SECONDS)
        if self._watch.fatal is not None:
            raise refused(self._settings.kafka, self._watch.fatal)
        for message in messages:
            error = message.error()
            if error is None:
                record = status.read(message.key(), message.value())
                if record is not None:
                    now = self._clock()
                    live = self._at_end and record.state == "running"
                    self.fleet.hear(record, now if live else min(now, record.heartbeat_ms / 1_000))
            elif error in END:
                ended += 1
            elif error in REFUSED and not kafka.of_no_group(error):
                raise rights.refused(self._settings.kafka, [Right(READ, rights.TOPIC, self._topic)])
            elif not (kafka.of_no_group(error) or error.retriable() or error in PASSING):
                raise Fatal(f"topic {self._topic} cannot be read: {error.str()}", "see the broker's log", 3)
        return ended


def notify(settings: Settings, move: Move, repository: str) -> None:
    """Tell the scorers of the channel to look at the registry now. Raises Fatal where the notice cannot be delivered."""
    failed: list[KafkaError] = []
    timing = {"message.timeout.ms": int(ANSWER_SECONDS * 1_000), "linger.ms": 0}
    producer = kafka.plain_producer(settings.kafka, f"{settings.name}.rollout", **timing)
    producer.produce(
        settings.status_topic,
        progress.notice(move, repository),
        status.notice_key(move.channel),
        on_delivery=lambda error, _: failed.append(error) if error else None,
    )
    if producer.flush(ANSWER_SECONDS + 1) or failed:
        why = failed[0].str() if failed else "no answer"
        raise Fatal(f"the notice could not be written to {settings.status_topic}: {why}", "check the broker and the rights")
