"""What a cluster says of itself and of its topics: ids, partitions, where logs begin and end, how topics are configured.

Ids are how a topic that was deleted and made again is told from the one before. Thin I/O; nothing is decided here.
"""

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, ResourceType

from publisher.errors import Fatal, Retriable
from publisher.topic_reader import EARLIEST, LATEST, Partition
from publisher.transaction_states import REFUSED_CODES

ABSENT = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID, KafkaError._UNKNOWN_TOPIC})
COPIED_CONFIG = (
    "cleanup.policy",
    "compression.type",
    "delete.retention.ms",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.ms",
)
"""What a topic at the destination takes over from the source: what a reader of it can notice. Replication is the cluster's."""


class Topic(NamedTuple):
    """A topic as it is now."""

    id: str
    partitions: int


class Bounds(NamedTuple):
    """The offsets that a partition holds: from `low` (inclusive) to `high` (exclusive)."""

    low: int
    high: int


class Cluster:
    """Questions to one cluster. Methods raise Retriable where it does not answer in `answer_seconds`, Fatal (3) where it
    refuses."""

    def __init__(self, admin: AdminClient, name: str, answer_seconds: float) -> None:
        self.name = name
        self._admin = admin
        self._seconds = answer_seconds

    def id(self) -> str:
        """The cluster's id."""
        described: Any = self._answer(self._admin.describe_cluster(request_timeout=self._seconds))
        return str(described.cluster_id)

    def names(self) -> list[str]:
        """The names of all topics but internal ones."""
        return [name for name in self._metadata() if not name.startswith("__")]

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Those of the named topics that exist."""
        wanted = sorted(set(names))
        found: dict[str, Topic] = {}
        for name, asked in (
            self._admin.describe_topics(TopicCollection(wanted), request_timeout=self._seconds).items() if wanted else ()
        ):
            try:
                described = asked.result()
            except KafkaException as exception:
                if exception.args[0].code() in ABSENT:
                    continue
                raise self._failure(exception) from exception
            found[name] = Topic(str(described.topic_id), len(described.partitions))
        return found

    def bounds(self, partitions: Iterable[Partition]) -> dict[Partition, Bounds]:
        """Where each partition begins and ends, open transactions included."""
        wanted = [TopicPartition(*partition) for partition in partitions]
        if not wanted:
            return {}
        lows, highs = (
            self._admin.list_offsets(
                dict.fromkeys(wanted, spec),
                isolation_level=IsolationLevel.READ_UNCOMMITTED,
                request_timeout=self._seconds,
            )
            for spec in (EARLIEST, LATEST)
        )
        ends = {(p.topic, p.partition): self._answer(asked).offset for p, asked in highs.items()}
        starts = {(p.topic, p.partition): self._answer(asked).offset for p, asked in lows.items()}
        return {partition: Bounds(starts[partition], end) for partition, end in ends.items()}

    def configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """The effective configuration of topics that exist; empty where the right to read it is missing."""
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        asked = self._admin.describe_configs(resources, request_timeout=self._seconds) if resources else {}
        found: dict[str, dict[str, str]] = {}
        for resource, answer in asked.items():
            try:
                found[resource.name] = {name: entry.value for name, entry in answer.result().items()}
            except KafkaException as exception:
                if exception.args[0].code() not in REFUSED_CODES:
                    raise self._failure(exception) from exception
                found[resource.name] = {}
        return found

    def create(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        """Make a topic, with the cluster's own replication; one that is there by now is as good."""
        plan = NewTopic(name, partitions, -1, config=dict(config))
        self._made(self._admin.create_topics([plan], operation_timeout=self._seconds)[name], f"create topic {name}")

    def grow(self, name: str, partitions: int) -> None:
        """Give a topic more partitions; one that has them by now is as good."""
        plan = NewPartitions(name, partitions)
        asked = self._admin.create_partitions([plan], operation_timeout=self._seconds)[name]
        self._made(asked, f"give topic {name} {partitions} partitions")

    def led(self, partitions: Mapping[str, int]) -> None:
        """Wait until each topic has so many partitions, all with a leader. Raises Retriable where that takes longer than an
        answer may."""
        deadline = time.monotonic() + self._seconds
        while True:
            known = self._metadata()
            leaders = {name: [p.leader for p in known[name].partitions.values()] for name in partitions if name in known}
            unled = [name for name, count in partitions.items() if sum(x >= 0 for x in leaders.get(name, [])) < count]
            if not unled:
                return
            if time.monotonic() > deadline:
                raise Retriable(f"{self.name}: partitions of {', '.join(unled)} have no leader yet")
            time.sleep(0.05)

    def _metadata(self) -> dict[str, Any]:
        try:
            return self._admin.list_topics(timeout=self._seconds).topics
        except KafkaException as exception:
            raise self._failure(exception) from exception

    def _made(self, asked: "Future[Any]", what: str) -> None:
        try:
            asked.result()
        except KafkaException as exception:
            error = exception.args[0]
            if error.code() in (KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.INVALID_PARTITIONS):
                return
            if error.retriable() or error.code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT):
                raise self._failure(exception) from exception
            raise Fatal(f"{self.name} does not {what}: {error.str()}", "check the rights of this client", 3) from exception

    def _answer(self, asked: "Future[Any]") -> Any:
        try:
            return asked.result()
        except KafkaException as exception:
            raise self._failure(exception) from exception

    def _failure(self, exception: KafkaException) -> Exception:
        error = exception.args[0]
        if error.code() in REFUSED_CODES or error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
            return Fatal(f"{self.name} refuses: {error.str()}", "check the credentials, and the rights in the README", 3)
        return Retriable(f"{self.name} does not answer: {error.str()}")


def copied_config(source: Mapping[str, str], room: int) -> dict[str, str]:
    """The configuration of a destination topic like its source; `room` bytes more a record, for the headers added."""
    config = {name: source[name] for name in COPIED_CONFIG if name in source}
    if "max.message.bytes" in config:
        config["max.message.bytes"] = str(int(config["max.message.bytes"]) + room)
    return config
