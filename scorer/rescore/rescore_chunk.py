"""Compute corrections of score records: read and score the event of each record, or report why there is no correction."""

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Message

from publisher.kafka.partitions import Partition
from publisher.kafka.reader import TopicReader
from publisher.kafka.source_position import Position
from publisher.runtime.context import Clock, Context
from publisher.transactions.session import Record
from scorer.dead_letters.headers import dead_letter_facts
from scorer.fetch.python_source import batch_of
from scorer.models.servable import Servable
from scorer.rescore import read_events
from scorer.rescore.chunks import RescoreChunk, SelectedScore
from scorer.rescore.selection import AsJson, read
from scorer.scores.decode_record import ScoreRecord
from scorer.settings import Settings
from scorer.worker.encode import Target
from scorer.worker.score_batch import BatchScorer, ScoredBatch

AHEAD_MS = 3_600_000  # a record whose scoring time is further in the future than this is not trusted
EXAMPLES = 10  # the most records whose reason for a missing correction is reported
Place = tuple[str, int, int]
"""The topic, partition and offset of an event."""


@dataclass(slots=True)
class MissingEvents:
    """The count and the range of offsets of the events of one partition that are no longer retained."""

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
    """The reasons why records are not corrected: missing events by partition, and the first EXAMPLES of other reasons."""

    gone: defaultdict[Partition, MissingEvents] = field(default_factory=lambda: defaultdict(MissingEvents))
    examples: list[str] = field(default_factory=list)

    def example(self, text: str) -> None:
        """Add the reason of one record, unless there are EXAMPLES reasons already."""
        if len(self.examples) < EXAMPLES:
            self.examples.append(text)

    def lines(self) -> list[str]:
        """Return the reasons as lines of text: one for each partition with missing events, then the other reasons."""
        gone = [
            f"{topic}[{number}]: {events.count} events between the offsets {events.first} and {events.last} are no longer "
            "retained"
            for (topic, number), events in sorted(self.gone.items())
        ]
        return gone + self.examples


class ChunkRescorer:
    """Computes the corrections of the chunks of one job with `servable`.

    `target` is the topic of corrections, and the encoder of `servable` must produce records for that topic. The attribute
    `findings` collects the reasons why records were not corrected.
    """

    def __init__(self, settings: Settings, job: str, servable: Servable, target: Target, as_json: AsJson) -> None:
        self.findings = UncorrectedScores()
        self._settings = settings
        self._job = job
        self._servable = servable
        self._target = target
        self._as_json = as_json
        self._scoring = BatchScorer(settings, target, Target(settings.dead_letter.topic, 1, target.max_bytes))

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
        by_partition: dict[Partition, list[int]] = {}
        for topic, number, offset in wanted:
            by_partition.setdefault((topic, number), []).append(offset)
        corrections: dict[int, Record] = {}
        for messages in read_events.at(reader, by_partition, self._settings.batching.max_events):
            corrections |= self._score_events(chunk, messages, wanted, at_ms)
        for place, rows in wanted.items():
            for row in rows:
                self.findings.gone[place[:2]].add(place[2])
                chunk.counts_of(chunk.selected[row].partition).not_retained += 1
        return [corrections[row] for row in sorted(corrections)]

    def _score_events(
        self, chunk: RescoreChunk, messages: Sequence[Message], wanted: dict[Place, list[int]], at_ms: int
    ) -> dict[int, Record]:
        """Score events, and return the corrections by the index of the corrected record in `chunk.selected`.

        Args:
            chunk: The chunk with the selected records.
            messages: The events.
            wanted: For the position of each event, the indices in `chunk.selected` of its records. The positions of the scored
                events are removed.
            at_ms: The time of scoring in Unix ms.
        """
        batch = batch_of(messages, "empty")
        scored = self._scoring.score(batch, self._servable, Context(Clock(lambda: at_ms)), deadlines=False).editable()
        corrections: dict[int, Record] = {}
        for slot, place in enumerate(zip(batch.topics, batch.partitions, batch.offsets, strict=True)):
            for row in wanted.pop(place, ()):
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
    """Return the reason why the event of a score record must not be read: its position or its scoring time is impossible.

    The result is "" if the event can be read. Pure.
    """
    source = record.source
    if (source.topic, source.partition) not in partitions:
        return f"its event came from {source.topic}[{source.partition}], which is not a partition of an input topic"
    if record.scored_ms > now_ms + AHEAD_MS:
        return f"its scoring time is {record.scored_ms}, at least an hour after now"
    return ""
