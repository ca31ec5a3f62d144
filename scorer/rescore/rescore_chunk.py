"""Compute corrections of score records: read and score the event of each record, or report why there is no correction."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from model_registry.untrusted_input import json_documents
from publisher.kafka.partitions import Partition
from publisher.kafka.reader import TopicReader
from publisher.kafka.source_position import Position
from publisher.runtime.context import Clock, Context
from publisher.transactions.session import Record
from scorer.dead_letters.headers import dead_letter_facts
from scorer.decoding.batch import Batch
from scorer.decoding.record_metadata import RecordMetadata
from scorer.decoding.types import Decoded, Decoder
from scorer.features.log import FeatureLog, LoggedInputs, ScoredEvent, create_reader
from scorer.features.read import FeatureLogDecoder
from scorer.fetch.python_source import batch_of
from scorer.models.servable import Servable
from scorer.rescore import read_events
from scorer.rescore.chunks import RescoreChunk, SelectedScore
from scorer.rescore.selection import AsJson, read
from scorer.scores.decode_record import ScoreRecord
from scorer.settings import Settings
from scorer.settings.carry import CarriedField, Row
from scorer.worker.encode import TargetTopic
from scorer.worker.score_batch import BatchScorer, ScoredBatch

AHEAD_MS = 3_600_000  # a record whose scoring time is further in the future than this is not trusted
EXAMPLES = 10  # the most records whose reason for a missing correction is reported
Place = tuple[str, int, int]
"""The topic, partition and offset of an event."""


@dataclass(slots=True)
class MissingEvents:
    """The number of missing events of one partition, with the lowest and the highest offset.

    An event is missing if it is no longer retained, or if the feature log has no record of its score.
    """

    count: int = 0
    first: int = 0
    last: int = 0

    def add(self, offset: int) -> None:
        """Count the missing event at this offset."""
        self.first = min(self.first, offset) if self.count else offset
        self.last = max(self.last, offset)
        self.count += 1


@dataclass(slots=True)
class UncorrectedScores:
    """The reasons why score records are not corrected.

    Attributes:
        gone: The events that are no longer retained, by partition.
        unlogged: The events whose score has no record in the feature log, by partition.
        examples: Messages about single records that are not corrected for another reason; only the first EXAMPLES.
    """

    gone: defaultdict[Partition, MissingEvents] = field(default_factory=lambda: defaultdict(MissingEvents))
    unlogged: defaultdict[Partition, MissingEvents] = field(default_factory=lambda: defaultdict(MissingEvents))
    examples: list[str] = field(default_factory=list)

    def example(self, text: str) -> None:
        """Add the reason of one record, unless there are EXAMPLES reasons already."""
        if len(self.examples) < EXAMPLES:
            self.examples.append(text)

    def lines(self) -> list[str]:
        """Return the reasons as lines of text: one for each partition with missing inputs, then the other reasons."""
        gone = [
            f"{topic}[{number}]: {events.count} events between the offsets {events.first} and {events.last} are no longer "
            "retained"
            for (topic, number), events in sorted(self.gone.items())
        ]
        unlogged = [
            f"{topic}[{number}]: the feature log has no record of {scores.count} scores of the events between the offsets "
            f"{scores.first} and {scores.last}: not in the sample, answered without a model, or deleted by retention"
            for (topic, number), scores in sorted(self.unlogged.items())
        ]
        return gone + unlogged + self.examples


@dataclass(frozen=True, slots=True)
class InputSources:
    """Where to read the inputs of events that are scored again: from the events, or from the feature log.

    Attributes:
        log: The feature log; None if no feature log is used.
        requires_log: Whether all inputs are read from the log, because the version has joined fields, whose past values are
            only there. Otherwise the log is read only for events that are no longer retained.
    """

    log: FeatureLog | None = None
    requires_log: bool = False


def logged_inputs(
    log: FeatureLog, selected: Sequence[SelectedScore], rows: Collection[int]
) -> list[tuple[LoggedInputs, list[int]]]:
    """Find the logged inputs of the score records at the indices `rows` of `selected`.

    Returns:
        Pairs of logged inputs, and the indices in `selected` of the score records that were computed from these inputs. Score
        records without logged inputs are left out.

    Raises:
        Fatal: If the log cannot be read.
    """
    rows_of: dict[ScoredEvent, list[int]] = {}
    for row in rows:
        record = selected[row].record
        source = record.source
        scored = ScoredEvent(source.topic, source.partition, source.offset, record.event_ms, record.scored_ms, record.digest)
        rows_of.setdefault(scored, []).append(row)
    inputs = log.find(rows_of)
    return [(logged, rows_of[scored]) for scored, logged in inputs.items()]


class ChunkRescorer:
    """Computes the corrections of one rescore job, chunk by chunk.

    `servable` is the version that scores the events again. Its encoder must produce records for `target`, the topic of
    corrections. The attribute `findings` collects the reasons why records were not corrected.
    """

    def __init__(
        self,
        settings: Settings,
        job: str,
        servable: Servable,
        target: TargetTopic,
        as_json: AsJson,
        sources: InputSources = InputSources(),
    ) -> None:
        self.findings = UncorrectedScores()
        self._settings = settings
        self._job = job
        self._servable = servable
        self._target = target
        self._as_json = as_json
        self._sources = sources
        self._scoring = BatchScorer(settings, target, TargetTopic(settings.dead_letter.topic, 1, target.max_bytes))

    def records(self, chunk: RescoreChunk, reader: TopicReader, partitions: Collection[Partition], now_ms: int) -> list[Record]:
        """Return the corrections of a chunk in the order of its records. Add each selected record to the counts of the chunk.

        Args:
            chunk: The chunk with the selected records.
            reader: Reads the input topics.
            partitions: The partitions of the input topics.
            now_ms: The current time in Unix milliseconds.

        Raises:
            Fatal: If the topics cannot be read.
            DependencyUnavailable: If a model server is unavailable.
        """
        wanted: dict[Place, list[int]] = {}
        for row, given in enumerate(chunk.selected):
            if reason := _unfit(given.record, partitions, now_ms):
                self._count_unfit(chunk, given, reason)
            else:
                source = given.record.source
                wanted.setdefault((source.topic, source.partition, source.offset), []).append(row)
        at_ms = max([now_ms, *(chunk.selected[row].record.scored_ms + 1 for rows in wanted.values() for row in rows)])
        corrections: dict[int, Record] = {}
        if not self._sources.requires_log:
            corrections |= self._decode_events(chunk, reader, wanted, at_ms)
        if self._sources.log is not None and wanted:
            corrections |= self._read_log(chunk, self._sources.log, wanted, at_ms)
        for place, rows in wanted.items():
            for row in rows:
                tally = chunk.counts_of(chunk.selected[row].partition)
                if self._sources.requires_log:
                    self.findings.unlogged[place[:2]].add(place[2])
                    tally.not_logged += 1
                else:
                    self.findings.gone[place[:2]].add(place[2])
                    tally.not_retained += 1
        return [corrections[row] for row in sorted(corrections)]

    def _decode_events(
        self, chunk: RescoreChunk, reader: TopicReader, wanted: dict[Place, list[int]], at_ms: int
    ) -> dict[int, Record]:
        """Score the retained events in `wanted`, and remove these events. Return the corrections as `_score` does."""
        by_partition: dict[Partition, list[int]] = {}
        for topic, number, offset in wanted:
            by_partition.setdefault((topic, number), []).append(offset)
        corrections: dict[int, Record] = {}
        for messages in read_events.at(reader, by_partition, self._settings.batching.max_events):
            batch = batch_of(messages, "empty")
            places = zip(batch.topics, batch.partitions, batch.offsets, strict=True)
            rows = [wanted.pop(place, []) for place in places]
            corrections |= self._score(chunk, batch, rows, self._servable, at_ms)
        return corrections

    def _read_log(self, chunk: RescoreChunk, log: FeatureLog, wanted: dict[Place, list[int]], at_ms: int) -> dict[int, Record]:
        """Score the logged inputs of the events in `wanted`; remove these events. Return the corrections as `_score` does."""
        missing = [row for rows in wanted.values() for row in rows]
        inputs = logged_inputs(log, chunk.selected, missing)
        loaded = self._servable.loaded
        decoder: Decoder = FeatureLogDecoder(loaded.model.signature(), create_reader(self._settings))
        carry = self._settings.output.carry
        corrections: dict[int, Record] = {}
        most = self._settings.batching.max_events
        for part in (inputs[start : start + most] for start in range(0, len(inputs), most)):
            batch = _batch_of_inputs([logged for logged, _ in part])
            part_decoder = decoder
            if carry:
                carried = {
                    logged.message.value() or b"": self._carried(chunk.selected[rows[0]], carry) for logged, rows in part
                }
                part_decoder = _CarryingDecoder(decoder, carried)
            servable = replace(self._servable, loaded=replace(loaded, decoder=part_decoder))
            corrections |= self._score(chunk, batch, [rows for _, rows in part], servable, at_ms)
        logged_rows = {row for _, rows in inputs for row in rows}
        for place, rows in list(wanted.items()):
            wanted[place] = [row for row in rows if row not in logged_rows]
            if not wanted[place]:
                del wanted[place]
        return corrections

    def _carried(self, given: SelectedScore, carry: Sequence[CarriedField]) -> Row:
        """Return the carried fields of the score record `given`, because the feature log does not contain them."""
        record = json_documents.decode_lenient(self._as_json(given.value))
        carried = record.get("carried")
        values = carried if isinstance(carried, dict) else {}
        return [field.fitted(values.get(field.name)) for field in carry]

    def _score(
        self, chunk: RescoreChunk, batch: Batch, rows_of: Sequence[Sequence[int]], servable: Servable, at_ms: int
    ) -> dict[int, Record]:
        """Score a batch, and return the corrections by the index of the corrected record in `chunk.selected`.

        Args:
            chunk: The chunk with the selected records.
            batch: The events.
            rows_of: For each event of the batch, the indices in `chunk.selected` of its records.
            servable: The version.
            at_ms: The time of scoring in Unix ms.
        """
        scored = self._scoring.score(batch, servable, Context(Clock(lambda: at_ms)), deadlines=False).editable()
        corrections: dict[int, Record] = {}
        for slot, rows in enumerate(rows_of):
            for row in rows:
                given = chunk.selected[row]
                answer = self._answer(scored, slot, given, batch.timestamps[slot])
                if isinstance(answer, str):
                    self._count_unfit(chunk, given, answer)
                elif answer[0] != self._target.topic:
                    self._count_refused(chunk, given, answer)
                else:
                    corrections[row] = self._correction(given, answer)
                    chunk.counts_of(given.partition).corrected += 1
        return corrections

    def _answer(self, scored: ScoredBatch, slot: int, given: SelectedScore, event_ms: int) -> Record | str:
        """Return the new answer for a score record: a score or a dead letter.

        If the event in row `slot` of the batch is not the event of the score record `given`, return the reason as text instead.
        """
        answer = scored.slots[slot]
        record = given.record
        if event_ms != record.event_ms:
            return f"its event has the time {event_ms}, and the score {record.event_ms}: was the topic recreated?"
        if answer is None:
            return "its event has no value, and such events are skipped"
        if answer[0] != self._target.topic:
            return answer
        score = read(answer[1], self._as_json)
        if score is None or score.id != record.id:
            event_id = score.id if score else None
            return f"its event has the id {event_id!r:.200}, and the score {record.id!r:.200}: was input.id changed?"
        return answer

    def _correction(self, given: SelectedScore, answer: Record) -> Record:
        topic, value, key, _, timestamp, headers = answer
        corrected_headers = [
            *(headers or ()),
            ("corrects", str(self._place(given)).encode()),
            ("job", self._job.encode()),
        ]
        return topic, value, key, given.partition % self._target.partitions, timestamp, corrected_headers

    def _place(self, given: SelectedScore) -> Position:
        return Position(self._settings.region, self._settings.output.topic, given.partition, given.offset)

    def _count_unfit(self, chunk: RescoreChunk, given: SelectedScore, reason: str) -> None:
        chunk.counts_of(given.partition).unfit += 1
        self.findings.example(f"{self._place(given)}: {reason}")

    def _count_refused(self, chunk: RescoreChunk, given: SelectedScore, letter: Record) -> None:
        facts = dead_letter_facts(letter[5] or [])
        tally = chunk.counts_of(given.partition)
        reason = facts.get("reason", "unknown")
        tally.refused = dict(Counter(tally.refused) + Counter([reason]))
        self.findings.example(f"{self._place(given)}: the version dead-letters its event: {reason}: {facts.get('error')}")


def _unfit(record: ScoreRecord, partitions: Collection[Partition], now_ms: int) -> str:
    """Return why the event of a score record must not be read: the record's source position or scoring time is impossible.

    The result is "" if the event can be read. Pure.
    """
    source = record.source
    if (source.topic, source.partition) not in partitions:
        return f"its event came from {source.topic}[{source.partition}], which is not a partition of an input topic"
    if record.scored_ms > now_ms + AHEAD_MS:
        return f"its scoring time is {record.scored_ms}, at least an hour after now"
    return ""


class _CarryingDecoder:
    """A decoder that adds the carried fields (`output.carry`) to the events that `decoder` decodes.

    `carried` maps the value of an event's record to the carried fields of the event.
    """

    def __init__(self, decoder: Decoder, carried: Mapping[bytes, Row]) -> None:
        self._decoder = decoder
        self._carried = carried

    def decode(self, values: Sequence[bytes | None], parts: RecordMetadata | None = None, /) -> Decoded:
        decoded = self._decoder.decode(values, parts)
        decoded.carried = [self._carried[values[row] or b""] for row in decoded.rows]
        return decoded


def _batch_of_inputs(inputs: Sequence[LoggedInputs]) -> Batch:
    """Create a batch whose values are records of the feature log, as a FeatureLogDecoder reads them.

    The positions and times in the batch are those of the original events.
    """
    records = [logged.record for logged in inputs]
    messages = [logged.message for logged in inputs]
    return Batch(
        topics=[record.source.topic for record in records],
        partitions=[record.source.partition for record in records],
        offsets=[record.source.offset for record in records],
        keys=[message.key() for message in messages],
        values=[message.value() for message in messages],
        timestamps=[record.event_ms for record in records],
        headers=[None] * len(records),
    )
