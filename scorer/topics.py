"""The topics of a scorer: their required properties, and the topics that `scorer check --create` creates."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from confluent_kafka.admin import AdminClient, NewTopic

from model_registry import suggestions
from publisher.errors import USAGE, Fatal, Retriable, retriable_as_fatal
from publisher.kafka import acls
from publisher.kafka import topics as kafka_topics
from publisher.kafka.acls import READ, WRITE, Operations
from publisher.kafka.clients import KafkaSettings
from publisher.relay.transform import HEADER_BYTES
from scorer.settings import Settings

BROKER_SECONDS = 10.0
CREATE_HINT = (
    "scorer check CONFIG --create creates the missing topics if its user has the right Create; "
    "deploy/kafka.md has the commands of an administrator"
)
LEADER_SECONDS = 60.0  # time limit of the wait for leaders of new partitions, which a busy broker elects late
DEFAULT_MAX_BYTES = 1_048_588  # Apache Kafka's default for max.message.bytes, used without permission to read the setting
RECORD_OVERHEAD = 1_024  # bytes that the broker counts for a record and its headers in addition to key and value
DEAD_LETTER_ROOM = 4_096  # bytes that the headers of a dead letter may add to the original record
UNLIMITED = {"retention.ms": "-1"}
BROKER_TIME = {"message.timestamp.type": "LogAppendTime"}
"""Properties of topics whose records have no event time.

The broker sets the timestamps, so it accepts records from a scorer with a wrong clock.
"""
COMPACTED_HOURLY = {"cleanup.policy": "compact", "segment.ms": "3600000"}
"""Properties of a topic that receives a status record every few seconds.

A broker never compacts the newest segment, so segments must be short.
"""


@dataclass(frozen=True, slots=True)
class DescribedTopic:
    """A topic as the broker describes it.

    Attributes:
        max_bytes: The largest accepted record batch in bytes; Apache Kafka's default if the limit is unknown.
        limit_known: Whether the broker returned `max_bytes`. This requires the permission to describe the topic's
            configuration.
        retention_seconds: How long the topic retains records; None if it does not delete records by age, or if the client is
            not allowed to describe the configuration.
        cleanup_policy: The topic's `cleanup.policy`; None if the client is not allowed to describe the configuration.
    """

    name: str
    partitions: int
    max_bytes: int
    limit_known: bool = True
    retention_seconds: float | None = None
    cleanup_policy: str | None = None


def describe(admin: AdminClient, settings: KafkaSettings, needed: Mapping[str, Operations]) -> dict[str, DescribedTopic]:
    """Describe the topics in `needed` that exist, and check the rights of this client.

    Args:
        admin: The admin client.
        settings: The connection.
        needed: The operations that a command needs, by topic. Topics without an operation are omitted from the result if this
            client may not describe them.

    Returns:
        The existing topics by name.

    Raises:
        Fatal: The broker does not allow a needed operation (exit code 3), or does not answer (exit code 4).
    """
    broker = kafka_topics.Topics(settings, "scorer", "the broker", BROKER_SECONDS, admin)
    with retriable_as_fatal("see its log; try again"):
        existing = broker.allowed(needed)
        configs = broker.configs(existing)
    retention = kafka_topics.retention_seconds(configs)
    limits = {name: config.get("max.message.bytes") for name, config in configs.items()}
    return {
        name: DescribedTopic(
            name,
            existing[name].partitions,
            int(limits[name] or DEFAULT_MAX_BYTES),
            limits[name] is not None,
            retention.get(name),
            configs.get(name, {}).get("cleanup.policy"),
        )
        for name in needed
        if name in existing
    }


def hidden(admin: AdminClient, settings: KafkaSettings, names: Iterable[str]) -> frozenset[str]:
    """Return the topics among `names` that this user may not describe. Whether they exist is unknown.

    Raises:
        Fatal: The broker does not answer (exit code 4).
    """
    broker = kafka_topics.Topics(settings, "scorer", "the broker", BROKER_SECONDS, admin)
    with retriable_as_fatal("see its log; try again"):
        return broker.hidden(names)


def required(settings: Settings) -> dict[str, Operations]:
    """Return the topics that `scorer run` needs, and the operations that it needs on each topic.

    Input topics are first, then the topics of tables.
    """
    written = dict.fromkeys((*settings.answer_topics, settings.status_topic), frozenset({WRITE}))
    if settings.swaps_topic in written:
        written[settings.swaps_topic] = frozenset({READ, WRITE})
    return acls.to_read(*settings.input.topics, *(table.topic for table in settings.tables.values())) | written


def optional(settings: Settings) -> dict[str, str]:
    """Return the topics that `scorer run` does not need, each with the command that needs it."""
    return {
        settings.replayed_topic: "scorer replay",
        settings.corrections_topic: "scorer rescore",
        settings.shadow_topic: "scorer run --shadow",
        settings.rollouts_topic: "scorer rollout",
        settings.runs_topic: "training",
    }


def all_topics(settings: Settings) -> dict[str, Operations]:
    """Return all topics that at least one command of the scorer needs, with the operations that `scorer run` needs on them."""
    labels = [settings.labels.topic] if settings.labels.topic else []
    return required(settings) | dict.fromkeys([*optional(settings), *labels], frozenset())


def names(admin: AdminClient, settings: KafkaSettings) -> list[str]:
    """Return the names of all topics of the broker, for suggestions of similar names; an empty list if the request fails."""
    with suppress(Fatal, Retriable):
        return kafka_topics.Topics(settings, "scorer", "the broker", BROKER_SECONDS, admin).names()
    return []


def check_present(
    settings: Settings, admin: AdminClient, existing: Mapping[str, DescribedTopic], needed: Iterable[str]
) -> None:
    """Raise Fatal (exit code 2) if a needed topic does not exist. The message suggests topics with similar names."""
    if absent := [name for name in needed if name not in existing]:
        raise Fatal("; ".join(_absent(settings, absent, names(admin, settings.kafka))), CREATE_HINT, USAGE)


def _absent(settings: Settings, absent: Iterable[str], existing: Iterable[str]) -> list[str]:
    """Return one line of text for each missing topic, with the name of a similar topic if there is one. Pure."""
    # Topics that the settings use for something else are not suggested.
    used = all_topics(settings)
    others = [name for name in existing if name not in used]
    questions = {name: suggestions.question(name, others) for name in absent}
    return [f"topic {name} does not exist" + (f": {question}" if question else "") for name, question in questions.items()]


def faults(settings: Settings, existing: Mapping[str, DescribedTopic], all_names: Iterable[str] = ()) -> list[str]:
    """Return one line of text for each missing topic, and for each fault that `unfit_faults` finds. Pure.

    Args:
        settings: The scorer's settings.
        existing: The existing topics of the settings, by name.
        all_names: The names of all topics of the broker, for suggestions of similar names.
    """
    return missing_faults(settings, existing, all_names) + unfit_faults(settings, existing)


def missing_faults(settings: Settings, existing: Mapping[str, DescribedTopic], all_names: Iterable[str] = ()) -> list[str]:
    """Return one line of text for each topic that `scorer run` needs and that does not exist; see `faults`. Pure."""
    return _absent(settings, [name for name in required(settings) if name not in existing], all_names)


def unfit_faults(settings: Settings, existing: Mapping[str, DescribedTopic]) -> list[str]:
    """Return a line, with the remedy, for each topic with a too low size limit and each table that is not co-partitioned."""
    lines = []
    output = existing.get(settings.output.topic)
    if output is not None and output.limit_known and output.max_bytes <= RECORD_OVERHEAD:
        lines.append(
            f"topic {output.name} takes records up to {output.max_bytes} bytes: no score fits; set max.message.bytes of "
            f"{output.name} to {2 * RECORD_OVERHEAD} at least"
        )
    dead = existing.get(settings.dead_letter.topic)
    for name in settings.input.topics:
        if name not in existing or dead is None or not dead.limit_known:
            continue
        needed = existing[name].max_bytes + DEAD_LETTER_ROOM
        if dead.max_bytes < needed:
            lines.append(
                f"topic {dead.name} takes records up to {dead.max_bytes} bytes, {name} up to {existing[name].max_bytes}: a "
                f"dead letter might not fit; set max.message.bytes of {dead.name} to {needed}"
            )
    return lines + partitioning_faults(settings, existing)


def partitioning_faults(settings: Settings, existing: Mapping[str, DescribedTopic]) -> list[str]:
    """Return a line for each pair of a table (`scope: partition`) and an input topic with different numbers of partitions."""
    return [
        f"table {name}: topic {table.topic} has {existing[table.topic].partitions} partitions, but the input topic {topic} has "
        f"{existing[topic].partitions}: use the same number for both, or set tables.{name}.scope to all"
        for name, table in settings.tables.items()
        if table.scope == "partition" and table.topic in existing
        for topic in settings.input.topics
        if topic in existing and existing[topic].partitions != existing[table.topic].partitions
    ]


def uncompacted(settings: Settings, existing: Mapping[str, DescribedTopic]) -> list[str]:
    """Return one line of text for each table whose topic is known not to be compacted. Pure.

    A scorer can read such a topic. But the broker deletes its rows by age, or retains all old rows for ever.
    """
    lines = []
    for name, table in settings.tables.items():
        topic = existing.get(table.topic)
        if topic is None or topic.cleanup_policy is None or "compact" in topic.cleanup_policy.split(","):
            continue
        effect = "old rows are never removed" if topic.retention_seconds is None else "rows are deleted by age"
        lines.append(
            f"table {name}: topic {topic.name} is not compacted: {effect}; set cleanup.policy of {topic.name} to compact"
        )
    return lines


def missing(settings: Settings, existing: Mapping[str, DescribedTopic], partitions: int) -> list[NewTopic]:
    """Return the missing topics, with the properties that `scorer check --create` gives them. Pure.

    A new input topic gets `partitions` partitions. The topics that are partitioned like the input, such as scores and dead
    letters, get as many partitions as the existing input topic with the most partitions, or `partitions` if no input topic
    exists. The topics of tables get as many, too, and are compacted. All other topics get one partition.

    If the name of an input topic ends with the name of another input topic, such as eu.flights beside flights, the topic is
    assumed to be a relay's copy. The size limit of the copy is the limit of the other topic plus the size of the headers that
    the relay adds, as `publisher check` requires.
    """
    # The topics that are partitioned like the input, such as scores and dead letters, get as many partitions as the existing
    # input topic with the most partitions. All other topics get one partition. If the name of an input topic ends with the name
    # of another one, such as eu.flights beside flights, it is assumed to be a relay's copy: its limit is higher by the size of
    # the headers that the relay adds, as `publisher check` requires.
    inputs = [existing[name] for name in settings.input.topics if name in existing]
    width = max([topic.partitions for topic in inputs], default=partitions)
    copies = {
        name: {"max.message.bytes": str(limit + HEADER_BYTES)}
        for name in settings.input.topics
        if (limit := _copied_limit(name, settings.input.topics, existing)) is not None and name not in existing
    }
    new_limits = [int(config["max.message.bytes"]) for config in copies.values()]
    largest = max([*(topic.max_bytes for topic in inputs), *new_limits], default=DEFAULT_MAX_BYTES)
    plans = {
        **{name: NewTopic(name, partitions, config=copies.get(name, {})) for name in settings.input.topics},
        settings.output.topic: NewTopic(settings.output.topic, width),
        settings.dead_letter.topic: NewTopic(
            settings.dead_letter.topic, width, config=UNLIMITED | {"max.message.bytes": str(largest + DEAD_LETTER_ROOM)}
        ),
        settings.replayed_topic: NewTopic(settings.replayed_topic, 1, config=BROKER_TIME | {"cleanup.policy": "compact"}),
        settings.corrections_topic: NewTopic(settings.corrections_topic, width),
        settings.shadow_topic: NewTopic(settings.shadow_topic, width),
        settings.rollouts_topic: NewTopic(settings.rollouts_topic, 1, config=BROKER_TIME | COMPACTED_HOURLY),
        settings.runs_topic: NewTopic(settings.runs_topic, 1, config=BROKER_TIME | COMPACTED_HOURLY),
        settings.status_topic: NewTopic(settings.status_topic, 1, config=BROKER_TIME | {"cleanup.policy": "compact"}),
        settings.swaps_topic: NewTopic(settings.swaps_topic, 1, config=BROKER_TIME | UNLIMITED),
    }
    if settings.features.topic:
        plans[settings.features.topic] = NewTopic(settings.features.topic, width)
    for table in settings.tables.values():
        plans[table.topic] = NewTopic(table.topic, width, config={"cleanup.policy": "compact"})
    if settings.labels.topic:
        plans[settings.labels.topic] = NewTopic(settings.labels.topic, width)
    return [plan for name, plan in plans.items() if name not in existing]


def _copied_limit(name: str, inputs: Sequence[str], existing: Mapping[str, DescribedTopic]) -> int | None:
    """Return the size limit of the topic from which a relay copies the topic `name`; None if `name` is not a copy."""
    # The source topic is in another cluster, so its limit is unknown. It is assumed to be that of the local topic with the same
    # name, or Kafka's default.
    originals = [each for each in inputs if each != name and name.endswith(each)]
    if not originals:
        return None
    original = existing.get(max(originals, key=len))
    return original.max_bytes if original is not None else DEFAULT_MAX_BYTES


def create(settings: KafkaSettings, client_id: str, topics: list[NewTopic]) -> None:
    """Create topics, and wait until every partition has a leader. Raises Fatal if the broker rejects a topic."""
    broker = kafka_topics.Topics(settings, client_id, "the broker", BROKER_SECONDS)
    with retriable_as_fatal("see the broker's log; then try again", "the topics are not created yet: "):
        broker.create_all(topics)
        broker.wait_for_leaders({topic.topic: topic.num_partitions for topic in topics}, LEADER_SECONDS)
