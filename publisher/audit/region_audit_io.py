"""Run the audit over regions on Kafka. The order of the reads makes the counts valid on a live system.

An answer (score or dead letter) is counted in the region that produced it. Copies of answers are not counted.
"""

# The committed offsets of the groups in all regions are read first. Every event before these offsets must be answered. Then the
# end offsets of the outputs and of the inputs are read. Then the audit waits until open transactions are decided, and reads all
# records up to these ends. Dead letters are read before the inputs (see `skip_unreadable_batches.py`).

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from model_registry.untrusted_input.json_documents import DocumentDecoder
from publisher.audit.audited_records import DeletedTopicFilter, Source, dead_sources, decode_swap, decoded
from publisher.audit.region_audit import OriginPartition, RegionsAudit, RegionsReport
from publisher.audit.report import Progress
from publisher.audit.scorer_audit import ANSWER_SECONDS, CLIENT_ID, AuditScope
from publisher.audit.skip_unreadable_batches import read, read_past, within
from publisher.errors import retriable_as_fatal
from publisher.kafka import clients as kafka
from publisher.kafka import source_position
from publisher.kafka.clients import KafkaSettings
from publisher.kafka.groups import ConsumerGroups
from publisher.kafka.headers import headers_of_one
from publisher.kafka.partitions import Offsets, Partition
from publisher.kafka.reader import PartitionBatch, Range, TopicReader
from publisher.kafka.source_position import origin_of

Columns = tuple[list[int], list[int]]


@dataclass(frozen=True)
class AuditedRegion:
    """One region to audit.

    Attributes:
        region: the name of the region, as it is written in positions and score records.
        kafka: the connection to the cluster of the region.
        plan: the topics and the consumer group of the region. Its time range is ignored.
    """

    region: str
    kafka: KafkaSettings
    plan: AuditScope


class Score(msgspec.Struct, gc=False):
    """The audited fields of a score record: its id, and the region and position of its event."""

    id: str
    region: str
    source: Source


decode_score = DocumentDecoder(Score).decode


class _RegionReader:
    """Reads the topics of one region, and holds the input offsets that its dead letters name.

    The constructor requests the end offsets of the topics. Records after these offsets are not read.
    """

    def __init__(self, side: AuditedRegion, answer_seconds: float) -> None:
        plan = side.plan
        self.side = side
        self.topics = TopicReader(side.kafka, CLIENT_ID, answer_seconds)
        self.inputs = self.topics.partitions(plan.inputs)
        self.due = _committed(side, answer_seconds)
        self.swaps, self.scores, self.dead = (
            self.topics.written(self.topics.partitions(names)) for names in (plan.swaps, plan.outputs, plan.dead)
        )
        self.logs = DeletedTopicFilter(self.topics.ids(plan.inputs))
        self.spans = self._spans(self.topics.visible(self.inputs))
        self.letters: defaultdict[Partition, list[int]] = defaultdict(list)
        self.unreadable: defaultdict[Partition, list[Range]] = defaultdict(list)

    def read(self, subject: str, ends: Offsets, progress: Progress) -> Iterable[PartitionBatch]:
        return read(self.topics, f"{subject} in {self.side.region}", self._spans(ends), progress)

    def _spans(self, ends: Offsets) -> dict[Partition, Range]:
        starts = self.topics.earliest(ends)
        return {partition: (starts[partition], end) for partition, end in ends.items()}


def audit(
    sides: Sequence[AuditedRegion], progress: Progress = lambda *_: None, answer_seconds: float = ANSWER_SECONDS
) -> RegionsReport:
    """Read the topics of all regions, and count the events and their answers over all regions together.

    Args:
        sides: the regions.
        progress: called with the progress.
        answer_seconds: the longest wait for one answer of a broker.

    Raises:
        Fatal: with exit code 2 if a topic is missing, 3 if a broker rejects the request, 4 if a broker does not answer.
    """
    count = RegionsAudit()
    readings = [_RegionReader(side, answer_seconds) for side in sides]
    for reading in readings:
        for batch in reading.read("swaps", reading.swaps, progress):
            for offset, swap in decoded(batch, decode_swap):
                if swap is None:
                    count.count_unreadable(reading.side.region, batch.partition, offset)
                else:
                    reading.logs.add_swap(swap)
        for batch in reading.read("dead letters", reading.dead, progress):
            _take_dead_letters(count, reading, batch)
    for reading in readings:
        _feed_inputs(count, reading, progress)
    for reading in readings:
        _feed_dead_letters(count, reading)
        for batch in reading.read("scores", reading.scores, progress):
            _feed_scores(count, reading, batch)
    return count.report()


def _committed(side: AuditedRegion, answer_seconds: float) -> dict[Partition, int]:
    """Return the positions that the consumer group of a region has committed; {} if the region's plan names no group."""
    if not side.plan.group:
        return {}
    groups = ConsumerGroups(kafka.admin(side.kafka, CLIENT_ID), side.kafka, side.region, answer_seconds)
    with retriable_as_fatal("check kafka.bootstrap_servers"):
        return {(p.topic, p.partition): p.next for p in groups.positions(side.plan.group)}


def _feed_inputs(count: RegionsAudit, reading: _RegionReader, progress: Progress) -> None:
    written: dict[Partition, list[int]] = {partition: [] for partition in reading.inputs}
    copies: dict[Partition, defaultdict[OriginPartition, Columns]] = {p: defaultdict(lambda: ([], [])) for p in reading.inputs}

    def unread(partition: Partition, offsets: Range) -> None:
        written[partition].extend(range(*offsets))

    for partition, span in reading.spans.items():
        for part in within(span, reading.unreadable.get(partition, ())):
            unread(partition, part)
    subject = f"inputs in {reading.side.region}"
    for batch in read_past(reading.topics, subject, reading.spans, progress, reading.unreadable, unread):
        for offset, message in zip(batch.offsets, batch.messages, strict=True):
            first = origin_of(headers_of_one(message), batch.partition)
            try:
                origin = None if first is None else source_position.parse(first)
            except ValueError:
                count.count_unreadable(reading.side.region, batch.partition, offset)
                continue
            if origin is None:
                written[batch.partition].append(offset)
            else:
                columns = copies[batch.partition][OriginPartition(*origin[:3])]
                columns[0].append(offset)
                columns[1].append(origin.offset)
    for partition in reading.inputs:
        copies_by_home = {home: (np.array(o, np.int64), np.array(c, np.int64)) for home, (o, c) in copies[partition].items()}
        local_offsets = np.array(written[partition], np.int64)
        count.add_inputs(reading.side.region, partition, local_offsets, copies_by_home, reading.due.get(partition, 0))


def _feed_scores(count: RegionsAudit, reading: _RegionReader, batch: PartitionBatch) -> None:
    columns: defaultdict[Partition, Columns] = defaultdict(lambda: ([], []))
    region = reading.side.region
    for offset, record in decoded(batch, decode_score, reading.side.plan.as_json):
        if record is None:
            count.count_unreadable(region, batch.partition, offset)
        elif record.region == region:
            source = record.source.topic, record.source.partition
            if reading.logs.is_deleted(source, batch.partition, offset):
                count.count_deleted(1)
            else:
                columns[source][0].append(record.source.offset)
                columns[source][1].append(hash(record.id))
    for source, (offsets, ids) in columns.items():
        count.add_answers(region, source, np.array(offsets, np.int64), np.array(ids, np.int64))


def _take_dead_letters(count: RegionsAudit, reading: _RegionReader, batch: PartitionBatch) -> None:
    region = reading.side.region
    for offset, event_id in dead_sources(batch):
        if event_id is None:
            count.count_unreadable(region, batch.partition, offset)
            continue
        first, (letter_region, topic, number, last), ranged = event_id
        if letter_region != region:
            continue
        if reading.logs.is_deleted((topic, number), batch.partition, offset, dead=True):
            count.count_deleted(1)
        elif ranged:
            reading.unreadable[topic, number].append((first, last + 1))
        else:
            reading.letters[topic, number].append(last)


def _feed_dead_letters(count: RegionsAudit, reading: _RegionReader) -> None:
    """Add the dead letters of a region as answers.

    The dead letter of an unreadable batch answers each offset of the batch that the input partition retains.
    """
    # It is a phantom if the batch has offsets at or after the end of the input partition, or if the partition is not an input.
    for partition, offsets in reading.letters.items():
        count.add_answers(reading.side.region, partition, np.array(offsets, np.int64), None)
    for partition, ranges in reading.unreadable.items():
        low, end = reading.spans.get(partition, (0, 0))
        for start, stop in ranges:
            parts = [np.arange(max(start, low), min(stop, end)), np.arange(stop - 1, stop if stop > end else stop - 1)]
            count.add_answers(reading.side.region, partition, np.concatenate(parts), None)
