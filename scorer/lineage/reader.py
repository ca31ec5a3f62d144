"""Read the lineage of answers: the event, its score or dead letter, the cut-over, corrections, and the registry's history.

Topics are read outside any consumer group. The partition of an event determines the partition of its answer, and both have the
same timestamp, so the search for the answer starts at that timestamp.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from confluent_kafka import Message

from model_registry.channels import channel
from model_registry.channels.history import ChannelMove
from model_registry.channels.roles import CANARY, CHAMPION
from model_registry.errors import RegistryError
from model_registry.signing.admission import admission
from model_registry.untrusted_input.json_documents import DocumentDecoder, Int64, Unix, UnreadableDocument
from publisher.errors import USAGE, Fatal
from publisher.kafka import source_position
from publisher.kafka.headers import headers_of_one
from publisher.kafka.partitions import Partition
from publisher.kafka.reader import TopicReader
from publisher.kafka.skipped_records import SkippedRecords
from publisher.runtime.time_range import TimeRange
from scorer.dead_letters import headers as dead_letters
from scorer.decoding import decoder_factory as event_formats
from scorer.lineage.document import CORRECTION, DEAD_LETTER, SCORE, InputPosition, Lineage, LineageAnswer
from scorer.models.registry_access import open_cache, open_source
from scorer.models.traffic_split import TrafficSplit
from scorer.replay import read_dead_letter as parse
from scorer.scores import formats
from scorer.settings import Settings

log = logging.getLogger(__name__)

NEAR = 200  # offsets in which one probe of the binary search looks for the next score of the event's partition
STRETCH = 10_000  # offsets at which the binary search ends and the rest is read sequentially


class CutOverRecord(msgspec.Struct):
    """A cut-over record, reduced to the fields that the lineage needs.

    It states that a version scores the events of a partition from the offset `cut_over_offset` on.
    """

    topic: str
    partition: Int64
    cut_over_offset: Int64
    digest: str
    revision: Int64
    at_ms: Unix = -1
    role: str = CHAMPION
    seed: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{1,16}$")] | None = None


_swaps = DocumentDecoder(CutOverRecord)
_records = DocumentDecoder(dict[str, Any])


def _is_of_other_history(move: ChannelMove, swap: Mapping[str, Any] | None) -> bool:
    """Return whether a channel move and a cut-over record belong to different histories of the channel.

    The result is False if the move or the record has no history id.
    """
    history = swap.get("history") if swap else None
    return bool(move.history and history and move.history != history)


def nearest(start: int, end: int, probe: Callable[[int], tuple[int, int] | None], wanted: int) -> tuple[int, int]:
    """Search for the answer to the event at the offset `wanted`. Return a short offset range that contains the answer.

    This is a binary search. If the answers are not in the order of their events, the range may not contain the answer.

    Args:
        start: The first offset of the range to search.
        end: The end of the range to search.
        probe: A function from an offset to a pair: the position of the next answer at or after this offset, and the offset of
            the answered event. It returns None if no answer is near the offset.
        wanted: The offset of the event.
    """
    while end - start > STRETCH:
        middle = (start + end) // 2
        if (answer := probe(middle)) is None:
            break
        position, event = answer
        if event <= wanted:
            start = position
        else:
            end = middle
    return start, end


class LineageReader:
    """Read the lineage of one scorer's answers. Every method raises the Fatal errors of TopicReader."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._reader = TopicReader(settings.kafka, f"{settings.name}.lineage")
        self._as_json = formats.as_json(settings)
        self._ids = event_formats.create_id_reader(settings)
        self._skipped = SkippedRecords(log)

    def read(self, place: InputPosition) -> Lineage:
        """Return the lineage of the answer to the event at this position.

        Raises:
            Fatal: With exit code 2 if this is no position of an input topic.
        """
        lineage = Lineage(place, event=self._event(place))
        if lineage.event is None:
            lineage.missing.append(f"the event: {place.topic} holds no record at offset {place.offset}")
        lineage.answer = self._answer(place, lineage.event)
        if lineage.answer is None:
            lineage.missing.append("an answer: the topics of scores and of dead letters hold none")
            self._name_skipped(lineage)
            return lineage
        self._cut_over(lineage, lineage.answer)
        corrections = self._answers_in(self._settings.corrections_topic, place, lineage.event, self._as_correction)
        lineage.corrections = list(corrections)
        self._registry(lineage)
        self._name_skipped(lineage)
        return lineage

    def _name_skipped(self, lineage: Lineage) -> None:
        """Add the number of unreadable records of each topic to `missing`, because one of them may be the missing record."""
        skipped = sorted(self._skipped.counts.items())
        lineage.missing += [f"{count:,} unreadable records of {topic}" for topic, count in skipped]

    def _cut_over(self, lineage: Lineage, answer: LineageAnswer) -> None:
        swaps = self._swaps(lineage.place)
        if not swaps:
            swaps_topic = self._settings.swaps_topic
            lineage.missing.append(f"the cut-over: {swaps_topic} has no record of this partition before the event")
            return
        lineage.swap = next((swap for swap in swaps if swap["digest"] == answer.digest), None)
        if answer.record.get("fallback") and answer.record.get("arm") == CANARY:
            lineage.instead_of = next((swap for swap in swaps if swap.get("role") == CANARY), None)
        if lineage.swap is None:
            digests = " and ".join(str(swap["digest"]) for swap in swaps)
            reason = f"according to {self._settings.swaps_topic}, {digests} served the partition then"
            lineage.missing.append(f"the cut-over to the version that answered: {reason}")
        elif lineage.event is not None and (seed := lineage.swap.get("seed")):
            split = TrafficSplit(int(seed, 16), 0)
            lineage.bucket = split.bucket(lineage.event.key(), lineage.place[:2], lineage.place.offset)

    def with_id(self, wanted: str, window: TimeRange) -> InputPosition:
        """Return the position of the event with the id `wanted`.

        The position is read from the last score with this id in the window or, if there is no score, from the last dead letter.

        Raises:
            Fatal: With exit code 2 if no answer has this id.
        """
        for topic, named in ((self._settings.output.topic, self._score_id), (self._settings.dead_letter.topic, self._dead_id)):
            last = None
            for message in self._records(topic, window):
                if (place := named(message, wanted)) is not None:
                    last = place
            if last is not None:
                return last
        topic = self._settings.input.topics[0]
        hint = f"name its position, such as {topic}/0/17, or another --from and --to"
        raise Fatal(f"neither a score nor a dead letter has the id {wanted!r}", hint, USAGE)

    def _records(self, topic: str, window: TimeRange) -> Iterator[Message]:
        spans = self._reader.spans(self._reader.partitions([topic]))
        ends = {partition: bounds.high for partition, bounds in spans.items()}
        if window.to_ms is not None:
            ends = self._reader.since(window.to_ms, ends)
        starts = {partition: bounds.low for partition, bounds in spans.items()}
        if window.from_ms is not None:
            starts = self._reader.since(window.from_ms, ends)
        for batch in self._reader.read({partition: (starts[partition], end) for partition, end in ends.items()}):
            yield from batch.messages

    def _score_id(self, message: Message, wanted: str) -> InputPosition | None:
        record = self._score(message)
        return _source(record) if record is not None and str(record.get("id")) == wanted else None

    def _dead_id(self, message: Message, wanted: str) -> InputPosition | None:
        with contextlib.suppress(parse.NotReplayable):
            letter = parse.read_dead_letter(message, self._ids, 0)
            if letter.id == wanted:
                return InputPosition(letter.source.topic, letter.source.partition, letter.source.offset)
        return None

    def _event(self, place: InputPosition) -> Message | None:
        partitions = self._reader.partitions([place.topic])
        if place.topic not in self._settings.input.topics or place[:2] not in partitions:
            raise Fatal(
                f"{place} is not a position in an input topic",
                f"input topics: {', '.join(self._settings.input.topics)}; {place.topic} has {len(partitions)} partitions",
                USAGE,
            )
        bounds = self._reader.spans([place[:2]])[place[:2]]
        if not bounds.low <= place.offset < bounds.high:
            return None
        for batch in self._reader.read({place[:2]: (place.offset, place.offset + 1)}):
            return next((m for m in batch.messages if m.offset() == place.offset), None)
        return None

    def _answer(self, place: InputPosition, event: Message | None) -> LineageAnswer | None:
        """Return the dead letter of the event or, if there is none, the score of the event; None if neither is found.

        The score is first searched for in a short offset range, which a binary search determines. The binary search assumes
        that scores are in the order of their events. If the range does not contain the score, all offsets since the event's
        time are searched.
        """
        letters = self._settings.dead_letter.topic
        scores = self._settings.output.topic
        if letter := next(self._answers_in(letters, place, event, self._as_letter), None):
            return letter
        partition, (start, end) = self._bounds(scores, place, event)
        likely = nearest(start, end, lambda offset: self._next_of(partition, place, offset, end), place.offset)
        spans = ((partition, likely), (partition, (start, end)))
        return next((answer for span in spans for answer in self._answers_at(*span, place, self._as_score)), None)

    def _next_of(self, partition: Partition, place: InputPosition, start: int, end: int) -> tuple[int, int] | None:
        """Search for the next score in `partition` at or after `start`. Return (its offset, the offset of the scored event).

        Only scores of events in the input partition of `place` are considered. The search ends after NEAR offsets, or at `end`.
        The result is None if no such score is found.
        """
        for batch in self._reader.read({partition: (start, min(start + NEAR, end))}):
            for message in batch.messages:
                if (answer := self._as_score(message)) is not None and answer.source[:2] == place[:2]:
                    return answer.at.offset, answer.source.offset
        return None

    def _answers_in(
        self, topic: str, place: InputPosition, event: Message | None, read: Callable[[Message], LineageAnswer | None]
    ) -> Iterator[LineageAnswer]:
        yield from self._answers_at(*self._bounds(topic, place, event), place, read)

    def _bounds(self, topic: str, place: InputPosition, event: Message | None) -> tuple[Partition, tuple[int, int]]:
        """Return the partition of `topic` that holds the answer to the event at `place`, and the offset range to search.

        The range begins at the event's timestamp, or at the start of the partition if `event` is None. It ends at the current
        end of the partition.
        """
        count = len(self._reader.partitions([topic]))
        partition: Partition = (topic, place.partition % count)
        start, end = self._reader.spans([partition])[partition]
        since = 0 if event is None else event.timestamp()[1]
        if since > 0:
            start = max(start, self._reader.since(since, {partition: end})[partition])
        return partition, (start, end)

    def _answers_at(
        self, partition: Partition, span: tuple[int, int], place: InputPosition, read: Callable[[Message], LineageAnswer | None]
    ) -> Iterator[LineageAnswer]:
        for batch in self._reader.read({partition: span}):
            answers = (read(message) for message in batch.messages)
            yield from (answer for answer in answers if answer is not None and answer.source == place)

    def _score(self, message: Message) -> dict[str, Any] | None:
        try:
            record = _records.decode(self._as_json(message.value() or b""))
        except ValueError as error:
            self._skip(message, error)
            return None
        return record if _source(record) is not None else None

    def _skip(self, message: Message, error: ValueError) -> None:
        self._skipped.skip(*_at(message), error)

    def _as_score(self, message: Message) -> LineageAnswer | None:
        record = self._score(message)
        if record is None or (source := _source(record)) is None:
            return None
        return LineageAnswer(SCORE, _at(message), source, record, str(record.get("version")), str(record.get("digest")))

    def _as_correction(self, message: Message) -> LineageAnswer | None:
        score = self._as_score(message)
        return None if score is None else replace(score, kind=CORRECTION)

    def _as_letter(self, message: Message) -> LineageAnswer | None:
        headers = headers_of_one(message) or []
        source = _dead_source(headers)
        facts = dead_letters.dead_letter_facts(headers)
        name, _, digest = facts.get("model", "").partition("@")
        return (
            None if source is None else LineageAnswer(DEAD_LETTER, _at(message), source, facts, name.rpartition(":")[2], digest)
        )

    def _swaps(self, place: InputPosition) -> list[dict[str, Any]]:
        """Return the records of the partition's last cut-over at or before the event, one per role."""
        last: dict[str, dict[str, Any]] = {}
        since = (-1, -1)
        for message in self._records(self._settings.swaps_topic, TimeRange()):
            try:
                swap = _swaps.decode(message.value())
                record = _records.decode(message.value())
            except UnreadableDocument as error:
                self._skip(message, error)
                continue
            if (swap.topic, swap.partition) == place[:2] and swap.cut_over_offset <= place.offset:
                if (swap.cut_over_offset, swap.revision) != since:
                    since = (swap.cut_over_offset, swap.revision)
                    last = {}
                last[swap.role] = record
        return list(last.values())

    def _registry(self, lineage: Lineage) -> None:
        """Add the channel move and the signer of the version to the lineage.

        If one of these values cannot be read, its name and the reason are added to `missing` of the lineage.
        """
        answer = lineage.answer
        model = self._settings.model
        if answer is None:
            return
        try:
            store = open_source(self._settings)
            moves = channel.history(store, model.tag)
            revision = None if lineage.swap is None else lineage.swap["revision"]
            move = next((move for move in reversed(moves) if move.revision == revision), None)
            if move is None:
                lineage.missing.append(f"the move: channel {model.tag} has no entry of revision {revision}")
            elif _is_of_other_history(move, lineage.swap):
                lineage.missing.append(
                    f"the move: revision {revision} belongs to another history of channel {model.tag}, which is not stored here"
                )
            else:
                lineage.move = move
            gate = admission(model.policy, open_cache(model).root)
            lineage.signer = gate.check(store, answer.digest, answer.version, datetime.now(UTC))
        except RegistryError as error:
            lineage.missing.append(f"move and signer: {error}")


def _source(record: Mapping[str, Any]) -> InputPosition | None:
    source = record.get("source")
    if not isinstance(source, dict):
        return None
    topic, partition, offset = (source.get(name) for name in ("topic", "partition", "offset"))
    if isinstance(topic, str) and isinstance(partition, int) and isinstance(offset, int):
        return InputPosition(topic, partition, offset)
    return None


def _dead_source(headers: dead_letters.HeaderList) -> InputPosition | None:
    with contextlib.suppress(ValueError):
        return InputPosition(*source_position.parse(dead_letters.dead_letter_facts(headers).get("source", ""))[1:])
    return None


def _at(message: Message) -> InputPosition:
    return InputPosition(message.topic() or "", message.partition() or 0, message.offset() or 0)
