"""The topics of a scorer: their required properties, and how `scorer check --create` creates them."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from confluent_kafka.admin import AdminClient, NewTopic

from model_registry import suggestions
from publisher.errors import USAGE, Fatal, Retriable, retriable_as_fatal
from publisher.kafka import acls
from publisher.kafka import topics as kafka_topics
from publisher.kafka.acls import DESCRIBE, READ, WRITE, Operations
from publisher.kafka.clients import KafkaSettings
from scorer.settings import Settings

BROKER_SECONDS = 10.0
CREATE_HINT = "scorer check CONFIG --create makes what is missing"
LEADER_SECONDS = 60.0  # a broker that is busy elects late; nothing is half-made meanwhile
DEFAULT_MAX_BYTES = 1_048_588  # Apache Kafka's default for max.message.bytes, where the right to read it is missing
RECORD_OVERHEAD = 1_024  # bytes that a record and its headers add to key and value in the broker's count
DEAD_LETTER_ROOM = 4_096  # what the headers of a dead letter may add to the original record
UNLIMITED = {"retention.ms": "-1"}
OWN_TIME = {"message.timestamp.type": "LogAppendTime"}
"""Of topics whose records have no event's time: they are taken from a scorer whose clock is wrong, too."""
SOON_COMPACTED = {"cleanup.policy": "compact", "segment.ms": "3600000"}
"""Of a topic that is told how something stands every few seconds: a broker leaves the newest segment as it is."""


@dataclass(frozen=True, slots=True)
class DescribedTopic:
    """What the broker says of a topic. `max_bytes` is the largest record batch it takes; Apache Kafka's default where it was
    not `told`, because the right to describe the topic's configuration is missing."""

    name: str
    partitions: int
    max_bytes: int
    told: bool = True


def describe(admin: AdminClient, settings: KafkaSettings, needed: Mapping[str, Operations]) -> dict[str, DescribedTopic]:
    """The topics that exist, of those named in `needed`, with what is to be done with each. Raises Fatal: 3 where the broker
    does not allow that, 4 where it does not answer. A topic that nothing is to be done with is left out where it may not be
    seen."""
    asked = kafka_topics.Topics(settings, "scorer", "the broker", BROKER_SECONDS, admin)
    with retriable_as_fatal("see its log; try again"):
        found = asked.allowed(needed)
        limits = {name: config.get("max.message.bytes") for name, config in asked.configs(found).items()}
    return {
        name: DescribedTopic(name, found[name].partitions, int(limits[name] or DEFAULT_MAX_BYTES), limits[name] is not None)
        for name in needed
        if name in found
    }


def required(settings: Settings) -> dict[str, Operations]:
    """Return every topic that `scorer run` needs, inputs first, with the operations on it."""
    written = dict.fromkeys((*settings.answer_topics, settings.status_topic), frozenset({WRITE}))
    if settings.swaps_topic in written:
        written[settings.swaps_topic] = frozenset({READ, WRITE})
    return acls.to_read(*settings.input.topics) | written


def optional(settings: Settings) -> dict[str, str]:
    """Return the topics that `scorer run` does not need, with the command that does."""
    return {
        settings.replayed_topic: "scorer replay",
        settings.corrections_topic: "scorer rescore",
        settings.shadow_topic: "scorer run --shadow",
        settings.rollouts_topic: "scorer rollout",
    }


def known(settings: Settings) -> dict[str, Operations]:
    """Return every topic that any command needs, labels included."""
    labels = [settings.labels.topic] if settings.labels.topic else []
    return required(settings) | dict.fromkeys([*optional(settings), *labels], frozenset())


def seen(*names: str) -> dict[str, Operations]:
    """Return the operations for topics of which only the start and end offsets are read."""
    return dict.fromkeys(names, frozenset({DESCRIBE}))


def names(admin: AdminClient, settings: KafkaSettings) -> list[str]:
    """Return the names of all topics, for questions about misspelt ones; none if the broker does not list them."""
    with suppress(Fatal, Retriable):
        return kafka_topics.Topics(settings, "scorer", "the broker", BROKER_SECONDS, admin).names()
    return []


def check_present(settings: Settings, admin: AdminClient, found: Mapping[str, DescribedTopic], needed: Iterable[str]) -> None:
    """Raise Fatal (2), with a topic of a similar name, if a needed topic is missing."""
    if absent := [name for name in needed if name not in found]:
        raise Fatal("; ".join(_absent(settings, absent, names(admin, settings.kafka))), CREATE_HINT, USAGE)


def _absent(settings: Settings, absent: Iterable[str], existing: Iterable[str]) -> list[str]:
    """Return a line for each missing topic, with an existing one of a similar name that the settings do not name. Pure."""
    used = known(settings)
    others = [name for name in existing if name not in used]
    questions = {name: suggestions.question(name, others) for name in absent}
    return [f"topic {name} does not exist" + (f": {question}" if question else "") for name, question in questions.items()]


def faults(settings: Settings, found: Mapping[str, DescribedTopic], existing: Iterable[str] = ()) -> list[str]:
    """Return what is wrong with the topics, a line each. Pure.

    Args:
        settings: the scorer's settings.
        found: those topics of the settings that exist.
        existing: the names of all topics, for questions about misspelt ones.
    """
    lines = _absent(settings, [name for name in required(settings) if name not in found], existing)
    output = found.get(settings.output.topic)
    if output is not None and output.told and output.max_bytes <= RECORD_OVERHEAD:
        lines.append(
            f"topic {output.name} takes records up to {output.max_bytes} bytes: no score fits; set max.message.bytes of "
            f"{output.name} to {2 * RECORD_OVERHEAD} at least"
        )
    dead = found.get(settings.dead_letter.topic)
    for name in settings.input.topics:
        if dead is not None and dead.told and name in found and dead.max_bytes < found[name].max_bytes + DEAD_LETTER_ROOM:
            lines.append(
                f"topic {dead.name} takes records up to {dead.max_bytes} bytes, {name} up to {found[name].max_bytes}: a dead "
                f"letter might not fit; set max.message.bytes of {dead.name} to {found[name].max_bytes + DEAD_LETTER_ROOM}"
            )
    return lines


def missing(settings: Settings, found: Mapping[str, DescribedTopic], partitions: int) -> list[NewTopic]:
    """What `--create` makes: inputs with `partitions`, labels, outputs and dead letters like the widest input. Pure."""
    inputs = [found[name] for name in settings.input.topics if name in found]
    width = max([topic.partitions for topic in inputs], default=partitions)
    largest = max([topic.max_bytes for topic in inputs], default=DEFAULT_MAX_BYTES)
    plans = {
        **{name: NewTopic(name, partitions) for name in settings.input.topics},
        settings.output.topic: NewTopic(settings.output.topic, width),
        settings.dead_letter.topic: NewTopic(
            settings.dead_letter.topic, width, config=UNLIMITED | {"max.message.bytes": str(largest + DEAD_LETTER_ROOM)}
        ),
        settings.replayed_topic: NewTopic(settings.replayed_topic, 1, config=OWN_TIME | {"cleanup.policy": "compact"}),
        settings.corrections_topic: NewTopic(settings.corrections_topic, width),
        settings.shadow_topic: NewTopic(settings.shadow_topic, width),
        settings.rollouts_topic: NewTopic(settings.rollouts_topic, 1, config=OWN_TIME | SOON_COMPACTED),
        settings.status_topic: NewTopic(settings.status_topic, 1, config=OWN_TIME | {"cleanup.policy": "compact"}),
        settings.swaps_topic: NewTopic(settings.swaps_topic, 1, config=OWN_TIME | UNLIMITED),
    }
    if settings.labels.topic:
        plans[settings.labels.topic] = NewTopic(settings.labels.topic, width)
    return [plan for name, plan in plans.items() if name not in found]


def create(settings: KafkaSettings, client_id: str, topics: list[NewTopic]) -> None:
    """Create these topics, and wait until every partition has its leader. Raises Fatal with the first refusal."""
    asked = kafka_topics.Topics(settings, client_id, "the broker", BROKER_SECONDS)
    with retriable_as_fatal("see the broker's log; then try again", "the topics are not made yet: "):
        asked.create_all(topics)
        asked.led({topic.topic: topic.num_partitions for topic in topics}, LEADER_SECONDS)
