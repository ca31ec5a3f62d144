"""`publisher audit`: count lost, duplicated, invented and reordered records.

The command compares scores with their inputs or, with a relay's configuration, copies with their source. For a relay, only the
two clusters are read, never the relay's process. The checkpoints are read first: every record before them must be copied. Then
the end offsets of the copies are read, then the source, then the copies. If a record is copied during the audit, the record
may be counted as pending, but never as a fault.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import numpy as np
import typer
from confluent_kafka import Message

from model_registry import suggestions
from publisher.audit import cli_view, scorer_audit
from publisher.audit.relay_audit import Copies, CopyReport, OriginColumn, compare
from publisher.audit.report import Progress, Report
from publisher.audit.scorer_audit import ANSWER_SECONDS, AuditScope
from publisher.audit.skip_unreadable_batches import read_past, within
from publisher.errors import USAGE, Fatal
from publisher.kafka import client_properties
from publisher.kafka.clients import KafkaSettings
from publisher.kafka.headers import headers_of_one
from publisher.kafka.partitions import Partition
from publisher.kafka.reader import Range, TopicReader
from publisher.kafka.source_position import LARGEST_OFFSET, Position, offset_of, origin_of, parse, parse_offset
from publisher.relay.checkpoints import NO_CHECKPOINTS_HINT, Checkpoint, CheckpointKey
from publisher.relay.clusters import open_checkpoint_log
from publisher.relay.dead_letter import LAST, SOURCE
from publisher.relay.settings import RelaySettings, load
from publisher.relay.transform import Rules
from publisher.runtime.command_line import From, Json, Set, To, time_range

Topics = list[str] | None


def audit(
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="CONFIG", help="A relay's configuration: audit the copies of this relay, not scores.", show_default=False
        ),
    ] = None,
    flags: Set = None,
    bootstrap_servers: Annotated[str, typer.Option(help="The brokers of the cluster: host:port,...")] = "",
    inputs: Annotated[Topics, typer.Option("--input", help="An input topic of the scorers; repeatable.")] = None,
    outputs: Annotated[Topics, typer.Option("--output", help="A topic of scores; repeatable.")] = None,
    dead: Annotated[Topics, typer.Option("--dead", help="A topic of dead letters; repeatable.")] = None,
    swaps: Annotated[
        Topics,
        typer.Option(
            "--swaps", help="The topic of version changes, <name>.swaps. Default: versions are ordered by their first score."
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(help="The scorers' consumer group: records that it has not committed are pending, not missing."),
    ] = None,
    start: From = None,
    end: To = None,
    properties: Annotated[
        Topics, typer.Option("--property", "-X", help="A property of librdkafka, written key=value; repeatable.")
    ] = None,
    kafka_config: Annotated[
        Path | None, typer.Option(help="A file of properties of librdkafka (TLS, SASL), with one key=value per line.")
    ] = None,
    timeout: Annotated[
        float, typer.Option(help="How many seconds to wait for the answer of a broker.", min=0.1)
    ] = ANSWER_SECONDS,
    as_json: Json = False,
) -> None:
    """Count lost, duplicated, invented and reordered records among scores or, with CONFIG, among the copies of a relay.

    The exit code is 1 if any of these counts is not 0. publisher/docs/audit.md explains each count.
    """
    if path is None and not (inputs and outputs):
        raise typer.BadParameter("give --bootstrap-servers, --input and --output, or a relay's CONFIG")
    with cli_view.progress() as progress:
        if path is not None:
            report: Report = count_copies(load(path, flags or []).settings, progress, timeout)
        else:
            plan = AuditScope(inputs or (), outputs or (), dead or (), swaps or (), group, *time_range(start, end))
            report = scorer_audit.audit(_kafka(bootstrap_servers, kafka_config, properties or []), plan, progress, timeout)
    cli_view.show(report, as_json)


def count_copies(
    settings: RelaySettings, progress: Progress = lambda *_: None, answer_seconds: float = ANSWER_SECONDS
) -> CopyReport:
    """Audit every partition for which the relay has a checkpoint.

    Raises:
        Fatal: with exit code 2 if there is no checkpoint, 4 if a cluster does not answer.
    """
    checkpoints = open_checkpoint_log(settings)
    checkpoints.refresh()
    positions = checkpoints.checkpoints_of(settings.name)
    if not positions:
        raise Fatal(f"relay {settings.name!r} has no checkpoints in {settings.checkpoint_topic}", NO_CHECKPOINTS_HINT, USAGE)
    readers = _Readers(
        TopicReader(settings.source.kafka, settings.name, answer_seconds),
        TopicReader(settings.destination.kafka, settings.name, answer_seconds),
    )
    topics_copied = sorted({key.topic for key in positions})
    readers.source.partitions(topics_copied)  # raises an error with the name of a missing or forbidden topic
    readers.destination.partitions(map(settings.destination_topic, topics_copied))
    report = CopyReport()
    refused = _read_refusals(settings, readers.destination)
    topic_ids = readers.source.ids(topics_copied)
    for number, key in enumerate(sorted(positions)):
        progress("partitions", number, len(positions))
        position = positions[key]
        if position.topic_id != topic_ids.get(key.topic, position.topic_id):
            # nothing of the recreated topic is copied yet
            position = msgspec.structs.replace(position, next=0, copies_from=LARGEST_OFFSET)
        refused_here = refused.get((key.topic, key.partition), RefusedRecords(set(), []))
        _audit_partition(settings, readers, key, position, refused_here, report)
    return report


class _Readers(NamedTuple):
    source: TopicReader
    destination: TopicReader


class RefusedRecords(NamedTuple):
    """The records of a source partition that a relay has written to the refusal topic instead of copying them.

    `offsets` has the offsets of single records, `batches` the offset ranges of unreadable batches.
    """

    offsets: set[int]
    batches: list[Range]


def _read_refusals(settings: RelaySettings, destination: TopicReader) -> dict[Partition, RefusedRecords]:
    refused: dict[Partition, RefusedRecords] = {}
    topics = destination.partitions([settings.refusal_topic] if settings.refusal_topic else [])
    for batch in destination.read(destination.spans(topics, undecided=True)):
        for message in batch.messages:
            try:
                headers = dict(headers_of_one(message) or ())
                region, topic, partition, offset = parse(headers.get(SOURCE) or b"")
                last = parse_offset(headers[LAST] or b"") if LAST in headers else None
            except ValueError:
                continue  # not written by a relay
            if region != settings.source.region:
                continue
            records = refused.setdefault((topic, partition), RefusedRecords(set(), []))
            if last is None:
                records.offsets.add(offset)
            else:
                records.batches.append((offset, last + 1))
    return refused


def _audit_partition(
    settings: RelaySettings,
    readers: _Readers,
    key: CheckpointKey,
    position: Checkpoint,
    refused: RefusedRecords,
    report: CopyReport,
) -> None:
    """Compare one source partition with its copy, and add the counts to the report."""
    source_partition = key.topic, key.partition
    copy_partition = settings.destination_topic(key.topic), key.partition
    copies_begin, copies_end = readers.destination.spans([copy_partition], undecided=True)[copy_partition]
    source_begin, source_end = readers.source.spans([source_partition])[source_partition]
    origin_prefix = str(Position(key.region, key.topic, key.partition, 0))[:-1].encode("ascii")
    rules = Rules(settings.source.region, settings.destination.region, settings.filter, settings.destination.topic)
    hashes: list[int] = []
    offsets: list[int] = []

    def add_unread(_: Partition, batch: Range) -> None:
        hashes.extend(hash(origin_prefix + b"%d" % offset) for offset in range(*batch))
        offsets.extend(range(*batch))

    batches = within((source_begin, source_end), refused.batches)
    refused_offsets = refused.offsets.union(*(range(*batch) for batch in batches))
    for batch in batches:
        add_unread(source_partition, batch)
    for message in _records(readers.source, source_partition, source_begin, source_end, batches, add_unread):
        offset = _offset(message)
        headers = headers_of_one(message)
        origin = rules.origin(headers, source_partition) or b""
        if offset in refused_offsets or (rules.passes(headers) and not rules.is_home(origin)):
            hashes.append(hash(origin or origin_prefix + b"%d" % offset))
            offsets.append(offset)
        else:
            report.not_selected += 1
    order = np.argsort(np.array(offsets, np.int64))
    source = OriginColumn(np.array(hashes, np.int64)[order], np.array(offsets, np.int64)[order])
    copy_hashes: list[int] = []
    copy_offsets: list[int] = []
    retained: list[bool] = []  # whether the source still retains the record
    for message in _records(readers.destination, copy_partition, copies_begin, copies_end):
        offset = _offset(message)
        origin = origin_of(headers_of_one(message), copy_partition) or b""
        source_offset = offset_of(origin, origin_prefix)
        if source_offset >= 0 and offset < position.copies_from:
            report.gone += 1
            continue
        copy_hashes.append(hash(origin))
        copy_offsets.append(offset)
        retained.append(source_offset >= source_begin)
    complete = copies_begin <= position.copies_from
    copies = Copies(np.array(copy_hashes, np.int64), np.array(copy_offsets, np.int64), np.array(retained, np.bool_), complete)
    compare(report, (key.topic, copy_partition[0], key.partition), source, position.next, copies, refused_offsets)


def _records(
    reader: TopicReader,
    partition: Partition,
    begin: int,
    end: int,
    skipped: Sequence[Range] = (),
    on_unread: Callable[[Partition, Range], None] = lambda *_: None,
) -> Iterator[Message]:
    """Yield the records of a partition from the offset `begin` to the offset `end`, except the ranges in `skipped`.

    `on_unread` is called with each further range that cannot be read.
    """
    for batch in read_past(reader, "", {partition: (begin, end)}, lambda *_: None, {partition: skipped}, on_unread):
        yield from batch.messages


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset


def _kafka(bootstrap_servers: str, file: Path | None, properties: Sequence[str]) -> KafkaSettings:
    """Return the client's settings, with the properties of a file and those of -X.

    Args:
        bootstrap_servers: the value of --bootstrap-servers.
        file: a file of key=value lines; empty lines and lines that start with # are ignored.
        properties: the key=value items of -X, which override the file.

    Raises:
        BadParameter: for an invalid line or property. The message never repeats a line of the file: it may contain a secret.
    """
    if not bootstrap_servers.strip():
        raise typer.BadParameter("the list of brokers is empty; write host:port,...", param_hint="--bootstrap-servers")
    try:
        lines = file.read_text(encoding="utf-8").splitlines() if file else []
    except (OSError, UnicodeDecodeError) as error:
        question = suggestions.file_question(file) if file else ""
        fault = f"cannot read {file}: {error}" + (f"; {question}" if question else "")
        raise typer.BadParameter(fault, param_hint="--kafka-config") from None
    items = [(f"{file}:{number}", line) for number, line in enumerate(lines, 1) if line.strip() and line.strip()[0] != "#"]
    items += [(f"-X number {number}", item) for number, item in enumerate(properties, 1)]
    extra: dict[str, str | int | float | bool] = {}
    for location, text in items:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise typer.BadParameter(f"{location} is not key=value: it has no '=' or no key")
        extra[key.strip()] = value.strip()
    if faults := client_properties.faults(extra):
        raise typer.BadParameter("; ".join(f"{key}: {text}" for key, text in faults.items()))
    return KafkaSettings(bootstrap_servers=bootstrap_servers, extra=extra)
