"""The start position of a partition without a committed offset, or with one of a deleted topic of the same name.

Topic ids distinguish a recreated topic from its predecessor: a known offset has another meaning in it, and the client would
continue silently. A
thread polls the ids; every mark names the id to which its offset belongs. The topic of swaps records which events were scored,
whatever the group
still knows. `way` decides; it is pure.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar

import msgspec
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaException, TopicPartition

from model_registry.untrusted_input.documents import DocumentDecoder, Int64, UnreadableDocument
from publisher.errors import UNREACHABLE, Fatal, Retriable
from publisher.kafka.partitions import Partition
from publisher.kafka.reader import TopicReader
from publisher.kafka.skipped_records import SkippedRecords
from publisher.kafka.topics import Bounds, Topic, Topics
from publisher.relay.topic_ids_watch import Looks
from scorer.consumer import group_offsets
from scorer.consumer.offset_metadata import OffsetMetadata
from scorer.settings import Settings

log = logging.getLogger(__name__)

StartReason = Literal["position", "made again", "added", "start", "expired"]
Answer = TypeVar("Answer")

LOOK_SECONDS = 1.5  # that one look at the topics may take
SEEN_SECONDS = 2.0  # what is published exactly once was read from topics whose ids were looked at since
ABSENT_SECONDS = 5.0  # a broker that has just started may not know all topics yet
GONE_SECONDS = 30.0  # a topic that is to be recreated may be absent so long
PAUSE_SECONDS = 0.01
LONGEST_PAUSE_SECONDS = 1.0  # between two questions that a broker does not answer, or not yet


class AnswerStartOffsets(NamedTuple):
    """The answers to a recreated topic begin at these offsets, by partition of the output and of the dead letters."""

    scores: list[int]
    letters: list[int]


class StartPosition(NamedTuple):
    """The start position of a partition. `after`: where its answers begin, if an earlier topic of that name had some."""

    way: StartReason
    position: TopicPartition
    mark: OffsetMetadata
    after: AnswerStartOffsets | None = None


class ScoredPartition(msgspec.Struct):
    """A swap record as far as it states what has been scored; `topic_id` is "" in records without one."""

    topic: str
    partition: Int64
    topic_id: str = ""


_scored = DocumentDecoder(ScoredPartition)


def way(offset: int, under: str, now: str, scored: Collection[str], elsewhere: bool) -> StartReason:
    """Decide how to continue in a partition of the topic whose id is `now`.

    `offset` is the group's, negative if none, and belongs to the id `under` ("": unknown). `scored` are the ids under which
    the partition has been
    scored; `elsewhere`: whether the group has been in this topic, or in one of its name.
    """
    if offset >= 0 and under in ("", now):
        return "position"
    if offset >= 0 or (scored and not {"", now} & set(scored)):
        return "made again"
    if scored:
        return "expired"
    return "added" if elsewhere else "start"


def known(epoch: int | None) -> int:
    """Return a leader epoch in the form of positions."""
    return -1 if epoch is None else epoch


class StartPositions:
    """Determines start positions for one scorer. `waiting` is called repeatedly during a wait, and may raise Aborted."""

    def __init__(self, settings: Settings, waiting: Callable[[], None], skipped: SkippedRecords | None = None) -> None:
        """`skipped` counts unreadable records of the topic of swaps and of the group's commits."""
        self._settings = settings
        self._skipped = skipped or SkippedRecords(log)
        self._waiting = waiting
        self._cluster = Topics(settings.kafka, settings.owner, settings.kafka.bootstrap_servers, LOOK_SECONDS)
        self._looks = Looks(self._cluster, settings.owner, settings.input.topics)
        self._judged: Mapping[str, Topic] = {}
        self._first: dict[str, str] = {}
        self._absent: dict[str, float] = {}
        self._gone: set[str] = set()

    def close(self) -> None:
        """Stop polling."""
        self._looks.close()

    def made_again(self, marks: Mapping[Partition, OffsetMetadata]) -> set[Partition]:
        """Return those of these partitions whose topic was recreated, once, as soon as a poll has shown it.

        Raises:
            Fatal: 3 if every topic stays absent.
        """
        if self._looks.failure is not None:
            raise self._looks.failure
        found = self._looks.found
        self._mind_absent(found)
        if found is self._judged:
            return set()
        self._judged = found
        return {p for p, mark in marks.items() if p[0] in found and found[p[0]].id != mark.topic_id}

    def look(self, marks: Mapping[Partition, OffsetMetadata]) -> set[Partition]:
        """Return the same by polling the topics now."""
        found = self._look({topic for topic, _ in marks}) if marks else {}
        return {p for p, mark in marks.items() if p[0] not in found or found[p[0]].id != mark.topic_id}

    def same(self, topic_ids: Iterable[tuple[str, str]]) -> bool:
        """Return whether the topics had these ids a moment ago; wait until a broker reports them."""
        if self._settings.delivery == "exactly-once" and self._looks.seen < time.monotonic() - SEEN_SECONDS:
            self._await(time.monotonic() - SEEN_SECONDS)
        found = self._looks.found
        return all(topic in found and found[topic].id == known for topic, known in topic_ids)

    def seen(self, topic: str, topic_id: str) -> bool:
        """Return whether a recent poll found the topic with this id, without waiting."""
        found = self._looks.found.get(topic)
        return found is not None and found.id == topic_id and self._looks.seen >= time.monotonic() - SEEN_SECONDS

    def of(self, consumer: Consumer, committed: Sequence[TopicPartition]) -> list[StartPosition]:
        """Return the start position of each partition, given the group's offsets.

        A partition without a position is omitted while it has no leader or does not exist.

        Raises:
            Fatal: 3 if only an operator can decide.
        """
        self._await(float("-inf"))
        ids = {name: topic.id for name, topic in self._looks.found.items()}
        marks = {(p.topic, p.partition): self._mark(p) for p in committed}
        odd = [p for p in committed if p.offset < 0 or marks[p.topic, p.partition].topic_id not in ("", ids.get(p.topic))]
        odd += [p for p in committed if p.topic not in ids and p not in odd]
        ways: dict[Partition, StartReason] = {}
        if odd:
            topics = {p.topic for p in odd}
            ids |= {name: topic.id for name, topic in self._look(topics).items()}
            odd = [p for p in committed if p.topic in topics]  # the look may have told another id than the one before
            missing = {(p.topic, p.partition) for p in odd} - self._existing(odd)
            if missing:
                log.warning(
                    "not read, because they do not exist any more: %s", ", ".join("{}[{}]".format(*p) for p in sorted(missing))
                )
            committed = [p for p in committed if (p.topic, p.partition) not in missing]
            ways = self._ways(consumer, [p for p in odd if (p.topic, p.partition) not in missing], marks, ids)
        for topic, topic_id in ids.items():
            self._first.setdefault(topic, topic_id)
        positions = self._offsets(consumer, ways, ids)
        marks = {
            p: mark if ways.get(p, "position") == "position" else OffsetMetadata(anew=ways[p] == "made again")
            for p, mark in marks.items()
        }
        answers = self._answers_from() if any(mark.anew for mark in marks.values()) else None
        found = []
        for p in committed:
            place = p.topic, p.partition
            how = ways.get(place, "position")
            if how != "position" and place not in positions:
                continue
            mark = msgspec.structs.replace(marks[place], topic_id=ids[p.topic])
            epoch = known(p.leader_epoch if how == "position" else None)
            position = TopicPartition(*place, positions.get(place, p.offset), leader_epoch=epoch)
            found.append(StartPosition(how, position, mark, answers if mark.anew else None))
        return found

    def _mark(self, committed: TopicPartition) -> OffsetMetadata:
        """Return the mark of a committed offset: an empty one, counted and named, if its metadata is unreadable."""
        try:
            return OffsetMetadata.read(committed.metadata)
        except UnreadableDocument as error:
            told = f"the metadata that group {self._settings.name} has committed there: {error}"
            self._skipped.skip(committed.topic, committed.partition, committed.offset, told)
            return OffsetMetadata()

    def _ways(
        self,
        consumer: Consumer,
        odd: Sequence[TopicPartition],
        marks: Mapping[Partition, OffsetMetadata],
        ids: Mapping[str, str],
    ) -> dict[Partition, StartReason]:
        """Return for each of these partitions how to continue."""
        scored = self._told(self._read_swaps)
        visited = {topic for topic, _ in scored} | self._positioned(consumer, {p.topic for p in odd})
        visited |= {topic for topic, known in self._first.items() if ids.get(topic, known) != known}
        found: dict[Partition, StartReason] = {}
        for p in odd:
            place = p.topic, p.partition
            under = scored.get(place, set())
            how = way(p.offset, marks[place].topic_id, ids[p.topic], under, p.topic in visited)
            found[place] = how
            if how in ("made again", "added"):
                log.warning("%s[%d]: %s (its topic's id is %s): read from its beginning", *place, how, ids[p.topic])
        if expired := [place for place, how in found.items() if how == "expired"]:
            raise _expired(self._settings, expired)
        return found

    def _positioned(self, consumer: Consumer, topics: Iterable[str]) -> set[str]:
        """Return those of the topics in which the group has a position in any partition."""
        known = self._looks.found
        every = [TopicPartition(topic, n) for topic in topics if topic in known for n in range(known[topic].partitions)]
        return {p.topic for p in group_offsets.committed(consumer, every, self._waiting) if p.offset >= 0}

    def _read_swaps(self) -> dict[Partition, set[str]]:
        """Return, by partition, the topic ids under which it has been scored."""
        reader = TopicReader(self._settings.kafka, self._settings.owner)
        partitions = reader.partitions([self._settings.swaps_topic])
        starts, ends = reader.earliest(partitions), reader.visible(partitions)
        found: dict[Partition, set[str]] = {}
        for batch in reader.read({p: (starts[p], ends[p]) for p in partitions}):
            self._waiting()
            for message in batch.messages:
                try:
                    swap = _scored.decode(message.value())
                except UnreadableDocument as error:
                    self._skipped.skip(*batch.partition, message.offset() or 0, error)
                    continue
                found.setdefault((swap.topic, swap.partition), set()).add(swap.topic_id)
        return found

    def _offsets(
        self, consumer: Consumer, ways: Mapping[Partition, StartReason], ids: Mapping[str, str]
    ) -> dict[Partition, int]:
        first = [TopicPartition(*place) for place, how in ways.items() if how in ("made again", "added")]

        def asked() -> dict[Partition, Bounds]:
            return self._cluster.bounds(group_offsets.led(self._cluster.client, self._existing(first)))

        bounds = self._told(asked)
        lows = {place: at.low for place, at in bounds.items()}
        return lows | self._started(consumer, {topic for (topic, _), how in ways.items() if how == "start"}, ids)

    def _existing(self, partitions: Iterable[TopicPartition]) -> set[Partition]:
        """Return those of the partitions that their topics have, as the last look shows them."""
        found = self._looks.found
        return {(p.topic, p.partition) for p in partitions if p.topic in found and p.partition < found[p.topic].partitions}

    def _started(self, consumer: Consumer, topics: Collection[str], ids: Mapping[str, str]) -> dict[Partition, int]:
        """Return and commit the start of each partition of these topics, which no scorer has read.

        `input.start` decides for all at once. The positions are committed, so that they are not decided again later, or by
        another member as for an added partition.
        """
        edge = OFFSET_BEGINNING if self._settings.input.start == "earliest" else OFFSET_END
        known = self._looks.found
        every = [(topic, n) for topic in topics if topic in known for n in range(known[topic].partitions)]
        starts = group_offsets.edges(consumer, self._cluster.client, every, edge, self._waiting)
        kept = [
            TopicPartition(*place, offset, OffsetMetadata(topic_id=ids[place[0]]).encode()) for place, offset in starts.items()
        ]
        try:
            if kept:
                consumer.commit(offsets=kept, asynchronous=False)
        except KafkaException as error:
            log.info("where the group begins is not committed yet: %s", error.args[0])
        return starts

    def _answers_from(self) -> AnswerStartOffsets:
        """Return the ends of the topics of answers: no event of the new topic has been answered yet."""
        names = self._settings.output.topic, self._settings.dead_letter.topic
        topics = self._told(lambda: self._cluster.topics(names))
        counts = {name: topics[name].partitions if name in topics else 0 for name in names}
        ends = self._told(lambda: self._cluster.bounds((n, p) for n in names for p in range(counts[n])))
        scores, letters = ([ends[n, p].high for p in range(counts[n])] for n in names)
        return AnswerStartOffsets(scores, letters)

    def _mind_absent(self, found: Mapping[str, Topic]) -> None:
        """Record which topics are absent, and since when. Raises Fatal (3) if all have been absent for too long."""
        topics = self._settings.input.topics
        if not self._looks.seen > 0 or (len(found) == len(topics) and not self._absent):
            return
        now = time.monotonic()
        self._absent = {topic: self._absent.get(topic, now) for topic in topics if topic not in found}
        gone = {topic for topic, since in self._absent.items() if now > since + GONE_SECONDS}
        for topic in sorted(gone - self._gone):
            log.error("%s; the other topics are read", _gone(topic))
        for topic in sorted(self._gone - gone):
            log.info("topic %s exists again", topic)
        self._gone = gone
        if len(gone) == len(topics):
            raise _gone(topics[0])

    def _look(self, topics: Collection[str]) -> Mapping[str, Topic]:
        """Return the current topics. An absent one is waited for up to ABSENT_SECONDS."""
        asked = time.monotonic()
        while True:
            self._await(asked)
            found = self._looks.found
            self._mind_absent(found)
            now = time.monotonic()
            if all(now > self._absent[topic] + ABSENT_SECONDS for topic in topics if topic not in found):
                return found
            self._wait(PAUSE_SECONDS)

    def _await(self, asked: float) -> None:
        """Wait for the answer of a poll that began after `asked` (monotonic seconds), or of any poll for -inf."""
        self._looks.hurry()
        while self._looks.seen <= asked:
            if self._looks.failure is not None:
                raise self._looks.failure
            self._waiting()
            time.sleep(PAUSE_SECONDS)

    def _told(self, question: Callable[[], Answer]) -> Answer:
        """Return the answer, however long brokers are unavailable. Raises Fatal if they reject the request."""
        said, pause = "", PAUSE_SECONDS
        while True:
            try:
                return question()
            except (Fatal, Retriable) as error:
                if isinstance(error, Fatal) and error.exit_code != UNREACHABLE:
                    raise
                if str(error) != said:
                    said = str(error)
                    log.info("%s", said)
            self._wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _wait(self, seconds: float) -> None:
        """Wait, and notice a stop meanwhile. Raises what `waiting` raises."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._waiting()
            time.sleep(min(left, PAUSE_SECONDS * 10))


def _gone(topic: str) -> Fatal:
    hint = "create it (scorer check --create creates what is missing), or take it out of input.topics"
    return Fatal(f"topic {topic} has not existed for {GONE_SECONDS:g} s", hint, 3)


def _expired(settings: Settings, places: Sequence[Partition]) -> Fatal:
    topic, partition = places[0]
    also = f" and {len(places) - 1} more" if len(places) > 1 else ""
    which = f" --partition {partition}" if len(places) == 1 else ""
    return Fatal(
        f"{topic}[{partition}]{also} was scored, says {settings.swaps_topic}, but group {settings.name} has no position there: "
        "its offsets have expired, or were deleted; to begin anew would score everything again",
        f"to go on deliberately: {settings.offsets_command} --topic {topic}{which} --to earliest, latest or an offset",
        3,
    )
