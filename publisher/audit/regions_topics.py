"""The count over regions, on Kafka: what each region's cluster holds, in an order that makes it hold on a live system.

First, in every region, what the groups have committed: that much must be answered. Then where answers and inputs end, then
everything is read, open transactions waited for. Answers are counted in the region that gave them: copies of them are not.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from publisher import positions
from publisher.audit.records import Source, dead_source
from publisher.audit.regions import Home, RegionsAudit, RegionsReport
from publisher.audit.topics import CLIENT_ID, Plan
from publisher.errors import Fatal, Retriable
from publisher.kafka import clients as kafka
from publisher.kafka.clients import KafkaSettings
from publisher.kafka.groups import ConsumerGroups
from publisher.kafka.headers import headers_of, headers_of_one
from publisher.kafka.partitions import Offsets, Partition
from publisher.kafka.reader import Batch, TopicReader
from publisher.positions import origin_of

Columns = tuple[list[int], list[int]]


@dataclass(frozen=True)
class Side:
    """One region: its name in positions and scores, its cluster, and what to read there (`swaps` and times are not used)."""

    region: str
    kafka: KafkaSettings
    plan: Plan


class Score(msgspec.Struct, gc=False):
    """The fields of a score record that matter here."""

    id: str
    region: str
    source: Source


_decode = msgspec.json.Decoder(Score).decode


class _Reading:
    """One region, as it was when this was made."""

    def __init__(self, side: Side, answer_seconds: float) -> None:
        self.side = side
        self.topics = TopicReader(side.kafka, CLIENT_ID, answer_seconds)
        self.inputs = self.topics.partitions(side.plan.inputs)
        self.due = _committed(side, answer_seconds)
        self.scores = self.topics.written(self.topics.partitions(side.plan.outputs))
        self.dead = self.topics.written(self.topics.partitions(side.plan.dead))
        self.ends = self.topics.visible(self.inputs)

    def read(self, ends: Offsets) -> Iterable[Batch]:
        """Everything up to these offsets."""
        starts = self.topics.earliest(ends)
        return self.topics.read({partition: (starts[partition], end) for partition, end in ends.items()})


def audit(sides: Sequence[Side], answer_seconds: float, tell: Callable[[str], None]) -> RegionsReport:
    """Read every region and count. `tell` hears which is read. Raises Fatal: 2 for a topic that is not there, 3 where a broker
    refuses, 4 where one does not answer."""
    count = RegionsAudit()
    readings = [_Reading(side, answer_seconds) for side in sides]
    for reading in readings:
        tell(f"reading the inputs in {reading.side.region}")
        _feed_inputs(count, reading)
    for reading in readings:
        tell(f"reading the answers in {reading.side.region}")
        for batch in reading.read(reading.scores):
            _feed_scores(count, reading.side, batch)
        for batch in reading.read(reading.dead):
            _feed_dead_letters(count, reading.side, batch)
    return count.report()


def _committed(side: Side, answer_seconds: float) -> dict[Partition, int]:
    """Up to where the region's group has committed; nothing where it never did."""
    if not side.plan.group:
        return {}
    groups = ConsumerGroups(kafka.admin(side.kafka, CLIENT_ID), side.kafka, side.region, answer_seconds)
    try:
        return {(p.topic, p.partition): p.next for p in groups.positions(side.plan.group)}
    except Retriable as error:
        raise Fatal(str(error), "check kafka.bootstrap_servers") from error


def _feed_inputs(count: RegionsAudit, reading: _Reading) -> None:
    written: dict[Partition, list[int]] = {partition: [] for partition in reading.inputs}
    copies: dict[Partition, defaultdict[Home, Columns]] = {p: defaultdict(lambda: ([], [])) for p in reading.inputs}
    for batch in reading.read(reading.ends):
        for offset, message in zip(batch.offsets, batch.messages, strict=True):
            first = origin_of(headers_of_one(message), batch.partition)
            try:
                origin = None if first is None else positions.parse(first)
            except ValueError:
                count.unreadable()
                continue
            if origin is None:
                written[batch.partition].append(offset)
            else:
                columns = copies[batch.partition][Home(*origin[:3])]
                columns[0].append(offset)
                columns[1].append(origin.offset)
    for partition in reading.inputs:
        found = {home: (np.array(o, np.int64), np.array(c, np.int64)) for home, (o, c) in copies[partition].items()}
        here = np.array(written[partition], np.int64)
        count.inputs(reading.side.region, partition, here, found, reading.due.get(partition, 0))


def _feed_scores(count: RegionsAudit, side: Side, batch: Batch) -> None:
    columns: defaultdict[Partition, Columns] = defaultdict(lambda: ([], []))
    for message in batch.messages:
        try:
            record = _decode(side.plan.as_json(message.value() or b""))
        except (msgspec.DecodeError, ValueError):
            count.unreadable()
            continue
        if record.region == side.region:
            offsets, ids = columns[record.source.topic, record.source.partition]
            offsets.append(record.source.offset)
            ids.append(hash(record.id))
    for source, (offsets, ids) in columns.items():
        count.answers(side.region, source, np.array(offsets, np.int64), np.array(ids, np.int64))


def _feed_dead_letters(count: RegionsAudit, side: Side, batch: Batch) -> None:
    columns: defaultdict[Partition, list[int]] = defaultdict(list)
    for headers in headers_of(batch.messages)[0]:
        try:
            source = positions.parse(dead_source(headers))
        except ValueError:
            count.unreadable()
            continue
        if source.region == side.region:
            columns[source.topic, source.partition].append(source.offset)
    for partition, offsets in columns.items():
        count.answers(side.region, partition, np.array(offsets, np.int64), None)
