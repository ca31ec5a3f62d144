"""`scorer rescore`: correct wrong score records, each once.

The corrections of some records and the position behind them become visible in one transaction. Each job has a transactional id
prefix: a
process fences an earlier one of the same job, and reads its progress only after that. Neither a kill nor two processes at once
correct a
record twice.
"""

import contextlib
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from confluent_kafka import Producer

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
from publisher.transactions.wait_for_decided import OpenTransactions
from scorer import topics
from scorer.models.servable import Servable
from scorer.rescore.counts import RescoreCounts
from scorer.rescore.job_progress import JobProgress, definition
from scorer.rescore.rescore_chunk import ChunkRescorer, UncorrectedScores
from scorer.rescore.selection import ScoreSelection
from scorer.rescore.transactions import RescoreChunk, chunks
from scorer.scores import formats
from scorer.scores.decode_record import EventPosition
from scorer.settings import Settings
from scorer.worker.encode import Target

CHUNK_RECORDS = 5_000  # corrections of one transaction
CHUNKS_A_SECOND = 10.0  # where a rate is asked for


@dataclass(frozen=True, slots=True)
class RescoreJob:
    """The request. `version` is the digest of --with, None for the channel's version."""

    name: str
    selection: ScoreSelection
    version: str | None = None


class OffsetSpan(NamedTuple):
    """Offsets of a partition: from `begin` to `high` (exclusive); those before `low` are no longer retained."""

    begin: int
    low: int
    high: int

    @property
    def records(self) -> int:
        return max(0, self.high - max(self.begin, self.low))


@dataclass(slots=True)
class RescoreSummary:
    """The result of the job: `run` by this process, `total` since its start; `findings` are those of this process."""

    run: RescoreCounts = field(default_factory=RescoreCounts)
    total: RescoreCounts = field(default_factory=RescoreCounts)
    findings: UncorrectedScores = field(default_factory=UncorrectedScores)
    uncertain: int = 0
    """Selected records of a transaction that may have been committed."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "run": self.run.to_dict(),
            "uncertain": self.uncertain,
            "total": self.total.to_dict(),
            "not_corrected": self.findings.lines(),
        }

    def progress(self) -> tuple[str, str]:
        """Return how far this process has come, in words, and how to continue."""
        doubt = f", {self.uncertain:,} are uncertain" if self.uncertain else ""
        return f"{self.run.corrected:,} scores were corrected{doubt}", "run it again: the job continues where it was"


def correcting_settings(settings: Settings) -> Settings:
    """Return the settings with the topic of corrections as the output."""
    return settings.model_copy(update={"output": settings.output.model_copy(update={"topic": settings.corrections_topic})})


def rescore(
    settings: Settings,
    job: RescoreJob,
    servable: Servable,
    summary: RescoreSummary,
    interruption: Interruption,
    rate: float | None,
    progress: Report,
) -> None:
    """Do the rest of the job.

    Args:
        settings: the scorer's settings.
        job: what is asked for.
        servable: the version that scores.
        summary: counts what was done, also if this raises.
        interruption: holds signals back during a transaction.
        rate: records a second at most.
        progress: called with how many records were read.

    Raises:
        Fatal: with code 2 if a topic is missing, 3 if the job is another or another process has taken it over, 4 if a
            transaction did not succeed.
    """
    found = described(settings, _needed(settings))
    smallest = min(found[name].max_bytes for name in (settings.corrections_topic, settings.rollouts_topic))
    reader = TopicReader(settings.kafka, _name(settings))
    inputs = set(reader.partitions(settings.input.topics))
    asked = asked_for(settings, job, reader)
    corrections = found[settings.corrections_topic]
    target = Target(corrections.name, corrections.partitions, corrections.max_bytes)
    correcting = ChunkRescorer(settings, job.name, servable, target, formats.as_json(settings))
    with contextlib.closing(_session(settings, job.name, smallest)) as session:
        session.open()
        known = JobProgress(settings, job.name)
        known.read(reader)
        known.check(job.name, asked)
        summary.findings, summary.total = correcting.findings, known.total()
        writer = _Writer(session, known, asked, correcting, summary)
        began, done, scanned = time.monotonic(), 0, 0
        stretches = left(settings, reader, known)
        most = sum(each.records for each in stretches.values())
        for chunk in to_do(settings, job, reader, stretches, rate):
            if rate is not None:
                time.sleep(max(0.0, began + done / rate - time.monotonic()))
            with interruption:
                writer.write(chunk, reader, inputs)
                summary.total = known.total()
            done += len(chunk.given)
            scanned += chunk.scanned
            progress(settings.output.topic, scanned, most)


def preview(settings: Settings, job: RescoreJob, progress: Report) -> RescoreSummary:
    """Count the remaining records of the job without scoring or writing.

    Of `run` only `others`, `not_retained` and the records to correct (`corrected`) are known then. Raises Fatal.
    """
    needed = acls.to_read(settings.output.topic, settings.rollouts_topic)
    described(settings, needed | dict.fromkeys(settings.input.topics, frozenset()))
    reader = TopicReader(settings.kafka, _name(settings))
    known = JobProgress(settings, job.name)
    known.read(reader)
    known.check(job.name, asked_for(settings, job, reader))
    summary = RescoreSummary(total=known.total())
    kept = reader.spans(reader.partitions(settings.input.topics))
    stretches = left(settings, reader, known)
    scanned, most = 0, sum(each.records for each in stretches.values())
    for chunk in to_do(settings, job, reader, stretches, None):
        for tally in chunk.tallies.values():
            summary.run.add(tally)
        gone = sum(_gone(given.record.source, kept) for given in chunk.given)
        summary.run.add(RescoreCounts(corrected=len(chunk.given) - gone, not_retained=gone))
        scanned += chunk.scanned
        progress(settings.output.topic, scanned, most)
    return summary


def _gone(source: EventPosition, kept: Mapping[Partition, Bounds]) -> bool:
    """Return whether retention has deleted the event."""
    span = kept.get((source.topic, source.partition))
    return span is None or not span[0] <= source.offset < span[1]


def asked_for(settings: Settings, job: RescoreJob, reader: TopicReader) -> dict[str, Any]:
    output = settings.output.topic
    return definition(job.selection, job.version, output, reader.ids([output]).get(output, ""))


def described(settings: Settings, needed: dict[str, Operations]) -> dict[str, topics.DescribedTopic]:
    """Describe the topics. Raises Fatal (2) if one is missing."""
    admin = connect(settings.kafka, _name(settings))
    found = topics.describe(admin, settings.kafka, needed)
    topics.check_present(settings, admin, found, needed)
    return found


def left(settings: Settings, reader: TopicReader, known: JobProgress) -> dict[Partition, OffsetSpan]:
    """Return the remaining offsets, up to the current end."""
    spans = reader.spans(reader.partitions([settings.output.topic]))
    begins = {number: place.next for number, place in known.places.items()}
    return {(topic, at): OffsetSpan(begins.get(at, low), low, high) for (topic, at), (low, high) in spans.items()}


def to_do(
    settings: Settings, job: RescoreJob, reader: TopicReader, stretches: dict[Partition, OffsetSpan], rate: float | None
) -> Iterator[RescoreChunk]:
    """Yield the score records in these ranges; report deleted ranges first."""
    most = CHUNK_RECORDS if rate is None else min(CHUNK_RECORDS, max(1, int(rate / CHUNKS_A_SECOND)))
    for (_, number), (begin, low, _) in stretches.items():
        if begin < low:
            yield RescoreChunk(reached={number: low}, tallies={number: RescoreCounts(unread=low - begin)})
    there = {partition: (min(max(begin, low), high), high) for partition, (begin, low, high) in stretches.items()}
    yield from chunks(reader.read(there), job.selection, formats.as_json(settings), most)


class _Writer:
    """Writes the corrections and the progress of a chunk in one transaction."""

    def __init__(
        self,
        session: TransactionSession,
        known: JobProgress,
        asked: dict[str, Any],
        correcting: ChunkRescorer,
        summary: RescoreSummary,
    ) -> None:
        self._session = session
        self._known = known
        self._asked = asked
        self._correcting = correcting
        self._summary = summary

    def write(self, chunk: RescoreChunk, reader: TopicReader, inputs: Collection[Partition]) -> None:
        records = self._correcting.records(chunk, reader, inputs, time.time_ns() // 1_000_000)
        if self._known.definition is None:
            records.append(self._known.begin(self._asked))
        records += [self._known.move(number, at, chunk.tally(number)) for number, at in chunk.reached.items()]
        self._summary.uncertain = len(chunk.given)
        try:
            self._session.publish(records)
        except Fenced as error:
            raise Fatal("another process does this job: it has taken over", "let one at a time end", REFUSED) from error
        except Aborted as error:
            raise Fatal(f"a transaction failed: {error}") from error
        self._summary.uncertain = 0
        for tally in chunk.tallies.values():
            self._summary.run.add(tally)


def _needed(settings: Settings) -> dict[str, Operations]:
    read = acls.to_read(settings.output.topic, *settings.input.topics)
    return read | {settings.corrections_topic: frozenset({WRITE}), settings.rollouts_topic: frozenset({READ, WRITE})}


def _name(settings: Settings) -> str:
    return f"{settings.name}.rescore"


def _session(settings: Settings, job: str, batch_bytes: int) -> TransactionSession:
    name, seconds = _name(settings), settings.kafka.transaction_timeout_ms / 1_000

    def producer(transactional_id: str) -> Producer:
        return kafka.transactional_producer(settings.kafka, transactional_id, name, batch_bytes)

    opened = OpenTransactions(settings.kafka, name, (settings.corrections_topic, settings.rollouts_topic))
    ids = transactional_ids(f"{settings.name}/rescore/{job}")
    return TransactionSession(producer, ids, transaction_seconds=seconds, wait_until_decided=opened.wait)
