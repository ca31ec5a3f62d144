"""The scorers' status topic: read to follow a rollout, written to tell scorers at once that a channel has moved.

The only module of the registry that talks to Kafka. Clocks of scorers and of this machine are taken to agree within
`rollout.STALE_SECONDS`; whoever is heard while this runs counts as live whatever his clock says.
"""

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from model_registry import rollout
from model_registry.channels.history import Move
from model_registry.errors import BadFile, BadReference, Unreachable
from model_registry.rollout import Fleet, Verdict

POLL_SECONDS = 0.1
PASSING = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}
library_log = logging.getLogger("librdkafka")
library_log.addHandler(logging.NullHandler())


def properties(servers: str | None, file: Path | None) -> dict[str, Any]:
    """Properties of the client: the file's lines `key=value`, and the servers over them. Raises BadFile, BadReference."""
    found: dict[str, Any] = {}
    try:
        lines = file.read_text(encoding="utf-8").splitlines() if file else []
    except (OSError, UnicodeDecodeError) as error:
        raise BadFile(f"cannot read {file}: {error}", "--kafka-config names a file of key=value lines") from None
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        key, equals, value = text.partition("=")
        if not equals:
            raise BadFile(f"{file}:{number} has no '='", "write a property of librdkafka a line, key=value")
        found[key.strip()] = value.strip()
    if servers:
        found["bootstrap.servers"] = servers
    if not found.get("bootstrap.servers"):
        raise BadReference("no Kafka broker is named", "--kafka HOST:PORT, or bootstrap.servers in --kafka-config")
    return {"client.id": "model-registry", "log_level": 2, **found}


class StatusTopic:
    """One status topic. Raises Unreachable where the broker is silent for `timeout` seconds, BadReference where the topic is
    not there. `clock` gives Unix seconds."""

    def __init__(
        self, client: Mapping[str, Any], topic: str, timeout: float, *, clock: Callable[[], float] = time.time
    ) -> None:
        self.fleet = Fleet()
        self._at_end = False
        self._topic = topic
        self._timeout = timeout
        self._clock = clock
        self._client = dict(client)
        reading = {
            "group.id": "model-registry",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "allow.auto.create.topics": False,
            "fetch.wait.max.ms": 100,
        }
        try:
            self._consumer = Consumer(self._client | reading, logger=library_log)
        except KafkaException as error:
            raise BadFile(f"the Kafka client refuses its properties: {error.args[0].str()}", "correct --kafka-config") from None

    def read(self) -> None:
        """Take in what every scorer told last."""
        places = [TopicPartition(self._topic, number, OFFSET_BEGINNING) for number in self._partitions()]
        self._consumer.assign(places)
        behind, deadline = len(places), self._clock() + self._timeout
        while behind > 0:
            ended = self._poll()
            behind -= ended
            if self._clock() > deadline:
                raise Unreachable(f"the topic {self._topic!r} cannot be read to its end", "check the broker and the rights")
        self._at_end = True

    def follow(self, move: Move, seconds: float, changed: Callable[[Verdict], None]) -> Verdict:
        """Until every scorer has flipped or refused, or the time is over; `changed` is called with each new verdict."""
        deadline, wanted, shown = self._clock() + seconds, set[rollout.Partition](), None
        while True:
            self._poll()
            now = self._clock()
            wanted |= rollout.partitions(move, self.fleet, now)
            verdict = rollout.judge(move, self.fleet, wanted, now)
            if verdict != shown:
                changed(verdict)
                shown = verdict
            if verdict.outcome != rollout.WAITING or now >= deadline:
                return verdict

    def notify(self, move: Move, repository: str) -> None:
        """Tell the scorers of the channel to look at the registry now. Raises Unreachable where that cannot be delivered."""
        failed: list[KafkaError] = []
        producer = Producer(
            self._client | {"message.timeout.ms": int(self._timeout * 1_000), "linger.ms": 0}, logger=library_log
        )
        producer.produce(
            self._topic,
            rollout.notice(move, repository),
            rollout.notice_key(move.channel),
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
        left = producer.flush(self._timeout + 1)
        if left or failed:
            why = failed[0].str() if failed else "no answer"
            raise Unreachable(f"the notice could not be written to {self._topic!r}: {why}", "check the broker and the rights")

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()

    def _partitions(self) -> list[int]:
        servers = self._client["bootstrap.servers"]
        try:
            found = self._consumer.list_topics(self._topic, timeout=self._timeout).topics[self._topic]
        except KafkaException as error:
            raise Unreachable(f"no Kafka broker answers at {servers}: {error.args[0].str()}", "check --kafka") from None
        if found.error is not None:
            hint = "--status-topic names the scorers' topic, NAME.status; scorer check CONFIG --create makes it"
            raise BadReference(f"no topic {self._topic!r} on {servers}: {found.error.str()}", hint)
        return sorted(found.partitions)

    def _poll(self) -> int:
        """Take in what has come; how many partitions have been read to their ends."""
        ended = 0
        for message in self._consumer.consume(500, POLL_SECONDS):
            error = message.error()
            if error is None:
                record = rollout.read(message.key(), message.value())
                if record is not None:
                    now = self._clock()
                    live = self._at_end and record.state == "running"
                    self.fleet.hear(record, now if live else min(now, record.heartbeat_ms / 1_000))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended += 1
            elif not error.retriable() and error.code() not in PASSING:
                raise Unreachable(f"the topic {self._topic!r} cannot be read: {error.str()}", "check the rights")
        return ended
