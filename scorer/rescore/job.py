"""`scorer rescore`: correct wrong score records, each exactly once.

The corrections of a chunk of records, and the position after the chunk, are committed in one transaction. Each job has its own
prefix of transactional ids: a process first fences an earlier process of the same job, and then reads the progress of the job.
Therefore no record is corrected twice, neither after a kill nor by two concurrent processes.
"""

import contextlib
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from confluent_kafka import Producer

from model_registry.package.signature import Signature
from publisher.audit.report import Progress as Report
from publisher.errors import REFUSED, Aborted, Fatal, Fenced
from publisher.kafka import acls
from publisher.kafka import clients as kafka
from publisher.kafka.acls import READ, WRITE, Operations
from publisher.kafka.connection import connect
from publisher.kafka.partitions import Partition
from publisher.kafka.reader import TopicReader
from publisher.kafka.topics import Bounds
from publisher.runtime.interruption import Interruption
from publisher.transactions.exactly_once import TransactionSession
from publisher.transactions.transactional_ids import transactional_ids
from publisher.transactions.wait_for_open_transactions import OpenTransactions
from scorer import topics
from scorer.features.log import FeatureLog
from scorer.features.required_log import excluded_fields, require_log
from scorer.models.servable import Servable
from scorer.rescore.chunks import RescoreChunk, chunks
from scorer.rescore.counts import RescoreCounts
from scorer.rescore.job_progress import JobProgress, definition
from scorer.rescore.rescore_chunk import ChunkRescorer, InputSources, UncorrectedScores, logged_inputs
from scorer.rescore.selection import ScoreSelection
from scorer.scores import formats
from scorer.scores.decode_record import EventPosition
from scorer.settings import Settings
from scorer.settings.features import FeatureLogSettings
from scorer.worker.encode import TargetTopic

CHUNK_RECORDS = 5_000  # the most selected records of one transaction
CHUNKS_A_SECOND = 10.0  # chunks are smaller if a rate is requested, so that this many fit in a second


@dataclass(frozen=True, slots=True)
class RescoreJob:
    """A request of an operator to correct score records: the name of the job, the selection of records, and the version.

    `version` is the digest of the version that scores the events again (option --with). If it is None, the version that the
    channel names is used.
    """

    name: str
    selection: ScoreSelection
    version: str | None = None


class OffsetSpan(NamedTuple):
    """The offsets of a partition from `begin` to `high` (exclusive). Records before `low` were deleted by retention."""

    begin: int
    low: int
    high: int

    @property
    def records(self) -> int:
        """The number of offsets in the span that are still retained."""
        return max(0, self.high - max(self.begin, self.low))


@dataclass(slots=True)
class RescoreSummary:
    """The result of one process that runs a rescore job.

    Attributes:
        run: The counts of the score records that this process has processed.
        total: The counts of all score records that the job has processed, including earlier processes.
        findings: The reasons why this process did not correct records.
        uncertain: The number of selected records in the last transaction, if it is unknown whether it was committed; else 0.
    """

    run: RescoreCounts = field(default_factory=RescoreCounts)
    total: RescoreCounts = field(default_factory=RescoreCounts)
    findings: UncorrectedScores = field(default_factory=UncorrectedScores)
    uncertain: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
        return {
            "run": self.run.to_dict(),
            "uncertain": self.uncertain,
            "total": self.total.to_dict(),
            "not_corrected": self.findings.lines(),
        }

    def progress(self) -> tuple[str, str]:
        """Return two texts: the progress of this process, and how to continue the job."""
        doubt = f", {self.uncertain:,} are uncertain" if self.uncertain else ""
        return f"{self.run.corrected:,} scores were corrected{doubt}", "run it again: the job continues at its position"


def correcting_settings(settings: Settings) -> Settings:
    """Return a copy of the settings whose output topic is the topic of corrections, and which have no feature log.

    A corrected score gets no feature record, so that no schema of feature records is needed.
    """
    output = settings.output.model_copy(update={"topic": settings.corrections_topic})
    return settings.model_copy(update={"output": output, "features": FeatureLogSettings()})


def rescore(
    settings: Settings,
    job: RescoreJob,
    servable: Servable,
    summary: RescoreSummary,
    interruption: Interruption,
    rate: float | None,
    progress: Report,
) -> None:
    """Correct the remaining score records of the job.

    Args:
        settings: The scorer's settings.
        job: The request.
        servable: The version that scores the events again.
        summary: Receives the counts while the call runs, so that they are available after an error.
        interruption: Delays signals until the end of a transaction.
        rate: The maximum number of selected records per second; None for no limit.
        progress: Called after each chunk with the topic, the number of records that were read, and the total to read.

    Raises:
        Fatal: With exit code 2 if a topic is missing, 3 if the job has another definition or another process has taken it over,
            4 if a transaction failed.
    """
    described = describe(settings, _needed(settings))
    smallest = min(described[name].max_bytes for name in (settings.corrections_topic, settings.rollouts_topic))
    reader = TopicReader(settings.kafka, _name(settings))
    inputs = set(reader.partitions(settings.input.topics))
    requested = define_job(settings, job, reader)
    corrections = described[settings.corrections_topic]
    target = TargetTopic(corrections.name, corrections.partitions, corrections.max_bytes)
    sources = open_sources(settings, servable.loaded.model.signature(), reader)
    correcting = ChunkRescorer(settings, job.name, servable, target, formats.as_json(settings), sources)
    with contextlib.closing(_session(settings, job.name, smallest)) as session:
        session.open()
        saved = JobProgress(settings, job.name)
        saved.read(reader)
        saved.check(job.name, requested)
        summary.findings = correcting.findings
        summary.total = saved.total()
        writer = _Writer(session, saved, requested, correcting, summary)
        began = time.monotonic()
        done = 0
        scanned = 0
        stretches = remaining_offsets(settings, reader, saved)
        most = sum(each.records for each in stretches.values())
        for chunk in remaining_chunks(settings, job, reader, stretches, rate):
            if rate is not None:
                time.sleep(max(0.0, began + done / rate - time.monotonic()))
            with interruption:
                writer.write(chunk, reader, inputs)
                summary.total = saved.total()
            done += len(chunk.selected)
            scanned += chunk.scanned
            progress(settings.output.topic, scanned, most)


def open_sources(settings: Settings, signature: Signature | None, reader: TopicReader) -> InputSources:
    """Return where the inputs of past scores are read for a version with this signature.

    A feature log whose records do not hold all fields of the version is not used.

    Raises:
        Fatal: With exit code 2 if the version has joined fields, and no feature log with its inputs is configured.
    """
    requires_log = signature is not None and require_log(settings.features, [signature])
    if settings.features.topic is None or (signature is not None and excluded_fields(settings.features, signature)):
        return InputSources()
    return InputSources(FeatureLog(settings, reader), requires_log)


def preview(settings: Settings, job: RescoreJob, signature: Signature | None, progress: Report) -> RescoreSummary:
    """Count the remaining records of the job without scoring or writing.

    The counts are in the attribute `run` of the result. The count `corrected` is the number of selected records whose inputs
    still exist: the event or, for a version with joined fields, the record of the feature log. A real run may correct fewer
    records: the version may dead-letter an event, and the event at a record's offset may not be the event that was scored.

    Args:
        settings: The scorer's settings.
        job: The request.
        signature: The signature of the version that would score the events again; None if its package has none.
        progress: Called as in `rescore`.

    Raises:
        Fatal: If a topic is missing, the job has another definition, or the inputs are not recoverable.
    """
    needed = acls.to_read(settings.output.topic, settings.rollouts_topic, *_feature_topics(settings))
    describe(settings, needed | dict.fromkeys(settings.input.topics, frozenset()))
    reader = TopicReader(settings.kafka, _name(settings))
    saved = JobProgress(settings, job.name)
    saved.read(reader)
    saved.check(job.name, define_job(settings, job, reader))
    summary = RescoreSummary(total=saved.total())
    sources = open_sources(settings, signature, reader)
    retained = reader.spans(reader.partitions(settings.input.topics))
    stretches = remaining_offsets(settings, reader, saved)
    scanned = 0
    most = sum(each.records for each in stretches.values())
    for chunk in remaining_chunks(settings, job, reader, stretches, None):
        for tally in chunk.counts_by_partition.values():
            summary.run.add(tally)
        summary.run.add(_count_inputs(chunk, sources, retained))
        scanned += chunk.scanned
        progress(settings.output.topic, scanned, most)
    return summary


def _count_inputs(chunk: RescoreChunk, sources: InputSources, retained: Mapping[Partition, Bounds]) -> RescoreCounts:
    """Count the selected records of a chunk: as `corrected` if their inputs exist, else as `not_logged` or `not_retained`."""
    missing = list(range(len(chunk.selected)))
    if not sources.requires_log:
        missing = [row for row in missing if _is_deleted(chunk.selected[row].record.source, retained)]
    count = len(missing)
    if sources.log is not None and missing:
        count -= sum(len(rows) for _, rows in logged_inputs(sources.log, chunk.selected, missing))
    corrected = len(chunk.selected) - count
    if sources.requires_log:
        return RescoreCounts(corrected=corrected, not_logged=count)
    return RescoreCounts(corrected=corrected, not_retained=count)


def _is_deleted(source: EventPosition, retained: Mapping[Partition, Bounds]) -> bool:
    """Return whether the event at the position `source` is missing: deleted by retention, or in a partition that is missing."""
    span = retained.get((source.topic, source.partition))
    return span is None or not span[0] <= source.offset < span[1]


def define_job(settings: Settings, job: RescoreJob, reader: TopicReader) -> dict[str, Any]:
    """Return the definition of the requested job, with the current id of the topic of scores."""
    output = settings.output.topic
    return definition(job.selection, job.version, output, reader.ids([output]).get(output, ""))


def describe(settings: Settings, needed: dict[str, Operations]) -> dict[str, topics.DescribedTopic]:
    """Describe the topics in `needed`, which has the required access rights by topic.

    Raises:
        Fatal: With exit code 2 if a topic is missing.
    """
    admin = connect(settings.kafka, _name(settings))
    described = topics.describe(admin, settings.kafka, needed)
    topics.check_present(settings, admin, described, needed)
    return described


def remaining_offsets(settings: Settings, reader: TopicReader, saved: JobProgress) -> dict[Partition, OffsetSpan]:
    """Return, for each partition of the topic of scores, the span of offsets that the job has not processed yet.

    A span begins at the saved position of the job, and ends at the current end of the partition.
    """
    spans = reader.spans(reader.partitions([settings.output.topic]))
    begins = {number: place.next for number, place in saved.places.items()}
    return {(topic, number): OffsetSpan(begins.get(number, low), low, high) for (topic, number), (low, high) in spans.items()}


def remaining_chunks(
    settings: Settings, job: RescoreJob, reader: TopicReader, stretches: dict[Partition, OffsetSpan], rate: float | None
) -> Iterator[RescoreChunk]:
    """Yield the score records in the spans `stretches`, in chunks of one transaction each.

    The first chunks have no records: they count the offsets that retention has deleted, and advance the position past them.
    """
    most = CHUNK_RECORDS if rate is None else min(CHUNK_RECORDS, max(1, int(rate / CHUNKS_A_SECOND)))
    for (_, number), (begin, low, _) in stretches.items():
        if begin < low:
            yield RescoreChunk(reached={number: low}, counts_by_partition={number: RescoreCounts(unread=low - begin)})
    ranges = {partition: (min(max(begin, low), high), high) for partition, (begin, low, high) in stretches.items()}
    yield from chunks(reader.read(ranges), job.selection, formats.as_json(settings), most)


class _Writer:
    """Writes the corrections of a chunk and the progress of the job in one transaction."""

    def __init__(
        self,
        session: TransactionSession,
        saved: JobProgress,
        requested: dict[str, Any],
        correcting: ChunkRescorer,
        summary: RescoreSummary,
    ) -> None:
        self._session = session
        self._saved = saved
        self._requested = requested
        self._correcting = correcting
        self._summary = summary

    def write(self, chunk: RescoreChunk, reader: TopicReader, inputs: Collection[Partition]) -> None:
        """Compute and publish the corrections of a chunk, with the position after the chunk. Raises Fatal if that fails.

        `inputs` are the partitions of the input topics.
        """
        records = self._correcting.records(chunk, reader, inputs, time.time_ns() // 1_000_000)
        if self._saved.definition is None:
            records.append(self._saved.begin(self._requested))
        records += [self._saved.move(number, offset, chunk.counts_of(number)) for number, offset in chunk.reached.items()]
        self._summary.uncertain = len(chunk.selected)
        try:
            self._session.publish(records)
        except Fenced as error:
            raise Fatal("another process has taken over this job", "run only one process per job", REFUSED) from error
        except Aborted as error:
            raise Fatal(f"a transaction failed: {error}") from error
        self._summary.uncertain = 0
        for tally in chunk.counts_by_partition.values():
            self._summary.run.add(tally)


def _needed(settings: Settings) -> dict[str, Operations]:
    read = acls.to_read(settings.output.topic, *settings.input.topics, *_feature_topics(settings))
    return read | {settings.corrections_topic: frozenset({WRITE}), settings.rollouts_topic: frozenset({READ, WRITE})}


def _feature_topics(settings: Settings) -> list[str]:
    return [settings.features.topic] if settings.features.topic else []


def _name(settings: Settings) -> str:
    return f"{settings.name}.rescore"


def _session(settings: Settings, job: str, batch_bytes: int) -> TransactionSession:
    name = _name(settings)
    seconds = settings.kafka.transaction_timeout_ms / 1_000

    def producer(transactional_id: str) -> Producer:
        return kafka.transactional_producer(settings.kafka, transactional_id, name, batch_bytes)

    opened = OpenTransactions(settings.kafka, name, (settings.corrections_topic, settings.rollouts_topic))
    ids = transactional_ids(f"{settings.name}/rescore/{job}")
    return TransactionSession(producer, ids, transaction_seconds=seconds, wait_until_decided=opened.wait)
