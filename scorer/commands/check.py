"""`scorer check`: check the configuration, broker, topics, model and sample events before a start.

Each step uses the code of `scorer run`.
"""

import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import Annotated

import typer
from confluent_kafka import KafkaException, Message
from confluent_kafka.admin import AdminClient, ConfigEntry, ConfigResource, ResourceType

from model_registry.channels.signed_move import move_admission
from model_registry.errors import RegistryError
from model_registry.package import field_sources
from model_registry.package.signature import InputField
from publisher.errors import Fatal, NotAllowed, Retriable
from publisher.kafka import acls, groups
from publisher.kafka import clients as kafka
from publisher.kafka.acls import READ, TOPIC, Right
from publisher.kafka.connection import ANSWER_SECONDS, connect
from publisher.kafka.error_codes import REFUSED
from publisher.kafka.reader import TopicReader
from publisher.runtime.command_line import Config, Finding, Json, Set, print_findings
from publisher.transactions.transactional_ids import initialised
from scorer import topics
from scorer.backends.base import ModelRefused
from scorer.crash_isolation.trial_load import tried_loader
from scorer.decoding.record_metadata import ListedMetadata
from scorer.decoding.table_rows import row_decoder_factory
from scorer.decoding.types import LookUpsPending, decode_after_look_ups
from scorer.evaluation.class_names import Classes
from scorer.evaluation.join_labels import labels_of
from scorer.evaluation.label_record import Unusable
from scorer.features.logged_inputs import absent_names, select_logged
from scorer.models.registry_access import open_cache, open_source, pull_version
from scorer.models.servable import Servable, make
from scorer.native import byte_columns
from scorer.native.librdkafka import plugin_status
from scorer.observability import foreign_members
from scorer.settings import Settings, load
from scorer.settings.carry import CarriedField, Row
from scorer.tables.lookup import ExampleTables, JoinedColumns, Partitions
from scorer.tables.row_blocks import BlockLayout, DecodedRows, RowDecoder
from scorer.topics import DescribedTopic

BEGIN_SECONDS = 60.0  # time limit of the first transaction, which may wait until its coordinator has loaded its state
RETRY_SECONDS = 0.1
METADATA_SECONDS = 30.0  # until every broker knows new topics; each request may reach another broker
SAMPLE = 100  # newest events of each input partition that are decoded
KIP_848_LIMITS = ("group.consumer.min.session.timeout.ms", "group.consumer.min.heartbeat.interval.ms")


def check(
    path: Config,
    flags: Set = None,
    create: Annotated[bool, typer.Option("--create", help="Create the missing topics.")] = False,
    partitions: Annotated[
        int, typer.Option(help="The number of partitions of each input topic that --create creates.", min=1)
    ] = 6,
    as_json: Json = False,
) -> None:
    """Check a scorer before its start: broker, topics, rights, model, golden examples and sample events."""
    print_findings(findings(load(path, flags or []).settings, create=create, partitions=partitions), as_json)


def findings(settings: Settings, *, create: bool = False, partitions: int = 6) -> Iterator[Finding]:
    """Yield the result of each check. A check that depends on a failed check is skipped.

    Args:
        settings: The settings to check.
        create: Whether to create missing topics.
        partitions: The number of partitions of created input topics.
    """
    described: dict[str, topics.DescribedTopic] = {}
    hidden: frozenset[str] = frozenset()
    try:
        admin = connect(settings.kafka, f"{settings.name}.check")
    except Fatal as error:
        yield Finding("broker", False, str(error), error.hint)
    else:
        yield Finding("broker", True, f"{settings.kafka.bootstrap_servers} responds")
        described, hidden = yield from _broker(settings, admin, create, partitions)
    try:
        package, resolution = pull_version(settings)
        moves = move_admission(settings.model.policy, open_cache(settings.model).root)
        moves.check(open_source(settings), settings.model.tag, resolution, datetime.now(UTC))
        tables = CountedKeys()
        servable = make(package, resolution, tried_loader(settings, tables=tables), settings)
    except (RegistryError, Fatal) as error:
        yield Finding("model", False, str(error), error.hint)
    except ModelRefused as error:
        yield Finding("model", False, str(error), "push a version that passes these checks, then promote it")
    else:
        golden = f"passes its golden examples ({len(package.golden)})"
        result = golden if package.golden else "has no golden examples to compare with"
        yield Finding("model", True, f"{servable.label} loads and {result}")
        yield Finding("native", True, f"native library: {plugin_status()}")
        yield from _logged_fields(settings, servable)
        yield from _samples(settings, servable, described, tables)
        yield from _rows(settings, servable, described)
    if described and settings.labels.topic:
        yield _labels(settings, settings.labels.topic, described, hidden)


def _broker(
    settings: Settings, admin: AdminClient, create: bool, partitions: int
) -> Generator[Finding, None, tuple[dict[str, DescribedTopic], frozenset[str]]]:
    """Check topics, rights and group settings.

    Returns:
        The topics that this user may describe, and the topics that this user may not describe. Both are empty if a check
            failed.
    """
    try:
        used = topics.all_topics(settings)
        described = topics.describe(admin, settings.kafka, used)
        hidden = topics.hidden(admin, settings.kafka, used.keys() - described.keys())
        missing = topics.missing(settings, described, partitions) if create else []
        plans = [plan for plan in missing if plan.topic not in hidden]
        if plans:
            topics.create(settings.kafka, f"{settings.name}.check", plans)
            deadline = time.monotonic() + METADATA_SECONDS
            while not {plan.topic for plan in plans} <= described.keys() and time.monotonic() < deadline:
                time.sleep(RETRY_SECONDS)
                described = topics.describe(admin, settings.kafka, used)
            yield Finding("created topics", True, ", ".join(f"{plan.topic} ({plan.num_partitions})" for plan in plans))
        yield from _topics(settings, described, hidden, topics.names(admin, settings.kafka))
        if settings.tables:
            yield from _tables(settings, described, admin)
        _group_and_transactions(settings, admin)
        yield _members(settings, admin)
    except Fatal as error:
        yield Finding("rights" if isinstance(error, NotAllowed) else "broker", False, str(error), error.hint)
        return {}, frozenset()
    allowed = ["existing topics", "group", *(["transactions"] if settings.delivery == "exactly-once" else [])]
    yield Finding("rights", True, f"the broker allows: {', '.join(allowed)}")
    if settings.kafka.group_protocol == "consumer":
        yield _group_settings(settings, admin)
    return described, hidden


def _group_and_transactions(settings: Settings, admin: AdminClient) -> None:
    """Check that the broker allows this user to join the group and to begin a transaction. Raises Fatal."""
    # Only an attempt shows what the broker allows.
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
    """Check that all members of the consumer group are scorers. Report a group that does not exist or is not visible."""
    try:
        members = groups.described(admin, settings.name)
        others = foreign_members.select_foreign(members, settings.name)
    except KafkaException as error:
        problem = "is not visible to this user" if error.args[0] in REFUSED else "cannot be described"
        return Finding("group members", True, f"consumer group {settings.name} {problem}: {error.args[0].str()}")
    if not members and not _has_positions(settings, admin):
        return Finding("group members", True, f"consumer group {settings.name} does not exist yet: no scorer has joined it")
    if others:
        return Finding("group members", False, foreign_members.describe_foreign(others, settings.name), foreign_members.HINT)
    return Finding("group members", True, f"consumer group {settings.name} has only scorers as members")


def _has_positions(settings: Settings, admin: AdminClient) -> bool:
    """Return whether the consumer group has committed offsets; True if the offsets cannot be read."""
    try:
        return bool(groups.ConsumerGroups(admin, settings.kafka, "the broker", ANSWER_SECONDS).positions(settings.name))
    except (Fatal, Retriable):
        return True


def _topics(
    settings: Settings, described: dict[str, topics.DescribedTopic], hidden: frozenset[str], existing: list[str]
) -> Iterator[Finding]:
    missing = topics.missing_faults(settings, described, existing)
    for fault in missing:
        yield Finding("topic", False, fault, "--create creates missing topics")
    unfit = topics.unfit_faults(settings, described)
    for fault in unfit:  # which names its remedy
        yield Finding("topic", False, fault)
    if not missing and not unfit:
        yield Finding("topics", True, ", ".join(f"{t.name} ({t.partitions})" for t in described.values()))
    optional = {name: f"{name} ({verb})" for name, verb in topics.optional(settings).items() if name not in described}
    if absent := [text for name, text in optional.items() if name not in hidden]:
        yield Finding("optional topics", True, f"missing topics: {', '.join(absent)}; --create creates them")
    if invisible := [text for name, text in optional.items() if name in hidden]:
        yield Finding("optional topics", True, f"not visible to this user, whether or not they exist: {', '.join(invisible)}")


def _tables(settings: Settings, described: dict[str, topics.DescribedTopic], admin: AdminClient) -> Iterator[Finding]:
    """Check that the topics of tables are compacted. `_topics` checks that they exist, and their numbers of partitions."""
    faults = topics.uncompacted(settings, described)
    if (broker := _broker_settings(admin)) and is_compaction_disabled(broker):
        faults.append("the broker compacts no topic, so that old rows of tables are never removed: log.cleaner.enable is false")
    for fault in faults:
        yield Finding("table", False, fault, "scorer/TABLES.md describes the topics of tables")
    if faults or topics.partitioning_faults(settings, described):
        return
    if any(table.topic not in described for table in settings.tables.values()):
        return
    for name, table in settings.tables.items():
        topic = described[table.topic]
        policy = f"cleanup.policy {topic.cleanup_policy}" if topic.cleanup_policy else "its cleanup.policy cannot be read"
        partitions = f"{topic.partitions} partitions"
        if table.scope == "partition":
            partitions += " as the input; its producers must use the same partitioner as those of events"
        yield Finding("table", True, f"{name}: {table.topic}, {policy}, {partitions}")


def is_compaction_disabled(broker: Mapping[str, ConfigEntry]) -> bool:
    """Return whether the settings of a broker disable the compaction of topics."""
    cleaner = broker.get("log.cleaner.enable")
    return cleaner is not None and cleaner.value == "false"


def _broker_settings(admin: AdminClient) -> dict[str, ConfigEntry]:
    """Return the settings of a broker by name; {} if this client may not read them."""
    try:
        resource = ConfigResource(ResourceType.BROKER, str(next(iter(admin.list_topics(timeout=5).brokers))))
        settings: dict[str, ConfigEntry] = admin.describe_configs([resource], request_timeout=5)[resource].result()
    except KafkaException:
        return {}
    return settings


def _group_settings(settings: Settings, admin: AdminClient) -> Finding:
    """Check the broker's session time-out, after which another scorer takes over from a crashed one."""
    # In the group protocol of KIP-848 a client cannot set the time-out itself. The broker's default is 45 s.
    resource = ConfigResource(ResourceType.BROKER, str(next(iter(admin.list_topics(timeout=5).brokers))))
    try:
        values = admin.describe_configs([resource], request_timeout=5)[resource].result()
    except KafkaException as error:
        return Finding("group protocol", True, f"the limits of the broker cannot be read: {error.args[0].str()}")
    session = int(values["group.consumer.session.timeout.ms"].value)
    limits = ", ".join(f"{name}={values[name].value}" for name in KIP_848_LIMITS if name in values)
    if session > settings.kafka.session_timeout_ms:
        return Finding(
            "group protocol",
            False,
            f"the broker's group.consumer.session.timeout.ms is {session} ({limits}): "
            "after a crash, partitions are not read for that time",
            f"set it to {settings.kafka.session_timeout_ms} for group {settings.name}, or set kafka.group_protocol: classic",
        )
    return Finding(
        "group protocol", True, f"the broker supports group_protocol: consumer with a session time-out of {session} ms"
    )


class CountedKeys(ExampleTables):
    """A table look-up that returns the same row for every key, and counts the events without a key.

    Attributes:
        without_key: the number of events of the last batch that have no key, by the name of the table.
    """

    def __init__(self) -> None:
        super().__init__()
        self.without_key: dict[str, int] = {}

    def columns(
        self, table: str, fields: Sequence[InputField], keys: Sequence[bytes | None], partitions: Partitions
    ) -> JoinedColumns:
        """Count the events without a key, and return the joined columns; see `TableLookup`."""
        self.without_key[table] = len(byte_columns.nulls(keys))
        return super().columns(table, fields, keys, partitions)


def _samples(
    settings: Settings, servable: Servable, described: dict[str, topics.DescribedTopic], tables: CountedKeys
) -> Iterator[Finding]:
    for name in settings.input.topics:
        if name not in described:
            continue
        messages, offsets = newest(settings, name)
        if settings.input.tombstones == "skip":
            messages = [message for message in messages if message.value() is not None]
        values = [message.value() for message in messages]
        decoded = decode_after_look_ups(servable.loaded.decoder, values, ListedMetadata.from_messages(messages))
        decodable = len(decoded.rows)
        if not values:
            reason = f"the newest {offsets} offsets of the topic contain no event" if offsets else "the topic is empty"
            yield Finding("sample", True, f"no event of {name} was decoded: {reason}")
        elif decoded.rejected:
            row, poison = min(decoded.rejected.items(), key=itemgetter(0))
            event = values[row]
            excerpt = "null" if event is None else repr(event[:200])
            yield Finding(
                "sample",
                False,
                f"{len(values) - decodable} of the newest {len(values)} events of {name} would be dead-lettered; "
                f"the first: {poison.reason}: {poison}",
                f"compare the producer with the version's signature; the event: {excerpt}",
            )
        else:
            yield Finding("sample", True, f"the newest {decodable} events of {name} can be decoded")
            yield from _ids(settings.input.id_field, name, decoded.ids)
            yield from _carried_fields(settings.output.carry, name, decoded.carried or [])
            yield from table_keys(settings, name, tables, decodable)


def _rows(settings: Settings, servable: Servable, described: dict[str, topics.DescribedTopic]) -> Iterator[Finding]:
    """Check that the newest rows of tables contain the joined fields of the version."""
    for name, fields in field_sources.joined_fields(servable.loaded.model.signature()).items():
        topic = settings.tables[name].topic
        if topic not in described:
            continue
        messages, _ = newest(settings, topic)
        values = [message.value() for message in messages if message.value() is not None]
        layout = BlockLayout(fields)
        decoded = _decode_rows(row_decoder_factory(name, settings)(layout), values)
        rejected = decoded.rejected
        if not values:
            yield Finding("rows", True, f"no row of the table {name} was decoded: the newest offsets of {topic} hold no row")
        elif rejected:
            row, poison = min(rejected.items(), key=itemgetter(0))
            excerpt = repr((values[row] or b"")[:200])
            yield Finding(
                "rows",
                False,
                f"{len(rejected)} of the newest {len(values)} rows of the table {name} cannot be decoded; "
                f"the first: {poison.reason}: {poison}",
                f"compare the producer of {topic} with the version's signature; the row: {excerpt}",
            )
        else:
            yield Finding("rows", True, f"the newest {len(values)} rows of the table {name} can be decoded")
            yield from required_columns(name, layout, decoded)


def required_columns(table: str, layout: BlockLayout, decoded: DecodedRows) -> Iterator[Finding]:
    """Check that the newest rows of a table have the columns of required fields."""
    # An event with a row without such a column is dead-lettered.
    for field, without in zip(layout.required, decoded.missing.sum(axis=0).tolist(), strict=True):
        if without:
            count = len(decoded.missing)
            detail = f"{without} of the newest {count} rows of the table {table} have no value for the required field {field!r}"
            hint = 'correct the path or the name of the field, or add "default" to the field'
            yield Finding("rows", without < count, detail, hint)


def _decode_rows(decoder: RowDecoder, values: Sequence[bytes | None]) -> DecodedRows:
    """Decode rows. Wait for the look-ups of their schemas."""
    while True:
        try:
            return decoder.decode(values)
        except LookUpsPending:
            time.sleep(RETRY_SECONDS)


def _logged_fields(settings: Settings, servable: Servable) -> Iterator[Finding]:
    """Check that the version has the fields that `features.fields` names. A misspelt field would be missing in the log."""
    if settings.features.topic is None:
        return
    signature = servable.loaded.model.signature()
    version = servable.encoder.provenance["version"]
    if absent := absent_names(signature, settings.features.fields):
        detail = f"version {version} has no field {', '.join(map(repr, absent))} to log"
        yield Finding("features", False, detail, "correct features.fields")
    else:
        count = sum(len(tensor.fields) for tensor in select_logged(signature, settings.features.fields))
        yield Finding("features", True, f"{count} fields of version {version} are logged in {settings.features.topic}")


def _labels(settings: Settings, topic: str, described: dict[str, topics.DescribedTopic], hidden: frozenset[str]) -> Finding:
    """Check that the newest labels have an id and an outcome."""
    if topic in hidden:
        hint = acls.grants(settings.kafka, [Right(READ, TOPIC, topic)])
        return Finding("labels", False, f"topic {topic} is not visible to this user, whether or not it exists", hint)
    if topic not in described:
        return Finding("labels", False, f"topic {topic} does not exist", "--create creates missing topics")
    messages, _ = newest(settings, topic)
    read = labels_of(settings)
    classes = Classes(tuple(settings.labels.classes)) if settings.labels.classes else None

    def refusal(message: Message) -> Unusable | None:
        label = read(message)
        if isinstance(label, Unusable):
            return label
        outcome = classes.number_of(label.value) if classes and label.value is not None else None
        return outcome if isinstance(outcome, Unusable) else None

    refused = Counter(reason for message in messages if (reason := refusal(message)) is not None)
    readable = f"{len(messages) - refused.total()} of the newest {len(messages)} labels of {topic} can be read"
    if not refused:
        return Finding("labels", True, readable)
    reasons = ", ".join(f"{reason} ({count})" for reason, count in refused.most_common())
    return Finding(
        "labels", False, f"{readable}; the unreadable labels: {reasons}", "see labels.id, labels.value and labels.classes"
    )


def _carried_fields(fields: Sequence[CarriedField], topic: str, rows: Sequence[Row]) -> Iterator[Finding]:
    """Check that the sampled events have the fields that `output.carry` copies to scores."""
    # If a path is misspelt, the copied value is null in all scores.
    for field, values in zip(fields, zip(*rows, strict=True), strict=False):
        if without := sum(value is None for value in values):
            detail = f"{without} of the newest {len(rows)} events of {topic} have no {field.words}, which output.carry copies"
            yield Finding(
                "carried fields", without < len(rows), detail, "correct the paths of the event fields in output.carry"
            )


def table_keys(settings: Settings, topic: str, tables: CountedKeys, events: int) -> Iterator[Finding]:
    """Check that the newest events of a topic have the keys of tables. `events` is the number of these events."""
    # If the path of a key is misspelt, each event is scored with the defaults of the joined fields, or dead-lettered.
    for table, without in tables.without_key.items():
        if without:
            path = settings.tables[table].key
            place = "in the record" if path is None else f"at {path}"
            detail = f"{without} of the newest {events} events of {topic} have no key {place} for the table {table}"
            hint = f"set tables.{table}.key to the path of the key in events"
            yield Finding("table keys", without < events, detail, hint)


def _ids(field: str | None, topic: str, ids: Sequence[str | int | None]) -> Iterator[Finding]:
    """Check that events have an id."""
    # If `input.id` is misspelt, each score has the position of its event as the id, which other systems do not know.
    without = sum(each is None for each in ids)
    if without and field is not None:
        detail = f"{without} of the newest {len(ids)} events of {topic} have no {field!r}; the event position is used as the id"
        yield Finding("event ids", without < len(ids), detail, "set input.id to the path of the field that identifies an event")


def newest(settings: Settings, topic: str) -> tuple[list[Message], int]:
    """Read the newest SAMPLE offsets of each partition of `topic`. Return the messages, and the number of offsets.

    Some offsets contain no message. Raises Fatal if the topic cannot be read.
    """
    # Transaction markers have offsets too.
    reader = TopicReader(settings.kafka, f"{settings.name}.check")
    every = reader.spans(reader.partitions([topic]))
    spans = {partition: (max(low, end - SAMPLE), end) for partition, (low, end) in every.items()}
    messages = [message for batch in reader.read(spans) for message in batch.messages]
    return messages, sum(stop - start for start, stop in spans.values())
