"""Query the topics of a cluster (ids, partitions, offsets, configuration), and create topics.

The id of a topic distinguishes a recreated topic from the deleted topic of the same name. Thin I/O without decisions.
"""

import contextlib
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, ResourceType

from model_registry import suggestions
from publisher.errors import USAGE, Fatal, NotAllowed, Retriable, retriable_as_fatal
from publisher.kafka import acls, connection, topic_names
from publisher.kafka import clients as kafka
from publisher.kafka.acls import ALTER, CREATE, DESCRIBE, TOPIC, Operations, Right
from publisher.kafka.clients import ErrorWatch, KafkaSettings
from publisher.kafka.error_codes import ABSENT, CREATED_ALREADY, GROWN_ALREADY, LIMITED, PASSING, REFUSED, Codes
from publisher.kafka.partitions import EARLIEST, LATEST, Partition, offsets
from publisher.kafka.topic_ids import topic_id

FATAL_CHECK_SECONDS = 0.25  # between checks for a fatal error of the client during a wait for an answer
NEW_TOPIC_SECONDS = 0.1  # between requests for a topic that the asked broker does not know yet
HIDDEN: Operations = frozenset()  # a topic that this client may not describe
RENEW_SECONDS = 1.0  # the minimum time between two new clients
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
"""The configuration entries that are copied from a source topic to its destination topic, because they affect readers.

Replication follows the defaults of the destination cluster.
"""


class Topic(NamedTuple):
    """A topic: its id, which changes if the topic is recreated, and its number of partitions."""

    id: str
    partitions: int


class Bounds(NamedTuple):
    """The range of retained offsets of a partition: from `low` (inclusive) to `high` (exclusive)."""

    low: int
    high: int

    def offset(self, to: str, where: str) -> int:
        """Return the offset that the option `to` names: earliest, latest, or a number. Pure.

        Args:
            to: the value of the option.
            where: the name of the partition, for the error message.

        Raises:
            Fatal: with exit code 2 if the offset is outside this range.
        """
        if to in ("earliest", "latest"):
            return self.low if to == "earliest" else self.high
        if not to.isdigit() or not self.low <= int(to) <= self.high:
            message = f"{to!r} is not a valid offset of {where}: the partition holds the offsets {self.low} to {self.high}"
            raise Fatal(message, "write an offset in this range, or --to earliest|latest", USAGE)
        return int(to)


class Topics:
    """Queries and creates the topics of one cluster; `name` is the name of the cluster in messages.

    Methods raise Retriable if the cluster does not answer within `answer_seconds`, and Fatal with exit code 3 if it rejects the
    request.
    """

    def __init__(
        self, settings: KafkaSettings, client_id: str, name: str, answer_seconds: float, admin: AdminClient | None = None
    ) -> None:
        """Create an administrative client, unless `admin` is given.

        Raises Fatal with exit code 2 if the client rejects its properties.
        """
        self.name = name
        self._settings = settings
        self._client_id = client_id
        self._watch = ErrorWatch()
        self._admin = self._before = kafka.admin(settings, client_id, self._watch) if admin is None else admin
        self._seconds = answer_seconds
        self._renewed = float("-inf")

    @property
    def client(self) -> AdminClient:
        return self._admin

    def id(self) -> str:
        with self._reported():
            return str(self._wait(self._admin.describe_cluster(request_timeout=self._seconds)).cluster_id)

    def names(self) -> list[str]:
        """Return the names of all topics except internal ones."""
        return [name for name in self._metadata() if not name.startswith("__")]

    def hint(self, missing: str, remedy: str, used: Collection[str] = ()) -> str:
        """Return the hint for a missing topic: the existing topic with a similar name, if there is one, and the remedy.

        Args:
            missing: The name of the missing topic.
            remedy: The text of the remedy.
            used: The topics that the configuration already uses for another purpose; none of them is suggested.
        """
        try:
            valid = [name for name in self.names() if name not in used]
        except (Retriable, Fatal):
            valid = []
        return f"{suggestions.question(missing, valid)} {remedy}".strip()

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Return the existing topics among `names`, by name.

        Raises:
            NotAllowed: if this client may not describe one of the topics.
        """
        return self.allowed(dict.fromkeys(names, frozenset({DESCRIBE})))

    def allowed(self, needed: Mapping[str, Operations]) -> dict[str, Topic]:
        """Return the existing topics among `needed`, by name, after checking the client's rights.

        Raises:
            NotAllowed: if an operation in `needed` is denied. The error names every denied operation, and the topics that this
                client may not describe.
        """
        topics, operations = self._describe(needed)
        if missing_rights := acls.missing(needed, operations):
            refusal = acls.refused(self._settings, missing_rights)
            if hidden := [right.name for right in missing_rights if operations[right.name] == HIDDEN]:
                names = ", ".join(dict.fromkeys(hidden))
                raise NotAllowed(f"{refusal}; this user has no right to see whether these topics exist: {names}", refusal.hint)
            raise refusal
        return topics

    def hidden(self, names: Iterable[str]) -> frozenset[str]:
        """Return the topics among `names` that this client may not describe, whether or not they exist."""
        _, operations = self._describe(names)
        return frozenset(name for name, allowed in operations.items() if allowed == HIDDEN)

    def _describe(self, names: Iterable[str]) -> tuple[dict[str, Topic], dict[str, Operations | None]]:
        """Return the existing topics among `names`, and the operations that the broker allows on each topic.

        The operations are HIDDEN if this client may not describe the topic, and None if the broker reports no operations.
        """
        requested = sorted(names)
        topic_names.check(requested)
        options = {"include_authorized_operations": True, "request_timeout": self._seconds}
        descriptions = self._admin.describe_topics(TopicCollection(requested), **options) if requested else {}
        topics: dict[str, Topic] = {}
        operations: dict[str, Operations | None] = {}
        for name, answer in descriptions.items():
            try:
                described = self._wait(answer)
            except KafkaException as exception:
                if REFUSED.reason(exception.args[0]) == acls.TOPIC:
                    operations[name] = HIDDEN
                elif exception.args[0] not in ABSENT:
                    raise self._failure(exception) from exception
                continue
            topics[name] = Topic(topic_id(described), len(described.partitions))
            operations[name] = frozenset(described.authorized_operations) if described.authorized_operations else None
        return topics, operations

    def bounds(self, partitions: Iterable[Partition]) -> dict[Partition, Bounds]:
        """Return the range of retained offsets of each partition, up to the high watermark."""
        requested = list(partitions)
        with self._reported():
            lows, highs = (offsets(self._admin, requested, spec, self._seconds) for spec in (EARLIEST, LATEST))
        return {partition: Bounds(low, highs[partition]) for partition, low in lows.items()}

    def configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the effective configuration of existing topics, by topic; {} for a topic that this client may not query."""
        # A broker may not know a new topic yet, so the request is repeated for a missing topic.
        configs: dict[str, dict[str, str]] = {}
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        deadline = time.monotonic() + self._seconds
        while resources:
            descriptions = self._admin.describe_configs(resources, request_timeout=self._seconds)
            resources = []
            for resource, answer in descriptions.items():
                try:
                    configs[resource.name] = {name: entry.value for name, entry in self._wait(answer).items()}
                except KafkaException as exception:
                    error = exception.args[0]
                    if error in ABSENT and time.monotonic() < deadline:
                        resources.append(resource)
                    elif error in REFUSED:
                        configs[resource.name] = {}
                    else:
                        raise self._failure(exception) from exception
            if resources:
                time.sleep(NEW_TOPIC_SECONDS)
        return configs

    def create(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        """Create a topic with the cluster's default replication, unless it exists."""
        self.create_all([NewTopic(name, partitions, -1, config=dict(config))])

    def create_all(self, plans: list[NewTopic]) -> None:
        """Create topics, unless they exist."""
        # Each topic has a request of its own, because Apache Kafka creates at most 10,000 partitions per request.
        futures = [self._admin.create_topics([plan], operation_timeout=self._seconds) for plan in plans]
        for name, created in (item for future_by_name in futures for item in future_by_name.items()):
            self._finish(created, f"create topic {name}", Right(CREATE, TOPIC, name), CREATED_ALREADY)

    def grow(self, name: str, partitions: int) -> None:
        """Increase the number of partitions of a topic to `partitions`, unless another process has already done so."""
        plan = NewPartitions(name, partitions)
        future = self._admin.create_partitions([plan], operation_timeout=self._seconds)[name]
        self._finish(future, f"extend topic {name} to {partitions} partitions", Right(ALTER, TOPIC, name), GROWN_ALREADY)

    def wait_for_leaders(self, partitions: Mapping[str, int], seconds: float | None = None) -> None:
        """Wait until each topic has the given number of partitions with a leader.

        Args:
            partitions: the number of partitions by topic.
            seconds: how long to wait; None for the `answer_seconds` of this instance.

        Raises:
            Retriable: if a topic has fewer such partitions after this time.
        """
        deadline = time.monotonic() + (seconds or self._seconds)
        while True:
            topics = self._metadata()
            leaders = {name: [p.leader for p in topics[name].partitions.values()] for name in partitions if name in topics}
            unled = [name for name, count in partitions.items() if sum(x >= 0 for x in leaders.get(name, [])) < count]
            if not unled:
                return
            if time.monotonic() > deadline:
                raise Retriable(f"{self.name}: partitions of {', '.join(unled)} have no leader yet")
            time.sleep(0.05)

    def _metadata(self) -> dict[str, Any]:
        with self._reported():
            return self._admin.list_topics(timeout=self._seconds).topics

    def _finish(self, future: "Future[Any]", action: str, right: Right, already: Codes) -> None:
        try:
            self._wait(future)
        except KafkaException as exception:
            error = exception.args[0]
            if error in REFUSED:
                raise acls.refused(self._settings, [right]) from exception
            if error in already:
                return
            if error.retriable() or error in PASSING:
                raise self._failure(exception) from exception
            reason = LIMITED.reason(error)
            hint = f"{reason}: change the request, or the setting of the cluster" if reason else "see the broker's log"
            raise Fatal(f"{self.name} cannot {action}: {error.str()}", hint, 3) from exception

    def _wait(self, future: "Future[Any]") -> Any:
        """Return the answer of the admin request `future`.

        Raises KafkaException, or Fatal with exit code 3 for a fatal error of the client.
        """
        while True:
            try:
                return future.result(FATAL_CHECK_SECONDS)
            except TimeoutError:
                self._raise_fatal()

    def _raise_fatal(self) -> None:
        self._admin.poll(0)
        if self._watch.fatal is not None:
            raise connection.refused(self._settings, self._watch.fatal)

    @contextlib.contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as exception:
            raise self._failure(exception) from exception

    def _failure(self, exception: KafkaException) -> Exception:
        error = exception.args[0]
        if error in REFUSED:
            return NotAllowed(f"{self.name} denies access: {error.str()}", "the command check CONFIG lists the required rights")
        self._raise_fatal()
        if error in PASSING:
            self._renew()
            return Retriable(f"{self.name} does not answer: {error.str()}")
        return Retriable(f"{self.name} returned an error: {error.str()}")

    def _renew(self) -> None:
        """Replace the administrative client, at most once in RENEW_SECONDS."""
        # A client that gets no answer may wait for the cluster's controller for ever, although the cluster is healthy. The
        # replaced client is kept until the next replacement, because other threads may still wait for its answers.
        now = time.monotonic()
        if now >= self._renewed + RENEW_SECONDS:
            self._renewed = now
            self._before = self._admin
            self._admin = kafka.admin(self._settings, self._client_id, self._watch)


def existing(
    settings: KafkaSettings, client_id: str, needed: Mapping[str, Operations], required: Iterable[str] = ()
) -> dict[str, Topic]:
    """Return the topics in `needed` that exist, for a command that uses them.

    Args:
        settings: the connection.
        client_id: the client id.
        needed: the operations that the command needs, by topic.
        required: the topics that must exist.

    Raises:
        Fatal: with exit code 2 if a required topic is missing, 3 if the broker denies an operation, 4 if it does not answer.
    """
    client = Topics(settings, client_id, "the broker", connection.ANSWER_SECONDS, connection.connect(settings, client_id))
    with retriable_as_fatal("see the broker's log; try again"):
        topics = client.allowed(needed)
    for topic in required:
        if topic not in topics:
            hint = client.hint(topic, "the command check CONFIG --create creates missing topics")
            raise Fatal(f"topic {topic} does not exist", hint, USAGE)
    return topics


def retention_seconds(configs: Mapping[str, Mapping[str, str]]) -> dict[str, float]:
    """Return the retention in seconds of each topic that deletes records by age. Other topics are omitted.

    Args:
        configs: the configuration by topic.
    """
    retentions = {
        name: int(config["retention.ms"]) / 1_000
        for name, config in configs.items()
        if "delete" in config.get("cleanup.policy", "") and "retention.ms" in config
    }
    return {name: seconds for name, seconds in retentions.items() if seconds >= 0}


def copied_config(source: Mapping[str, str], room: int) -> dict[str, str]:
    """Return the configuration for a new destination topic: the settings in COPIED_CONFIG, as in the source topic.

    `max.message.bytes` is increased by `room`, the bytes of the headers that the relay adds.
    """
    config = {name: source[name] for name in COPIED_CONFIG if name in source}
    if "max.message.bytes" in config:
        config["max.message.bytes"] = str(int(config["max.message.bytes"]) + room)
    return config
