"""The topics a scorer needs: which, how they must be, and how `scorer check --create` makes them."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

from publisher.errors import Fatal
from scorer.settings import Settings

BROKER_SECONDS = 10.0
LEADER_SECONDS = 60.0  # a broker that is busy elects late; nothing is half-made meanwhile
DEFAULT_MAX_BYTES = 1_048_588  # Apache Kafka's default for max.message.bytes, where the right to read it is missing
DEAD_LETTER_ROOM = 4_096  # what the headers of a dead letter may add to the original record
LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]
UNLIMITED = {"retention.ms": "-1"}


@dataclass(frozen=True, slots=True)
class Topic:
    """What the broker says of a topic. `max_bytes` is the largest record batch it takes."""

    name: str
    partitions: int
    max_bytes: int


def describe(admin: AdminClient, names: Iterable[str]) -> dict[str, Topic]:
    """The topics that exist. Raises Fatal where the broker does not answer."""
    wanted = list(dict.fromkeys(names))
    try:
        known = admin.list_topics(timeout=BROKER_SECONDS).topics
    except KafkaException as error:
        raise Fatal(
            f"no Kafka broker answers: {error.args[0].str()}",
            "check kafka.bootstrap_servers, and that the broker runs",
            4,
        ) from error
    found = [name for name in wanted if name in known and known[name].error is None]
    return {name: Topic(name, len(known[name].partitions), limit) for name, limit in _limits(admin, found).items()}


def _limits(admin: AdminClient, names: list[str]) -> dict[str, int]:
    if not names:
        return {}
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    limits = dict.fromkeys(names, DEFAULT_MAX_BYTES)
    for resource, answer in admin.describe_configs(resources, request_timeout=BROKER_SECONDS).items():
        try:
            limits[resource.name] = int(answer.result()["max.message.bytes"].value)
        except KafkaException:  # no right to describe: the default is assumed
            continue
    return limits


def required(settings: Settings) -> list[str]:
    """Every topic that `scorer run` needs, inputs first."""
    own = [settings.output.topic, settings.dead_letter.topic, settings.status_topic, settings.swaps_topic]
    return [*settings.input.topics, *own]


def known(settings: Settings) -> list[str]:
    """Every topic that any command needs: those of `scorer run`, and that of `scorer replay`."""
    return [*required(settings), settings.replayed_topic]


def faults(settings: Settings, found: Mapping[str, Topic]) -> list[str]:
    """What is wrong with the topics, a line each; nothing where all is well. Pure."""
    lines = [f"topic {name} does not exist" for name in required(settings) if name not in found]
    dead = found.get(settings.dead_letter.topic)
    for name in settings.input.topics:
        if dead is not None and name in found and dead.max_bytes < found[name].max_bytes + DEAD_LETTER_ROOM:
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


def create(make_admin: Callable[[], AdminClient], topics: list[NewTopic]) -> None:
    """Create these topics, and wait until every partition has its leader. Raises Fatal with the first refusal.

    `make_admin` gives a new client: one that has seen a topic missing was seen to go on saying so without asking again.
    """
    admin = make_admin()
    for name, made in admin.create_topics(topics, operation_timeout=BROKER_SECONDS).items() if topics else ():
        try:
            made.result()
        except KafkaException as error:
            raise Fatal(f"cannot create topic {name}: {error.args[0].str()}", "check the right to create topics", 3) from error
    partitions = [TopicPartition(topic.topic, p) for topic in topics for p in range(topic.num_partitions)]
    deadline = time.monotonic() + LEADER_SECONDS
    while fault := _not_led(make_admin(), partitions):
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
