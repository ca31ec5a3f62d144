"""`publisher audit`: counts between inputs and scores; or, with a relay's configuration, between two regions: it holds what the
relay copied against its source, from the two clusters alone.

First the checkpoints are read: that much must be there. Then where the copies end, then the source, then the copies; a record
that is copied in the meantime is pending at most.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import numpy as np
import typer
from confluent_kafka import Message

from publisher.audit import cli_view, scorer_audit
from publisher.audit.relay_audit import Column, Copies, CopyReport, compare
from publisher.audit.report import Progress, Report
from publisher.audit.scorer_audit import ANSWER_SECONDS, Plan
from publisher.audit.skip_unreadable_batches import read_past, within
from publisher.errors import USAGE, Fatal
from publisher.kafka import client_properties
from publisher.kafka.clients import KafkaSettings
from publisher.kafka.headers import headers_of_one
from publisher.kafka.partitions import Partition
from publisher.kafka.reader import Range, TopicReader
from publisher.kafka.source_position import LARGEST_OFFSET, Position, offset_of, origin_of, parse, parse_offset
from publisher.relay.checkpoints import Checkpoint, Place
from publisher.relay.clusters import log_of
from publisher.relay.rejection_records import LAST, SOURCE
from publisher.relay.settings import RelaySettings, load
from publisher.relay.transform import Rules
from publisher.runtime.command_line import From, Json, Set, To, time_range

Topics = list[str] | None


def audit(
    path: Annotated[
        Path | None,
        typer.Argument(metavar="CONFIG", help="A relay's configuration: count its copies, not scores.", show_default=False),
    ] = None,
    flags: Set = None,
    bootstrap_servers: Annotated[str, typer.Option(help="The cluster: host:port,...")] = "",
    inputs: Annotated[Topics, typer.Option("--input", help="Input topic; repeatable.")] = None,
    outputs: Annotated[Topics, typer.Option("--output", help="Score topic; repeatable.")] = None,
    dead: Annotated[Topics, typer.Option("--dead", help="Dead-letter topic; repeatable.")] = None,
    swaps: Annotated[
        Topics, typer.Option("--swaps", help="Topic of swap records; without it versions rank by first appearance.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(help="The scorers' consumer group: what it has not committed is pending, not missing."),
    ] = None,
    start: From = None,
    end: To = None,
    properties: Annotated[
        Topics, typer.Option("--property", "-X", help="Client property for librdkafka: key=value; repeatable.")
    ] = None,
    kafka_config: Annotated[
        Path | None, typer.Option(help="Client properties for librdkafka (TLS, SASL): a file of key=value lines.")
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds that the broker may take to answer.", min=0.1)] = ANSWER_SECONDS,
    as_json: Json = False,
) -> None:
    """Count what was lost, doubled, invented or reordered: between inputs and scores, or between regions (CONFIG).

    Exit code 1 where anything was. publisher/docs/audit.md tells each count."""
    if path is None and not (inputs and outputs):
        raise typer.BadParameter("give --bootstrap-servers, --input and --output, or a relay's CONFIG")
    with cli_view.progress() as progress:
        if path is not None:
            report: Report = count_copies(load(path, flags or []).settings, progress, timeout)
        else:
            plan = Plan(inputs or (), outputs or (), dead or (), swaps or (), group, *time_range(start, end))
            report = scorer_audit.audit(_kafka(bootstrap_servers, kafka_config, properties or []), plan, progress, timeout)
    cli_view.show(report, as_json)


def count_copies(
    settings: RelaySettings, progress: Progress = lambda *_: None, answer_seconds: float = ANSWER_SECONDS
) -> CopyReport:
    """Read every partition that the relay has a checkpoint for. Raises Fatal: 2 where it has none, 4 for a silent cluster."""
    checkpoints = log_of(settings)
    checkpoints.refresh()
    due = checkpoints.of_relay(settings.name)
    if not due:
        raise Fatal(f"relay {settings.name!r} has no checkpoints in {settings.checkpoint_topic}", "has it ever run?", USAGE)
    ends = _Ends(
        TopicReader(settings.source.kafka, settings.name, answer_seconds),
        TopicReader(settings.destination.kafka, settings.name, answer_seconds),
    )
    topics_copied = sorted({place.topic for place in due})
    ends.source.partitions(topics_copied)  # here a topic that is missing, or may not be read, has a name
    ends.destination.partitions(map(settings.destination_topic, topics_copied))
    report = CopyReport()
    refused = _refused(settings, ends.destination)
    ids = ends.source.ids(topics_copied)
    for done, place in enumerate(sorted(due)):
        progress("partitions", done, len(due))
        found = due[place]
        if found.topic_id != ids.get(place.topic, found.topic_id):
            found = msgspec.structs.replace(found, next=0, copies_from=LARGEST_OFFSET)  # of its topic as it is now, nothing
        _partition(settings, ends, place, found, refused.get((place.topic, place.partition), Refused(set(), [])), report)
    return report


class _Ends(NamedTuple):
    source: TopicReader
    destination: TopicReader


class Refused(NamedTuple):
    """The records of a source partition that are in the refusal topic: their offsets, and batches that cannot be read."""

    offsets: set[int]
    batches: list[Range]


def _refused(settings: RelaySettings, destination: TopicReader) -> dict[Partition, Refused]:
    found: dict[Partition, Refused] = {}
    topics = destination.partitions([settings.refusal_topic] if settings.refusal_topic else [])
    for batch in destination.read(destination.spans(topics, undecided=True)):
        for message in batch.messages:
            try:
                headers = dict(headers_of_one(message) or ())
                region, topic, partition, offset = parse(headers.get(SOURCE) or b"")
                last = parse_offset(headers[LAST] or b"") if LAST in headers else None
            except ValueError:
                continue  # the relay did not write it
            if region != settings.source.region:
                continue
            refused = found.setdefault((topic, partition), Refused(set(), []))
            if last is None:
                refused.offsets.add(offset)
            else:
                refused.batches.append((offset, last + 1))
    return found


def _partition(
    settings: RelaySettings, ends: _Ends, place: Place, found: Checkpoint, refused: Refused, report: CopyReport
) -> None:
    here, there = (place.topic, place.partition), (settings.destination_topic(place.topic), place.partition)
    copies_begin, copies_end = ends.destination.spans([there], undecided=True)[there]
    source_begin, source_end = ends.source.spans([here])[here]
    origin = str(Position(place.region, place.topic, place.partition, 0))[:-1].encode("ascii")
    rules = Rules(settings.source.region, settings.destination.region, settings.filter, settings.destination.topic)
    hashes: list[int] = []
    offsets: list[int] = []

    def unread(_: Partition, batch: Range) -> None:
        hashes.extend(hash(origin + b"%d" % offset) for offset in range(*batch))
        offsets.extend(range(*batch))

    batches = within((source_begin, source_end), refused.batches)
    refused_offsets = refused.offsets.union(*(range(*batch) for batch in batches))
    for batch in batches:
        unread(here, batch)
    for message in _records(ends.source, here, source_begin, source_end, batches, unread):
        offset, headers = _offset(message), headers_of_one(message)
        first = rules.origin(headers, here) or b""
        if offset in refused_offsets or (rules.passes(headers) and not rules.is_home(first)):
            hashes.append(hash(first or origin + b"%d" % offset))
            offsets.append(offset)
        else:
            report.not_selected += 1
    order = np.argsort(np.array(offsets, np.int64))
    source = Column(np.array(hashes, np.int64)[order], np.array(offsets, np.int64)[order])
    hashes, offsets, own = [], [], []
    for message in _records(ends.destination, there, copies_begin, copies_end):
        offset, first = _offset(message), origin_of(headers_of_one(message), there) or b""
        at_source = offset_of(first, origin)
        if at_source >= 0 and offset < found.copies_from:
            report.gone += 1
            continue
        hashes.append(hash(first))
        offsets.append(offset)
        own.append(at_source >= source_begin)
    complete = copies_begin <= found.copies_from
    copies = Copies(np.array(hashes, np.int64), np.array(offsets, np.int64), np.array(own, np.bool_), complete)
    compare(report, (place.topic, there[0], place.partition), source, found.next, copies, refused_offsets)


def _records(
    reader: TopicReader,
    partition: Partition,
    begin: int,
    end: int,
    skipped: Sequence[Range] = (),
    unread: Callable[[Partition, Range], None] = lambda *_: None,
) -> Iterator[Message]:
    """The records but for those `skipped`; `unread` is called with the others that cannot be read."""
    for batch in read_past(reader, "", {partition: (begin, end)}, lambda *_: None, {partition: skipped}, unread):
        yield from batch.messages


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset


def _kafka(bootstrap_servers: str, file: Path | None, properties: Sequence[str]) -> KafkaSettings:
    """The client's settings, with the properties that `file` holds (key=value lines, empty lines and comments left out) and
    those of -X. Raises BadParameter, which repeats no line of the file: it might hold a secret."""
    if not bootstrap_servers.strip():
        raise typer.BadParameter("empty; expected host:port,...", param_hint="--bootstrap-servers")
    try:
        lines = file.read_text(encoding="utf-8").splitlines() if file else []
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"cannot read {file}: {error}", param_hint="--kafka-config") from None
    stated = [(f"{file}:{number}", line) for number, line in enumerate(lines, 1) if line.strip() and line.strip()[0] != "#"]
    extra: dict[str, str | int | float | bool] = {}
    for place, text in [*stated, *((f"-X number {number}", item) for number, item in enumerate(properties, 1))]:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise typer.BadParameter(f"{place} is not key=value: it has no '=' or no key")
        extra[key.strip()] = value.strip()
    if faults := client_properties.faults(extra):
        raise typer.BadParameter("; ".join(f"{key}: {text}" for key, text in faults.items()))
    return KafkaSettings(bootstrap_servers=bootstrap_servers, extra=extra)
