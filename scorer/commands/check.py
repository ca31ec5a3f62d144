"""`scorer check`: says what is wrong before anything runs. Each step uses the code that `scorer run` uses for it."""

import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import Annotated

import typer
from confluent_kafka import KafkaException, Message
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from model_registry.channels.signed_move import move_admission
from model_registry.errors import RegistryError
from publisher.errors import Fatal, NotAllowed
from publisher.kafka import clients as kafka
from publisher.kafka import groups
from publisher.kafka.connection import connect
from publisher.kafka.reader import TopicReader
from publisher.runtime.command_line import Config, Finding, Json, Set, print_findings
from publisher.transactions.transactional_ids import initialised
from scorer import topics
from scorer.backends.base import ModelRefused
from scorer.crash_isolation.trial_load import tried_loader
from scorer.decoding.record_metadata import ListedParts
from scorer.decoding.types import decode_patiently
from scorer.evaluation.class_names import Classes
from scorer.evaluation.join_labels import labels_of
from scorer.evaluation.label_record import Unusable
from scorer.models.registry_access import open_cache, open_source, pull_version
from scorer.models.servable import Servable, make
from scorer.native.librdkafka import in_words
from scorer.observability import foreign_members
from scorer.settings import Settings, load
from scorer.settings.carry import CarriedField, Row
from scorer.topics import Topic

BEGIN_SECONDS = 60.0  # for a first transaction, which may wait for a coordinator that loads on a busy machine
AGAIN_SECONDS = 0.1
KNOWN_SECONDS = 30.0  # until every broker knows of topics that are made; each look may ask another one
SAMPLE = 100  # newest events of each input partition that are decoded
KIP_848_LIMITS = ("group.consumer.min.session.timeout.ms", "group.consumer.min.heartbeat.interval.ms")


def check(
    path: Config,
    flags: Set = None,
    create: Annotated[bool, typer.Option("--create", help="Create the topics that are missing.")] = False,
    partitions: Annotated[int, typer.Option(help="Partitions of input topics that --create makes.", min=1)] = 6,
    as_json: Json = False,
) -> None:
    """Say what is wrong before anything runs: broker, topics, model, golden examples, a sample of the events."""
    print_findings(findings(load(path, flags or []).settings, create=create, partitions=partitions), as_json)


def findings(settings: Settings, *, create: bool = False, partitions: int = 6) -> Iterator[Finding]:
    """Every check in turn. A check that needs an earlier one is left out where that one failed."""
    found: dict[str, topics.Topic] = {}
    try:
        admin = connect(settings.kafka, f"{settings.name}.check")
    except Fatal as error:
        yield Finding("broker", False, str(error), error.hint)
    else:
        yield Finding("broker", True, f"{settings.kafka.bootstrap_servers} answers")
        found = yield from _broker(settings, admin, create, partitions)
    try:
        package, resolution = pull_version(settings)
        moves = move_admission(settings.model.policy, open_cache(settings.model).root)
        moves.check(open_source(settings), settings.model.tag, resolution, datetime.now(UTC))
        servable = make(package, resolution, tried_loader(settings), settings)
    except (RegistryError, Fatal) as error:
        yield Finding("model", False, str(error), error.hint)
    except ModelRefused as error:
        yield Finding("model", False, str(error), "push a version that passes, then promote it")
    else:
        golden = f"answers its golden examples ({len(package.golden)})"
        answers = golden if package.golden else "brings no golden examples: no score of it was compared"
        yield Finding("model", True, f"{servable.label} loads, and {answers}")
        yield Finding("native", True, f"the native part: {in_words()}")
        yield from _samples(settings, servable, found)
    if found and settings.labels.topic:
        yield _labels(settings, settings.labels.topic, found)


def _broker(
    settings: Settings, admin: AdminClient, create: bool, partitions: int
) -> Generator[Finding, None, dict[str, Topic]]:
    """Topics, rights and the group's limits; the topics that may be used."""
    try:
        found = topics.describe(admin, settings.kafka, topics.known(settings))
        plans = topics.missing(settings, found, partitions) if create else []
        if plans:
            topics.create(settings.kafka, f"{settings.name}.check", plans)
            deadline = time.monotonic() + KNOWN_SECONDS
            while not {plan.topic for plan in plans} <= found.keys() and time.monotonic() < deadline:
                time.sleep(AGAIN_SECONDS)
                found = topics.describe(admin, settings.kafka, topics.known(settings))
            yield Finding("created", True, ", ".join(f"{plan.topic} ({plan.num_partitions})" for plan in plans))
        yield from _topics(settings, found, topics.names(admin, settings.kafka))
        _group_and_transactions(settings, admin)
        yield _members(settings, admin)
    except Fatal as error:
        yield Finding("rights" if isinstance(error, NotAllowed) else "broker", False, str(error), error.hint)
        return {}
    tried = ["topics that exist", "group", *(["transactions"] if settings.delivery == "exactly-once" else [])]
    yield Finding("rights", True, f"the broker refuses none of: {', '.join(tried)}")
    if settings.kafka.group_protocol == "consumer":
        yield _group_settings(settings, admin)
    return found


def _group_and_transactions(settings: Settings, admin: AdminClient) -> None:
    """Join the group and begin a transaction: only an attempt shows whether the broker allows it. Raises Fatal."""
    groups.check_right_to_join(admin, settings.kafka, settings.name)
    if settings.delivery == "exactly-once":
        initialised(
            lambda name: kafka.transactional_producer(settings.kafka, name, settings.owner),
            f"{settings.transactional_prefix(settings.owner)}/check",
            time.monotonic,
            threading.Event(),
            BEGIN_SECONDS,
        )


def _members(settings: Settings, admin: AdminClient) -> Finding:
    """Whether the consumer group has only scorers as members."""
    try:
        found = foreign_members.foreign(groups.described(admin, settings.name), settings.name)
    except KafkaException as error:
        return Finding("members", True, f"the members of consumer group {settings.name} are not known: {error.args[0].str()}")
    if found:
        return Finding("members", False, foreign_members.in_words(found, settings.name), foreign_members.HINT)
    return Finding("members", True, f"consumer group {settings.name} has no members that are not scorers")


def _topics(settings: Settings, found: dict[str, topics.Topic], existing: list[str]) -> Iterator[Finding]:
    wrong = topics.faults(settings, found, existing)
    for fault in wrong:
        yield Finding("topic", False, fault, "--create makes missing topics")
    if not wrong:
        yield Finding("topics", True, ", ".join(f"{t.name} ({t.partitions})" for t in found.values()))
    if absent := [f"{name} ({verb})" for name, verb in topics.optional(settings).items() if name not in found]:
        yield Finding("optional", True, f"not there: {', '.join(absent)}; --create makes them")


def _group_settings(settings: Settings, admin: AdminClient) -> Finding:
    """KIP-848: session and heartbeat are the broker's; its defaults make a take-over wait for 45 s."""
    resource = ConfigResource(ResourceType.BROKER, str(next(iter(admin.list_topics(timeout=5).brokers))))
    try:
        values = admin.describe_configs([resource], request_timeout=5)[resource].result()
    except KafkaException as error:
        return Finding("group protocol", True, f"the broker does not tell its limits: {error.args[0].str()}")
    session = int(values["group.consumer.session.timeout.ms"].value)
    limits = ", ".join(f"{name}={values[name].value}" for name in KIP_848_LIMITS if name in values)
    if session > settings.kafka.session_timeout_ms:
        return Finding(
            "group protocol",
            False,
            f"the broker's group.consumer.session.timeout.ms is {session} ({limits}): after a crash partitions stall so long",
            f"lower it to {settings.kafka.session_timeout_ms} for group {settings.name}, or use group_protocol: classic",
        )
    return Finding("group protocol", True, f"consumer, session {session} ms")


def _samples(settings: Settings, servable: Servable, found: dict[str, topics.Topic]) -> Iterator[Finding]:
    for name in settings.input.topics:
        if name not in found:
            continue
        messages, offsets = newest(settings, name)
        if settings.input.tombstones == "skip":
            messages = [message for message in messages if message.value() is not None]
        values = [message.value() for message in messages]
        decoded = decode_patiently(servable.loaded.decoder, values, ListedParts.of(messages))
        good = len(decoded.rows)
        if not values:
            none = f"no event came of its newest {offsets} offsets" if offsets else "it is empty"
            yield Finding("sample", True, f"no event of {name} was decoded: {none}")
        elif decoded.rejected:
            row, poison = min(decoded.rejected.items(), key=itemgetter(0))
            event = values[row]
            shown = "null" if event is None else repr(event[:200])
            yield Finding(
                "sample",
                False,
                f"{len(values) - good} of the newest {len(values)} events of {name} would be dead-lettered; "
                f"the first: {poison.reason}: {poison}",
                f"compare the producer with the version's signature; the event: {shown}",
            )
        else:
            yield Finding("sample", True, f"the newest {good} events of {name} decode")
            yield from _ids(settings.input.id_field, name, decoded.ids)
            yield from _carried(settings.output.carry, name, decoded.carried or [])


def _labels(settings: Settings, topic: str, found: dict[str, topics.Topic]) -> Finding:
    """Whether the newest labels say of which event they are and what came true."""
    if topic not in found:
        return Finding("labels", False, f"topic {topic} does not exist, or may not be seen", "--create makes what is missing")
    messages, _ = newest(settings, topic)
    read = labels_of(settings)
    classes = Classes(tuple(settings.labels.classes)) if settings.labels.classes else None

    def refusal(message: Message) -> Unusable | None:
        said = read(message)
        if isinstance(said, Unusable):
            return said
        outcome = classes.of_label(said.value) if classes and said.value is not None else None
        return outcome if isinstance(outcome, Unusable) else None

    refused = Counter(reason for message in messages if (reason := refusal(message)) is not None)
    told = f"{len(messages) - refused.total()} of the newest {len(messages)} labels of {topic} can be read"
    if not refused:
        return Finding("labels", True, told)
    why = ", ".join(f"{reason} ({count})" for reason, count in refused.most_common())
    return Finding("labels", False, f"{told}; the others: {why}", "see labels.id, labels.value and labels.classes")


def _carried(fields: Sequence[CarriedField], topic: str, rows: Sequence[Row]) -> Iterator[Finding]:
    """A misspelt path loses no event: its value is null in all scores."""
    for field, values in zip(fields, zip(*rows, strict=True), strict=False):
        if without := sum(value is None for value in values):
            told = f"{without} of the newest {len(rows)} events of {topic} have no {field.words} to carry"
            yield Finding("carry", without < len(rows), told, "output.carry names fields of the event by path")


def _ids(field: str | None, topic: str, ids: Sequence[str | int | None]) -> Iterator[Finding]:
    """A misspelt `input.id` loses no event: all are named by their places, which nobody else knows them by."""
    without = sum(each is None for each in ids)
    if without and field is not None:
        told = f"{without} of the newest {len(ids)} events of {topic} have no {field!r}, and are named by their places"
        yield Finding("ids", without < len(ids), told, "input.id names the field that identifies an event")


def newest(settings: Settings, topic: str) -> tuple[list[Message], int]:
    """The events at the SAMPLE newest offsets of each partition, and how many offsets that are. Raises Fatal."""
    reader = TopicReader(settings.kafka, f"{settings.name}.check")
    every = reader.spans(reader.partitions([topic]))
    spans = {partition: (max(low, end - SAMPLE), end) for partition, (low, end) in every.items()}
    messages = [message for batch in reader.read(spans) for message in batch.messages]
    return messages, sum(stop - start for start, stop in spans.values())
