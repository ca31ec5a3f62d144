"""Read ranges of partitions once, from a start offset to an end offset, in bounded memory and without a consumer group.

Only committed records are read by default. Each request for offsets names its isolation level, because a partition has two
ends: the last stable offset, and the high watermark, which includes records of open transactions.
"""

import contextlib
import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple, TypeVar, cast

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from model_registry import suggestions
from publisher.errors import Fatal
from publisher.kafka import acls, roles, topic_names
from publisher.kafka import clients as kafka
from publisher.kafka.acls import DESCRIBE, READ, Right
from publisher.kafka.connection import connect
from publisher.kafka.error_codes import ANSWERED_LATER, END, OUT_OF_RANGE, REFUSED, UNDECODABLE, UNDECODABLE_HINT
from publisher.kafka.groups import GroupReader
from publisher.kafka.partitions import EARLIEST, LATEST, Offsets, Partition, Spans, offsets
from publisher.kafka.sandboxed_reads import messages_of, sandboxed
from publisher.kafka.topic_ids import topic_id
from publisher.kafka.topics import Bounds

STALL_SECONDS = 30.0  # without a record for this long a read fails; longer than a transaction stays open
HINT_SECONDS = 2.0  # for requests that only improve an error message
RETRY_SECONDS = 0.1  # before a request is repeated, for example for a topic that was just created
CALL_RECORDS = 10_000  # the most that one call of librdkafka returns
CALL_SECONDS = 0.1
CALL_BYTES = 32 << 20  # of records per call, estimated from the previous call
FEW = 1_000  # a span of at most this many offsets is read one record per call; a longer span begins with this many per call
QUEUE_KIBIBYTES = 131_072  # of prefetched records in all partitions
EXPANDED_BYTES = 256 << 20  # the memory for one batch in the sandbox: the default of the scorer and the relay
POLL_SECONDS = 1.0  # one wait for an answer of the sandbox

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")
Range = tuple[int, int]
"""A range of offsets: the first offset, and the offset after the last one."""
Unread = Callable[[Partition, Range], None]
"""Called with the partition and the offsets of a batch that cannot be read and is skipped."""


class PartitionBatch(NamedTuple):
    """Records of one partition in ascending order, with their offsets, which may have gaps."""

    partition: Partition
    offsets: list[int]
    messages: list[Message]


class UnreadablePartition(Fatal):
    """The client cannot decompress the next batch of a partition."""

    def __init__(self, partition: Partition, reason: str) -> None:
        super().__init__(f"{partition[0]}[{partition[1]}] cannot be read: {reason}", UNDECODABLE_HINT, exit_code=3)
        self.partition = partition


class TopicReader:
    """Queries the offsets of topics, and reads their records, without a consumer group.

    Every method raises Fatal: with exit code 4 if the broker does not answer, 3 if it rejects the request, 2 if a topic does
    not exist.
    """

    def __init__(self, settings: kafka.KafkaSettings, client_id: str, answer_seconds: float = 10.0) -> None:
        """Connect to the cluster. Raises Fatal in the same cases as `connect`.

        `answer_seconds` limits the wait for each answer.
        """
        self._answer_seconds = answer_seconds
        self._settings = settings
        self._client_id = client_id
        self._admin: AdminClient = connect(settings, client_id, answer_seconds)

    def partitions(self, topics: Iterable[str]) -> list[Partition]:
        names = list(topics)
        topic_names.check(names)
        existing = self._ask(lambda: self._admin.list_topics(timeout=self._answer_seconds)).topics
        unlisted = [topic for topic in names if topic not in existing or existing[topic].error is not None]
        if hidden := self._hidden(unlisted):
            raise acls.refused(self._settings, [Right(READ, acls.TOPIC, topic) for topic in hidden])
        for topic in unlisted:
            hint = suggestions.question(topic, existing) or f"existing topics: {', '.join(sorted(existing)) or 'none'}"
            raise Fatal(f"no topic {topic!r} on {self._settings.bootstrap_servers}", hint, exit_code=2)
        return [(topic, number) for topic in names for number in sorted(existing[topic].partitions)]

    def _hidden(self, topics: list[str]) -> list[str]:
        """Return the topics that this client has no right to describe, whether or not they exist."""
        descriptions = self._admin.describe_topics(TopicCollection(topics), request_timeout=HINT_SECONDS) if topics else {}
        return [name for name, answer in descriptions.items() if _refused(answer.exception())]

    def ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Return the ids of the topics, by name. A topic that the broker does not describe is omitted."""
        descriptions = self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=self._answer_seconds)
        return {name: topic_id(answer.result()) for name, answer in descriptions.items() if answer.exception() is None}

    def earliest(self, partitions: Iterable[Partition]) -> Offsets:
        """Return the first retained offset of each partition."""
        return self._offsets(partitions, EARLIEST, IsolationLevel.READ_UNCOMMITTED)

    def visible(self, partitions: Iterable[Partition]) -> Offsets:
        """Return the last stable offset of each partition: the end for readers of committed records."""
        return self._offsets(partitions, LATEST, IsolationLevel.READ_COMMITTED)

    def written(self, partitions: Iterable[Partition]) -> Offsets:
        """Return the high watermark of each partition: the end that includes records of open transactions."""
        return self._offsets(partitions, LATEST, IsolationLevel.READ_UNCOMMITTED)

    def spans(self, partitions: Collection[Partition], *, undecided: bool = False) -> dict[Partition, Bounds]:
        """Return the range of retained offsets of each partition.

        The range ends at the last stable offset. If `undecided` is true, it ends at the high watermark.
        """
        ends = (self.written if undecided else self.visible)(partitions)
        return {partition: Bounds(low, ends[partition]) for partition, low in self.earliest(ends).items()}

    def since(self, unix_ms: int, ends: Offsets) -> Offsets:
        """Return the first offset with a timestamp >= `unix_ms` in each partition of `ends`.

        If there is none before the offset in `ends`, the result is the offset in `ends`.
        """
        offsets = self._offsets(ends, OffsetSpec.for_timestamp(unix_ms), IsolationLevel.READ_UNCOMMITTED)
        return {partition: min(at, ends[partition]) if at >= 0 else ends[partition] for partition, at in offsets.items()}

    def committed(self, group: str, partitions: Iterable[Partition]) -> Offsets:
        """Return the group's committed offset in each partition; 0 for a partition without one.

        Waits until no open transaction can change these offsets.

        Raises Fatal with exit code 2 if the group has no committed offset in any of the partitions.
        """
        requested = list(partitions)
        with contextlib.closing(GroupReader(self._settings, self._client_id, group, decided=True)) as reader:
            self._check_right_to_see(group)
            committed = self._ask(lambda: reader.committed(requested, self._answer_seconds))
        if requested and all(place.offset < 0 for place in committed):
            topics = ", ".join(sorted({topic for topic, _ in requested}))
            hint = "name the consumer group of the scorers"
            raise Fatal(f"group {group!r} has no committed offsets for {topics}", hint, exit_code=2)
        return {(place.topic, place.partition): max(0, place.offset) for place in committed}

    def read(self, spans: Spans, *, undecided: bool = False, unread: Unread | None = None) -> Iterator[PartitionBatch]:
        """Yield the committed records of these offset ranges in batches. Waits for transactions that are open in the ranges.

        Batches that cannot be decompressed are skipped.

        Args:
            spans: for each partition, the first offset to read and the offset after the last one.
            undecided: whether to yield the records of open and aborted transactions too. If true, the method waits for no
                transaction and skips no batch.
            unread: called with the partition and the offsets of a skipped batch; by default they are logged.

        Raises:
            UnreadablePartition: if `undecided` is true and the client cannot decompress a batch.
        """
        # A batch is skipped only if a child process, the sandbox, cannot decompress it either.
        if undecided:
            yield from self._read(spans, undecided=True)
            return
        remaining = dict(spans)
        while True:
            try:
                for batch in self._read(remaining):
                    remaining[batch.partition] = batch.offsets[-1] + 1, remaining[batch.partition][1]
                    yield batch
            except UnreadablePartition as error:
                partition = error.partition
                (start, stop) = remaining[error.partition]
                for batches, following in self._read_sandboxed(partition, start, stop, unread or _log_unread):
                    remaining[partition] = following, stop
                    yield from batches
                if remaining[partition][0] == start:
                    raise
            else:
                return

    def _read_sandboxed(
        self, partition: Partition, at: int, stop: int, unread: Unread
    ) -> Iterator[tuple[list[PartitionBatch], int]]:
        """Read a partition in the sandbox (a child process), from the offset `at` up to the offset `stop`.

        Ends before `stop` if the client itself can read the partition again.

        Yields:
            A list of batches, empty if a batch was skipped, and the next offset to read.
        """
        # The iteration ends early if the sandbox reports that the client itself can read the partition again.
        sandbox = sandboxed(self._settings, self._client_id, EXPANDED_BYTES)
        sandbox.add(partition, at)
        deadline = time.monotonic() + STALL_SECONDS
        try:
            while at < stop and partition in sandbox:
                result = sandbox.take(POLL_SECONDS)
                if result is None:
                    if time.monotonic() > deadline:
                        raise Fatal(
                            f"no record of {partition[0]}[{partition[1]}] arrived from the sandbox process "
                            f"for {STALL_SECONDS:.0f} s"
                        )
                    continue
                deadline = time.monotonic() + STALL_SECONDS
                if result.unreadable is not None:
                    at = result.unreadable.last + 1
                    unread(partition, (result.unreadable.first, min(at, stop)))
                    yield [], at
                elif rows := [row for row in result.rows if row.offset < stop]:
                    at = result.rows[-1].offset + 1
                    yield [PartitionBatch(partition, [row.offset for row in rows], messages_of(partition, rows))], at
                elif result.rows:
                    at = stop
                    yield [], at
        finally:
            sandbox.close()

    def _read(self, spans: Spans, *, undecided: bool = False) -> Iterator[PartitionBatch]:
        remaining = {partition: stop for partition, (start, stop) in spans.items() if start < stop}
        if not remaining:
            return
        fetching: dict[str, object] = {
            "isolation.level": "read_uncommitted" if undecided else "read_committed",
            "enable.partition.eof": True,  # the log may end with transaction markers, which are not records
            "queued.max.messages.kbytes": max(1_024, QUEUE_KIBIBYTES // len(remaining)),
            "queued.min.messages": 2 * CALL_RECORDS,
        }
        consumer = kafka.reader(self._settings, self._client_id, **fetching)
        try:
            consumer.assign([TopicPartition(*partition, spans[partition][0]) for partition in remaining])
            count = sum(stop - spans[partition][0] for partition, stop in remaining.items())
            yield from self._until_done(consumer, remaining, FEW if count > FEW else 1)
        finally:
            consumer.close()

    def _until_done(self, consumer: Consumer, remaining: Offsets, most: int) -> Iterator[PartitionBatch]:
        """Yield batches until every partition has reached its stop offset in `remaining`.

        Args:
            consumer: the consumer, with the partitions assigned.
            remaining: the stop offset of each partition. Completed partitions are removed.
            most: the limit of records for the first call of `consume`. Later calls have other limits, unless `most` is 1.
        """
        # Unless `most` is 1, each later call gets a limit at which it returns about CALL_BYTES.
        deadline = time.monotonic() + STALL_SECONDS
        while remaining:
            messages = consumer.consume(most, CALL_SECONDS)
            if messages and most > 1:
                most = max(2, min(CALL_RECORDS, CALL_BYTES * len(messages) // (1 + sum(map(len, messages)))))
            batches, reached = _group_records(self._settings, messages, remaining)
            del messages
            yield from batches
            if reached:
                consumer.pause([TopicPartition(*partition) for partition in reached])
            for partition in reached:
                del remaining[partition]
            if batches or reached:
                deadline = time.monotonic() + STALL_SECONDS
            elif time.monotonic() > deadline:
                (topic, number), stop = next(iter(remaining.items()))
                raise Fatal(
                    f"no record of {topic}[{number}] before offset {stop} arrived for {STALL_SECONDS:.0f} s",
                    "check that the broker is available and that no transaction stays open",
                )

    def _offsets(self, partitions: Iterable[Partition], spec: OffsetSpec, isolation: IsolationLevel) -> Offsets:
        return self._ask(lambda: offsets(self._admin, partitions, spec, self._answer_seconds, isolation))

    def _check_right_to_see(self, group: str) -> None:
        """Raise NotAllowed if this client has no right to describe the group.

        Without this check, a client without the right would wait for the committed offsets for ever.
        """
        descriptions = self._admin.describe_consumer_groups([group], request_timeout=self._answer_seconds)
        if _refused(descriptions[group].exception()):
            raise acls.refused(self._settings, [Right(DESCRIBE, acls.GROUP, group)])

    def _ask(self, question: Callable[[], Answer]) -> Answer:
        deadline = time.monotonic() + self._answer_seconds
        while True:
            try:
                return question()
            except KafkaException as exception:
                error = exception.args[0]
                servers = self._settings.bootstrap_servers
                if error in REFUSED:
                    kind = REFUSED.reason(error)
                    hint = roles.hint(f"grant Read and Describe on the {kind}", roles.running_role())
                    raise Fatal(f"{servers} denies access to a {kind}: {error.str()}", hint, 3) from exception
                if error not in ANSWERED_LATER or time.monotonic() > deadline:
                    hint = "check the address, and the security settings of the client"
                    raise Fatal(f"{servers} does not answer: {error.str()}", hint) from exception
            time.sleep(RETRY_SECONDS)


def _refused(answer: BaseException | None) -> bool:
    return isinstance(answer, KafkaException) and answer.args[0] in REFUSED


def _group_records(
    settings: kafka.KafkaSettings, messages: list[Message], remaining: Offsets
) -> tuple[list[PartitionBatch], list[Partition]]:
    """Group messages by partition, without records at or after the stop offset of their partition.

    Returns:
        The batches, and the partitions that have reached their stop offset.
    """
    by_partition: dict[tuple[str | None, int | None], list[Message]] = {}
    ends: dict[Partition, int] = {}
    for message in messages:
        partition = (message.topic(), message.partition())
        error = message.error()
        if error is None:
            by_partition.setdefault(partition, []).append(message)
        elif error in END:
            ends[cast("Partition", partition)] = cast("int", message.offset())
        elif not kafka.is_group_auth_noise(error):
            raise _broken(settings, *partition, error)
    batches = []
    for partition, records in cast("dict[Partition, list[Message]]", by_partition).items():
        offsets = cast("list[int]", [message.offset() for message in records])
        ends[partition] = max(offsets[-1] + 1, ends.get(partition, 0))
        count = bisect_left(offsets, remaining.get(partition, 0))  # later records were fetched before the pause
        if count:
            batches.append(PartitionBatch(partition, offsets[:count], records[:count]))
    return batches, [partition for partition, end in ends.items() if partition in remaining and end >= remaining[partition]]


def _log_unread(partition: Partition, offsets: Range) -> None:
    log.warning("%s[%d]: the batch at offsets %d to %d cannot be read and is skipped", *partition, offsets[0], offsets[1] - 1)


def _broken(settings: kafka.KafkaSettings, topic: str | None, number: int | None, error: KafkaError) -> Fatal:
    name = "the consumer" if topic is None else f"{topic}[{number}]"
    if error in OUT_OF_RANGE:
        return Fatal(
            f"{name} was truncated while it was read: {error.str()}",
            "retention has deleted the next records: start at a later offset",
            exit_code=3,
        )
    if error in UNDECODABLE and topic is not None and number is not None:
        return UnreadablePartition((topic, number), error.str())
    if topic is not None and REFUSED.reason(error) == acls.TOPIC:
        return acls.refused(settings, [Right(READ, acls.TOPIC, topic)])
    return Fatal(f"{name} cannot be read: {error.str()}", exit_code=3 if error in REFUSED else 4)
