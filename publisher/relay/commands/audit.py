"""`publisher audit CONFIG`: holds what a relay copied against its source, from the two clusters alone.

First the checkpoints are read: that much must be there. Then where the copies end, then the source, then the copies; a record
that is copied in the meantime is pending at most.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from confluent_kafka import Message
from rich.table import Table

from publisher.audit.copies import FAULTS, Column, Copies, CopyReport, compare
from publisher.errors import Fatal
from publisher.kafka.headers import headers_of_one
from publisher.kafka.partitions import Partition
from publisher.kafka.reader import TopicReader
from publisher.positions import Position, offset_of, origin_of, parse
from publisher.relay.checkpoints import Place
from publisher.relay.copy import Rules
from publisher.relay.settings import RelaySettings
from publisher.relay.sides import log_of
from publisher.relay.unfit import SOURCE

Progress = Callable[[int, int], None]
"""Called with the partitions done, and how many there are."""


class _Ends(NamedTuple):
    source: TopicReader
    destination: TopicReader


def audit(settings: RelaySettings, progress: Progress, answer_seconds: float) -> CopyReport:
    """Read every partition that the relay has a checkpoint for. Raises Fatal: 2 where it has none, 4 where a cluster does not
    answer."""
    checkpoints = log_of(settings)
    checkpoints.refresh()
    due = {place: found.next for place, found in checkpoints.of_relay(settings.name).items()}
    if not due:
        raise Fatal(f"relay {settings.name!r} has no checkpoints in {settings.checkpoint_topic}", "has it ever run?", 2)
    ends = _Ends(
        TopicReader(settings.source.kafka, settings.name, answer_seconds),
        TopicReader(settings.destination.kafka, settings.name, answer_seconds),
    )
    report = CopyReport()
    refused = _refused(settings, ends.destination)
    for done, place in enumerate(sorted(due)):
        progress(done, len(due))
        _partition(settings, ends, place, due[place], refused.get((place.topic, place.partition), set()), report)
    return report


def _refused(settings: RelaySettings, destination: TopicReader) -> dict[Partition, set[int]]:
    """The offsets of the source's records that stand in the refusal topic."""
    found: dict[Partition, set[int]] = {}
    topics = destination.partitions([settings.refusal_topic] if settings.refusal_topic else [])
    begins, ends = destination.earliest(topics), destination.written(topics)
    for batch in destination.read({partition: (begins[partition], ends[partition]) for partition in topics}):
        for message in batch.messages:
            try:
                region, topic, partition, offset = parse(dict(headers_of_one(message) or ()).get(SOURCE) or b"")
            except ValueError:
                continue  # written by somebody else
            if region == settings.source.region:
                found.setdefault((topic, partition), set()).add(offset)
    return found


def _partition(settings: RelaySettings, ends: _Ends, place: Place, due: int, refused: set[int], report: CopyReport) -> None:
    here, there = (place.topic, place.partition), (settings.destination_topic(place.topic), place.partition)
    copies_end = ends.destination.written([there])[there]
    copies_begin = ends.destination.earliest([there])[there]
    source_begin, source_end = ends.source.earliest([here])[here], ends.source.visible([here])[here]
    origin = str(Position(place.region, place.topic, place.partition, 0))[:-1].encode("ascii")
    rules = Rules(settings.source.region, settings.destination.region, settings.filter, settings.destination.topic)
    hashes, offsets = [], []
    for message in _records(ends.source, here, source_begin, source_end):
        offset, headers = _offset(message), headers_of_one(message)
        first = rules.origin(headers, here) or b""
        if offset in refused or (rules.passes(headers) and not rules.is_home(first)):
            hashes.append(hash(first or origin + b"%d" % offset))
            offsets.append(offset)
        else:
            report.not_selected += 1
    source = Column(np.array(hashes, np.int64), np.array(offsets, np.int64))
    hashes, offsets, own = [], [], []
    for message in _records(ends.destination, there, copies_begin, copies_end):
        first = origin_of(headers_of_one(message), there) or b""
        hashes.append(hash(first))
        offsets.append(_offset(message))
        own.append(offset_of(first, origin) >= source_begin)
    copies = Copies(np.array(hashes, np.int64), np.array(offsets, np.int64), np.array(own, np.bool_), copies_begin == 0)
    compare(report, (place.topic, there[0], place.partition), source, due, copies, refused)


def _records(reader: TopicReader, partition: tuple[str, int], begin: int, end: int) -> Iterator[Message]:
    for batch in reader.read({partition: (begin, end)}):
        yield from batch.messages


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset


def table(report: CopyReport) -> Table:
    """Each count, and where the first of each fault are."""
    shown = Table("count", "", "first positions (topic/partition/offset)", title="audit")
    for name, value in vars(report).items():
        if name != "examples":
            style = "bold red" if name in FAULTS and value else ""
            shown.add_row(name, f"{value:,}", "\n".join(report.examples.get(name, [])), style=style)
    return shown
