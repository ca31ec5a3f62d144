"""The topics a scorer needs: which, how they must be, and how `scorer check --create` makes them."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

from publisher.errors import Fatal
from publisher.kafka import clients as kafka
from publisher.kafka import rights
from publisher.kafka.clients import KafkaSettings
from publisher.kafka.error_codes import REFUSED_CODES
from publisher.kafka.rights import CREATE, DESCRIBE, READ, WRITE, Operations, Right
from scorer.settings import Settings

BROKER_SECONDS = 10.0
LEADER_SECONDS = 60.0  # a broker that is busy elects late; nothing is half-made meanwhile
DEFAULT_MAX_BYTES = 1_048_588  # Apache Kafka's default for max.message.bytes, where the right to read it is missing
DEAD_LETTER_ROOM = 4_096  # what the headers of a dead letter may add to the original record
LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]
ABSENT = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION}
UNLIMITED = {"retention.ms": "-1"}


@dataclass(frozen=True, slots=True)
class Topic:
    """What the broker says of a topic. `max_bytes` is the largest record batch it takes; Apache Kafka's default where it was
    not `told`, because the right to describe the topic's configuration is missing."""

    name: str
    partitions: int
    max_bytes: int
    told: bool = True


def describe(admin: AdminClient, settings: KafkaSettings, needed: Mapping[str, Operations]) -> dict[str, Topic]:
    """The topics that exist, of those named in `needed`, with what is to be done with each.

    Raises Fatal: 3 where the broker does not allow that, 4 where it does not answer. A topic that nothing is to be done with
    is left out where it may not be seen.
    """
    asked = admin.describe_topics(
        TopicCollection(list(needed)), include_authorized_operations=True, request_timeout=BROKER_SECONDS
    )
    found: dict[str, int] = {}
    allowed: dict[str, Operations | None] = {}
    for name, answer in asked.items():
        try:
            told = answer.result()
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                allowed[name] = frozenset()
            elif code not in ABSENT:
                raise Fatal(
                    f"the broker does not describe topic {name}: {error.args[0].str()}", "see its log; try again"
                ) from None
        else:
            found[name] = len(told.partitions)
            allowed[name] = frozenset(told.authorized_operations) if told.authorized_operations else None
    if lacking := rights.missing(needed, allowed):
        raise rights.refused(settings, lacking)
    limits = _limits(admin, list(found))
    return {n: Topic(n, count, limits.get(n, DEFAULT_MAX_BYTES), n in limits) for n, count in found.items()}


def _limits(admin: AdminClient, names: list[str]) -> dict[str, int]:
    if not names:
        return {}
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    limits = {}
    for resource, answer in admin.describe_configs(resources, request_timeout=BROKER_SECONDS).items():
        try:
            limits[resource.name] = int(answer.result()["max.message.bytes"].value)
        except KafkaException:  # no right to describe it, which is not needed
            continue
    return limits


def required(settings: Settings) -> dict[str, Operations]:
    """Every topic that `scorer run` needs, inputs first, and what it does with them."""
    own = [settings.output.topic, settings.dead_letter.topic, settings.status_topic]
    written = dict.fromkeys(own, frozenset({WRITE}))
    return read(*settings.input.topics) | written | {settings.swaps_topic: frozenset({READ, WRITE})}


def known(settings: Settings) -> dict[str, Operations]:
    """Every topic that any command needs: those of `scorer run`, and that of `scorer replay`, which it has no need of."""
    return required(settings) | {settings.replayed_topic: frozenset()}


def read(*names: str) -> dict[str, Operations]:
    """These topics are to be read."""
    return dict.fromkeys(names, frozenset({READ}))


def seen(*names: str) -> dict[str, Operations]:
    """It is to be known where these topics begin and end."""
    return dict.fromkeys(names, frozenset({DESCRIBE}))


def faults(settings: Settings, found: Mapping[str, Topic]) -> list[str]:
    """What is wrong with the topics, a line each; nothing where all is well. Pure."""
    lines = [f"topic {name} does not exist" for name in required(settings) if name not in found]
    dead = found.get(settings.dead_letter.topic)
    for name in settings.input.topics:
        if dead is not None and dead.told and name in found and dead.max_bytes < found[name].max_bytes + DEAD_LETTER_ROOM:
            lines.append(
                f"topic {dead.name} takes records up to {dead.max_bytes} bytes, {name} up to {found[name].max_bytes}: a dead "
                f"letter might not fit; set max.message.bytes of {dead.name} to {found[name].max_bytes + DEAD_LETTER_ROOM}"
            )
    return lines


def missing(settings: Settings, found: Mapping[str, Topic], partitions: int) -> list[NewTopic]:
    """What `--create` makes: inputs with `partitions`, outputs and dead letters like the widest input. Pure."""
    inputs = [found[name] for name in settings.input.topics if name in found]
    width = max([topic.partitions for topic in inputs], default=partitions)
    largest = max([topic.max_bytes for topic in inputs], default=DEFAULT_MAX_BYTES)
    plans = {
        **{name: NewTopic(name, partitions) for name in settings.input.topics},
        settings.output.topic: NewTopic(settings.output.topic, width),
        settings.dead_letter.topic: NewTopic(
            settings.dead_letter.topic, width, config=UNLIMITED | {"max.message.bytes": str(largest + DEAD_LETTER_ROOM)}
        ),
        settings.replayed_topic: NewTopic(settings.replayed_topic, 1, config={"cleanup.policy": "compact"}),
        settings.status_topic: NewTopic(settings.status_topic, 1, config={"cleanup.policy": "compact"}),
        settings.swaps_topic: NewTopic(settings.swaps_topic, 1, config=UNLIMITED),
    }
    return [plan for name, plan in plans.items() if name not in found]


def create(settings: KafkaSettings, client_id: str, topics: list[NewTopic]) -> None:
    """Create these topics, and wait until every partition has its leader. Raises Fatal with the first refusal.

    With a client of its own: one that has asked for a topic which did not exist goes on finding no leaders for it.
    """
    admin = kafka.admin(settings, client_id)
    for name, made in admin.create_topics(topics, operation_timeout=BROKER_SECONDS).items() if topics else ():
        try:
            made.result()
        except KafkaException as error:
            if error.args[0].code() in REFUSED_CODES:
                raise rights.refused(settings, [Right(CREATE, rights.TOPIC, name)]) from None
            raise Fatal(f"cannot create topic {name}: {error.args[0].str()}", "see the broker's log", 3) from error
    partitions = [TopicPartition(topic.topic, p) for topic in topics for p in range(topic.num_partitions)]
    deadline = time.monotonic() + LEADER_SECONDS
    while fault := _not_led(kafka.admin(settings, client_id), partitions):
        if time.monotonic() > deadline:
            raise Fatal(f"the new topics have no leaders yet: {fault}", "see the broker's log; then try again", 4)
        time.sleep(0.2)


def _not_led(admin: AdminClient, partitions: list[TopicPartition]) -> KafkaError | None:
    """What the first partition that has no leader answers; None where all have one."""
    try:
        for answer in admin.list_offsets(dict.fromkeys(partitions, LATEST), request_timeout=BROKER_SECONDS).values():
            answer.result()
    except KafkaException as error:
        refusal: KafkaError = error.args[0]
        return refusal
    return None
