"""The start position of a partition whose committed offset is missing, or belongs to a deleted topic of the same name.

A recreated topic has another id. A background thread polls the ids of the topics, and each id is compared with the id in the
metadata of the committed offset. Without this comparison, the client would apply an offset of the deleted topic to the
recreated topic without an error. The topic of version changes shows which partitions were scored before, even if the group's
offsets have expired. `decide_start` makes the decision, and is pure.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar

import msgspec
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaException, TopicPartition

from model_registry.untrusted_input.json_documents import DocumentDecoder, Int64, UnreadableDocument
from publisher.errors import UNREACHABLE, Fatal, Retriable
from publisher.kafka.partitions import Partition
from publisher.kafka.reader import TopicReader
from publisher.kafka.skipped_records import SkippedRecords
from publisher.kafka.topics import Bounds, Topic, Topics
from publisher.relay.topic_ids_watch import TopicPoller
from publisher.runtime.context import Context
from scorer.consumer import group_offsets
from scorer.consumer.offset_metadata import OffsetMetadata
from scorer.settings import Settings

log = logging.getLogger(__name__)

StartReason = Literal["position", "recreated", "added", "start", "expired"]
"""How the start offset of a partition is determined.

- "position": the committed offset.
- "recreated": the beginning of a recreated topic.
- "added": the beginning of a partition that was added to a topic which the group has read.
- "start": the setting `input.start`, for a topic that the group has never read.
- "expired": not determined. The committed offset of a partition that was scored before has expired, so an operator must decide.
"""
Answer = TypeVar("Answer")

TOPIC_POLL_SECONDS = 1.5  # the time-out of one poll of the topics
SEEN_SECONDS = 2.0  # a batch is published exactly once only if the ids of its topics were polled within this time
ABSENT_SECONDS = 5.0  # a broker that has just started may not know all topics yet
GONE_SECONDS = 30.0  # a topic that is being recreated may be absent for this long
PAUSE_SECONDS = 0.01
LONGEST_PAUSE_SECONDS = 1.0  # between two requests that no broker answers


class AnswerStartOffsets(NamedTuple):
    """The offsets from which scores and dead letters answer events of a recreated input topic.

    Earlier records answer events of the deleted topic of the same name. `scores` has one offset per partition of the output
    topic, `letters` has one offset per partition of the dead-letter topic.
    """

    scores: list[int]
    letters: list[int]


class StartPosition(NamedTuple):
    """The start position of a partition.

    Attributes:
        reason: how the start offset was determined: `position` is the committed offset; see `decide_start` for the others.
        position: the offset to read first, with its leader epoch if known.
        metadata: the metadata to commit with the offset.
        after: the first offsets of the answers to a recreated topic; None if `metadata.is_recreated` is False.
    """

    reason: StartReason
    position: TopicPartition
    metadata: OffsetMetadata
    after: AnswerStartOffsets | None = None


class ScoredPartition(msgspec.Struct):
    """The fields of a version change record that identify the scored partition.

    `topic_id` is "" in records without an id.
    """

    topic: str
    partition: Int64
    topic_id: str = ""


_scored = DocumentDecoder(ScoredPartition)


def decide_start(offset: int, committed_id: str, topic_id: str, scored_ids: Collection[str], visited: bool) -> StartReason:
    """Decide how the start offset of a partition is determined.

    Args:
        offset: the group's committed offset; negative if there is none.
        committed_id: the id of the topic that the offset belongs to; "" if unknown.
        topic_id: the current id of the topic.
        scored_ids: the topic ids under which the partition was scored, according to the topic of version changes; empty if it
            was never scored.
        visited: whether the group has read any partition of this topic, or of a deleted topic with the same name.
    """
    if offset >= 0 and committed_id in ("", topic_id):
        return "position"
    if offset >= 0 or (scored_ids and not {"", topic_id} & set(scored_ids)):
        return "recreated"
    if scored_ids:
        return "expired"
    return "added" if visited else "start"


def leader_epoch_field(epoch: int | None) -> int:
    """Return the value for the field `leader_epoch` of a TopicPartition: the epoch, or -1 if the epoch is None (unknown)."""
    return -1 if epoch is None else epoch


class StartPositions:
    """Determines the start positions of one scorer, and polls the ids of its input topics in a background thread.

    The thread that owns the consumer makes all calls. Each method may raise the error that ended the background thread.
    """

    def __init__(self, settings: Settings, context: Context, skipped: SkippedRecords | None = None) -> None:
        """Start the thread that polls the input topics.

        Args:
            settings: the settings of the scorer.
            context: the context whose check is called repeatedly during a wait. The check may raise Aborted.
            skipped: the counter of unreadable records of the topic of version changes, and of unreadable offset metadata.
        """
        self._settings = settings
        self._skipped = skipped or SkippedRecords(log)
        self._context = context
        self._cluster = Topics(settings.kafka, settings.owner, settings.kafka.bootstrap_servers, TOPIC_POLL_SECONDS)
        self._topic_poller = TopicPoller(self._cluster, settings.owner, settings.input.topics)
        self._compared: Mapping[str, Topic] = {}  # the last answer that `recreated` has compared
        self._first_ids: dict[str, str] = {}
        self._absent_since: dict[str, float] = {}
        self._long_absent: set[str] = set()

    def close(self) -> None:
        """Stop polling."""
        self._topic_poller.close()

    def recreated(self, marks: Mapping[Partition, OffsetMetadata]) -> set[Partition]:
        """Return the partitions whose topic was recreated: its id differs from the id in `marks` (offset metadata).

        The result is empty if the topics have not changed since the previous call.

        Raises:
            Fatal: Every input topic has been absent for GONE_SECONDS (exit code 3).
        """
        if self._topic_poller.failure is not None:
            raise self._topic_poller.failure
        topics = self._topic_poller.found
        self._check_absent(topics)
        if topics is self._compared:
            return set()
        self._compared = topics
        return {p for p, mark in marks.items() if p[0] in topics and topics[p[0]].id != mark.topic_id}

    def recreated_or_absent(self, marks: Mapping[Partition, OffsetMetadata]) -> set[Partition]:
        """Wait for a new poll of the topics, and return the partitions whose topic was recreated or is absent."""
        topics = self._poll({topic for topic, _ in marks}) if marks else {}
        return {p for p, mark in marks.items() if p[0] not in topics or topics[p[0]].id != mark.topic_id}

    def are_current(self, topic_ids: Iterable[tuple[str, str]]) -> bool:
        """Return whether each of these topics still has its id, according to the last poll.

        `topic_ids` are pairs of name and id.
        """
        # With exactly-once delivery, this waits for a new poll if the last one is older than SEEN_SECONDS.
        if self._settings.delivery == "exactly-once" and self._topic_poller.seen < time.monotonic() - SEEN_SECONDS:
            self._wait_for_poll(time.monotonic() - SEEN_SECONDS)
        topics = self._topic_poller.found
        return all(topic in topics and topics[topic].id == topic_id for topic, topic_id in topic_ids)

    def is_current(self, name: str, topic_id: str) -> bool:
        """Return whether the topic `name` has this id according to a poll of the last SEEN_SECONDS.

        Unlike `are_current`, the method does not wait for a new poll.
        """
        topic = self._topic_poller.found.get(name)
        return topic is not None and topic.id == topic_id and self._topic_poller.seen >= time.monotonic() - SEEN_SECONDS

    def determine(self, consumer: Consumer, committed: Sequence[TopicPartition]) -> list[StartPosition]:
        """Return the start position of each partition, given the group's committed offsets.

        A partition is omitted if it does not exist, or if it has neither a valid committed offset nor a leader.

        Raises:
            Fatal: The committed offset of a partition that was scored before has expired, so an operator must decide (exit
                code 3).
        """
        self._wait_for_poll(float("-inf"))
        ids = {name: topic.id for name, topic in self._topic_poller.found.items()}
        marks = {(p.topic, p.partition): self._mark(p) for p in committed}
        unclear = [p for p in committed if p.offset < 0 or marks[p.topic, p.partition].topic_id not in ("", ids.get(p.topic))]
        unclear += [p for p in committed if p.topic not in ids and p not in unclear]
        reasons: dict[Partition, StartReason] = {}
        if unclear:
            topics = {p.topic for p in unclear}
            ids |= {name: topic.id for name, topic in self._poll(topics).items()}
            unclear = [p for p in committed if p.topic in topics]  # this poll may have returned another id than the one before
            missing = {(p.topic, p.partition) for p in unclear} - self._existing(unclear)
            if missing:
                log.warning(
                    "partitions that no longer exist are not read: %s", ", ".join("{}[{}]".format(*p) for p in sorted(missing))
                )
            committed = [p for p in committed if (p.topic, p.partition) not in missing]
            reasons = self._reasons(consumer, [p for p in unclear if (p.topic, p.partition) not in missing], marks, ids)
        for topic, topic_id in ids.items():
            self._first_ids.setdefault(topic, topic_id)
        offsets = self._offsets(consumer, reasons, ids)
        marks = {
            p: mark if reasons.get(p, "position") == "position" else OffsetMetadata(is_recreated=reasons[p] == "recreated")
            for p, mark in marks.items()
        }
        answers = self._answers_from() if any(mark.is_recreated for mark in marks.values()) else None
        starts = []
        for p in committed:
            partition = p.topic, p.partition
            reason = reasons.get(partition, "position")
            if reason != "position" and partition not in offsets:
                continue
            mark = msgspec.structs.replace(marks[partition], topic_id=ids[p.topic])
            epoch = leader_epoch_field(p.leader_epoch if reason == "position" else None)
            position = TopicPartition(*partition, offsets.get(partition, p.offset), leader_epoch=epoch)
            starts.append(StartPosition(reason, position, mark, answers if mark.is_recreated else None))
        return starts

    def _mark(self, committed: TopicPartition) -> OffsetMetadata:
        """Return the metadata of a committed offset. Unreadable metadata is counted, logged and treated as empty."""
        try:
            return OffsetMetadata.read(committed.metadata)
        except UnreadableDocument as error:
            reason = f"the metadata of the offset that group {self._settings.name} has committed: {error}"
            self._skipped.skip(committed.topic, committed.partition, committed.offset, reason)
            return OffsetMetadata()

    def _reasons(
        self,
        consumer: Consumer,
        unclear: Sequence[TopicPartition],
        marks: Mapping[Partition, OffsetMetadata],
        ids: Mapping[str, str],
    ) -> dict[Partition, StartReason]:
        """Return how the start offset of each partition is determined. Raises Fatal with exit code 3 if offsets expired."""
        scored_ids = self._retry(self._read_swaps)
        visited = {topic for topic, _ in scored_ids} | self._with_positions(consumer, {p.topic for p in unclear})
        visited |= {topic for topic, first_id in self._first_ids.items() if ids.get(topic, first_id) != first_id}
        reasons: dict[Partition, StartReason] = {}
        for p in unclear:
            partition = p.topic, p.partition
            partition_ids = scored_ids.get(partition, set())
            reason = decide_start(p.offset, marks[partition].topic_id, ids[p.topic], partition_ids, p.topic in visited)
            reasons[partition] = reason
            if reason in ("recreated", "added"):
                log.warning("%s[%d] was %s (topic id %s); reading from the first record", *partition, reason, ids[p.topic])
        if expired := [partition for partition, reason in reasons.items() if reason == "expired"]:
            raise _expired(self._settings, expired)
        return reasons

    def _with_positions(self, consumer: Consumer, names: Iterable[str]) -> set[str]:
        """Return the topics among `names` for which the group has a committed offset in at least one partition."""
        topics = self._topic_poller.found
        every = [TopicPartition(topic, n) for topic in names if topic in topics for n in range(topics[topic].partitions)]
        return {p.topic for p in group_offsets.committed(consumer, every, self._context) if p.offset >= 0}

    def _read_swaps(self) -> dict[Partition, set[str]]:
        """Read the topic of version changes; return, for each partition, the topic ids under which the partition was scored."""
        reader = TopicReader(self._settings.kafka, self._settings.owner)
        partitions = reader.partitions([self._settings.swaps_topic])
        starts = reader.earliest(partitions)
        ends = reader.visible(partitions)
        topic_ids: dict[Partition, set[str]] = {}
        for batch in reader.read({p: (starts[p], ends[p]) for p in partitions}):
            self._context.check()
            for message in batch.messages:
                try:
                    swap = _scored.decode(message.value())
                except UnreadableDocument as error:
                    self._skipped.skip(*batch.partition, message.offset() or 0, error)
                    continue
                topic_ids.setdefault((swap.topic, swap.partition), set()).add(swap.topic_id)
        return topic_ids

    def _offsets(
        self, consumer: Consumer, reasons: Mapping[Partition, StartReason], ids: Mapping[str, str]
    ) -> dict[Partition, int]:
        """Return the start offsets of the partitions without a valid committed offset. Leaderless partitions are omitted."""
        from_beginning = [TopicPartition(*p) for p, reason in reasons.items() if reason in ("recreated", "added")]

        def bounds() -> dict[Partition, Bounds]:
            return self._cluster.bounds(group_offsets.with_leader(self._cluster.client, self._existing(from_beginning)))

        lows = {partition: at.low for partition, at in self._retry(bounds).items()}
        return lows | self._first_offsets(consumer, {topic for (topic, _), reason in reasons.items() if reason == "start"}, ids)

    def _existing(self, partitions: Iterable[TopicPartition]) -> set[Partition]:
        """Return the partitions that exist according to the last poll."""
        topics = self._topic_poller.found
        return {(p.topic, p.partition) for p in partitions if p.topic in topics and p.partition < topics[p.topic].partitions}

    def _first_offsets(self, consumer: Consumer, names: Collection[str], ids: Mapping[str, str]) -> dict[Partition, int]:
        """Determine and commit the start offsets of all partitions of topics that the group has never read."""
        # The offsets of all partitions of a topic are determined together, and committed immediately. Otherwise a later
        # assignment could determine different offsets, and another member would treat partitions without a committed offset as
        # newly added.
        edge = OFFSET_BEGINNING if self._settings.input.start == "earliest" else OFFSET_END
        topics = self._topic_poller.found
        every = [(topic, n) for topic in names if topic in topics for n in range(topics[topic].partitions)]
        offsets = group_offsets.edges(consumer, self._cluster.client, every, edge, self._context)
        positions = [
            TopicPartition(*partition, offset, OffsetMetadata(topic_id=ids[partition[0]]).encode())
            for partition, offset in offsets.items()
        ]
        try:
            if positions:
                consumer.commit(offsets=positions, asynchronous=False)
        except KafkaException as error:
            log.info("the start offsets of the group are not committed yet: %s", error.args[0])
        return offsets

    def _answers_from(self) -> AnswerStartOffsets:
        """Return the end offsets of the output and dead-letter topics."""
        # The call is made before any event of a recreated topic is answered, so answers to its events start at these offsets.
        names = self._settings.output.topic, self._settings.dead_letter.topic
        topics = self._retry(lambda: self._cluster.topics(names))
        counts = {name: topics[name].partitions if name in topics else 0 for name in names}
        ends = self._retry(lambda: self._cluster.bounds((n, p) for n in names for p in range(counts[n])))
        scores, letters = ([ends[n, p].high for p in range(counts[n])] for n in names)
        return AnswerStartOffsets(scores, letters)

    def _check_absent(self, topics: Mapping[str, Topic]) -> None:
        """Record when topics became absent. Raises Fatal (exit code 3) if all have been absent for GONE_SECONDS."""
        names = self._settings.input.topics
        if not self._topic_poller.seen > 0 or (len(topics) == len(names) and not self._absent_since):
            return
        now = time.monotonic()
        self._absent_since = {name: self._absent_since.get(name, now) for name in names if name not in topics}
        long_absent = {name for name, since in self._absent_since.items() if now > since + GONE_SECONDS}
        for name in sorted(long_absent - self._long_absent):
            log.error("%s; the other topics are still read", _absent(name))
        for name in sorted(self._long_absent - long_absent):
            log.info("topic %s exists again", name)
        self._long_absent = long_absent
        if len(long_absent) == len(names):
            raise _absent(names[0])

    def _poll(self, names: Collection[str]) -> Mapping[str, Topic]:
        """Poll the topics, and return them. If a topic in `names` is missing, poll again for up to ABSENT_SECONDS."""
        started = time.monotonic()
        while True:
            self._wait_for_poll(started)
            topics = self._topic_poller.found
            self._check_absent(topics)
            now = time.monotonic()
            if all(now > self._absent_since[name] + ABSENT_SECONDS for name in names if name not in topics):
                return topics
            self._wait(PAUSE_SECONDS)

    def _wait_for_poll(self, after: float) -> None:
        """Wait for the answer to a poll sent after this time (monotonic seconds). For -inf, an earlier answer is enough."""
        self._topic_poller.request_refresh()
        while self._topic_poller.seen <= after:
            if self._topic_poller.failure is not None:
                raise self._topic_poller.failure
            self._context.check()
            time.sleep(PAUSE_SECONDS)

    def _retry(self, request: Callable[[], Answer]) -> Answer:
        """Repeat a request while no broker is available; return its answer. Raises Fatal if a broker rejects the request."""
        logged = ""
        pause = PAUSE_SECONDS
        while True:
            try:
                return request()
            except (Fatal, Retriable) as error:
                if isinstance(error, Fatal) and error.exit_code != UNREACHABLE:
                    raise
                if str(error) != logged:
                    logged = str(error)
                    log.info("%s", logged)
            self._wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _wait(self, seconds: float) -> None:
        """Wait for `seconds`, and call `Context.check` repeatedly. Raises any error of `Context.check`."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._context.check()
            time.sleep(min(left, PAUSE_SECONDS * 10))


def _absent(topic: str) -> Fatal:
    hint = "create it (scorer check --create creates missing topics), or remove it from input.topics"
    return Fatal(f"topic {topic} has been missing for {GONE_SECONDS:g} s", hint, 3)


def _expired(settings: Settings, partitions: Sequence[Partition]) -> Fatal:
    topic, partition = partitions[0]
    others = f" and {len(partitions) - 1} more" if len(partitions) > 1 else ""
    option = f" --partition {partition}" if len(partitions) == 1 else ""
    return Fatal(
        f"{topic}[{partition}]{others} was scored according to {settings.swaps_topic}, but group {settings.name} has no "
        "committed offset for it: its offsets expired or were deleted, and a start from the beginning would score it again",
        f"to continue deliberately: {settings.offsets_command} --topic {topic}{option} --to earliest, latest or an offset",
        3,
    )
