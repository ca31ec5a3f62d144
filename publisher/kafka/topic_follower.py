"""Read topics to their end and follow them as they grow: committed records only, without a consumer group."""

import heapq
import math
import time
from collections.abc import Iterable, Iterator, Mapping

from confluent_kafka import KafkaError, Message, TopicPartition

from publisher.errors import REFUSED, Fatal
from publisher.kafka import acls, connection, error_codes, topics
from publisher.kafka import clients as kafka
from publisher.kafka.acls import READ, Operations, Right
from publisher.kafka.clients import ErrorWatch, KafkaSettings
from publisher.kafka.error_codes import END, PASSING, UNDECODABLE, UNDECODABLE_HINT, Codes
from publisher.kafka.partitions import Offsets, Partition
from publisher.kafka.reader import TopicReader

CALL_RECORDS = 1_000
POLL_SECONDS = 0.2
HELD_RECORDS = 100_000  # the most records that are buffered while slower partitions are read
SILENCE_SECONDS = 10.0  # without a record for this long before the end of a topic, reading fails
OPEN_HINT = "later records are visible after the transaction ends: try again, or see deploy/runbooks/ScorerOpenTransaction.md"


class TopicFollower:
    """Reads the records of topics in all their partitions, up to their ends or as they grow.

    The constructor and the methods raise Fatal: with exit code 2 if a required topic is missing, 3 if the broker rejects the
    request, 4 if it does not answer.

    Args:
        settings: the settings of the connection.
        client_id: the client id.
        needed: the topics, with the operations that the caller needs. Topics that do not exist are ignored.
        required: the topics that must exist.
        passing: the consumer errors that this class ignores.

    Attributes:
        topics: the existing topics.
        unread: the partitions that are not yet read up to the end offset that they had at the start.
        consumer: the consumer.
    """

    # The end at the start is the high watermark for `to_end` and `oldest_first`. For `poll` it is the first end that the
    # consumer reports.

    def __init__(
        self,
        settings: KafkaSettings,
        client_id: str,
        needed: Mapping[str, Operations],
        required: Iterable[str],
        passing: Codes = PASSING,
    ) -> None:
        self.topics = topics.existing(settings, client_id, needed, required)
        self.unread: set[Partition] = {(name, p) for name, topic in self.topics.items() for p in range(topic.partitions)}
        self._settings = settings
        self._client_id = client_id
        self._passing = passing
        self._ends: Offsets = {}
        self._open: Offsets = {}
        self._watch = ErrorWatch()
        self.consumer = kafka.reader(settings, client_id, **{"enable.partition.eof": True, "error_cb": self._watch})

    def begin(self, offset: int) -> None:
        """Start to read every partition at `offset`: a number, OFFSET_BEGINNING or OFFSET_END."""
        for name in list(self.topics)[:1]:
            kafka.warm_up(self.consumer, name)
        self.consumer.assign([TopicPartition(*partition, offset) for partition in self.unread])

    def poll(self, seconds: float = POLL_SECONDS) -> Iterator[Message]:
        """Wait up to `seconds` for a record, and yield the records that have arrived."""
        first = self.consumer.poll(seconds)
        messages = (
            [first, *self.consumer.consume(CALL_RECORDS, 0)] if first is not None else []
        )  # a message without a value is false
        if self._watch.fatal is not None:
            raise connection.refused(self._settings, self._watch.fatal)
        for message in messages:
            error = message.error()
            if error is None:
                yield message
            elif error in END:
                self._record_end((message.topic() or "", message.partition() or 0), message.offset() or 0)
            else:
                self._handle_error(message.topic() or "", error)

    def to_end(self) -> Iterator[Message]:
        """Yield every record up to the current ends. Waits for transactions that are open before these ends."""
        for messages in self._batches_to_end():
            yield from messages

    def oldest_first(self) -> Iterator[Message]:
        """Yield every record up to the current ends, merged by timestamp. The order within a partition is kept.

        If reading fails, all records that were read are yielded before Fatal is raised.
        """
        # At most HELD_RECORDS records are buffered. If one partition is read much more slowly than the others, its records may
        # be yielded after later records of the others.
        newest: dict[Partition, int] = {}
        pending: list[tuple[int, Partition, int, Message]] = []
        try:
            for messages in self._batches_to_end():
                for message in messages:
                    partition = (message.topic() or "", message.partition() or 0)
                    newest[partition] = max(message.timestamp()[1], newest.get(partition, 0))
                    heapq.heappush(pending, (newest[partition], partition, message.offset() or 0, message))
                complete = min((newest.get(partition, -1) for partition in self.unread), default=math.inf)
                while pending and (pending[0][0] <= complete or len(pending) > HELD_RECORDS):
                    yield heapq.heappop(pending)[-1]
        except Fatal:
            yield from (record for *_, record in sorted(pending))
            raise

    def _written(self) -> Offsets:
        """Return the high watermark of each unread partition."""
        # Unlike the last stable offset, it includes transactions whose commit is acknowledged but not yet visible.
        return TopicReader(self._settings, self._client_id).written(self.unread)

    def _record_end(self, partition: Partition, at: int) -> None:
        """Handle the consumer's report that it has read all committed records of a partition up to the offset `at`."""
        # Before the high watermark at the start of the read, this means that a transaction is open at `at`.
        if at >= self._ends.get(partition, 0):
            self.unread.discard(partition)
        else:
            self._open[partition] = at

    def _batches_to_end(self) -> Iterator[list[Message]]:
        self._ends = self._written()
        silent = 0.0
        while self.unread and silent < SILENCE_SECONDS:
            requested_at = time.monotonic()
            messages = list(self.poll())
            silent = 0.0 if messages else silent + time.monotonic() - requested_at
            yield messages
        for partition in sorted(self.unread & self._open.keys()):
            where = "{}[{}] from offset {} on".format(*partition, self._open[partition])
            raise Fatal(f"a transaction is open in {where}", OPEN_HINT)
        for topic, _ in sorted(self.unread):
            raise Fatal(
                f"topic {topic} cannot be read to its end", "check that the brokers run and that each partition has a leader"
            )

    def close(self) -> None:
        self.consumer.close()

    def _handle_error(self, topic: str, error: KafkaError) -> None:
        if kafka.is_group_auth_noise(error) or error.retriable() or error in self._passing:
            return
        if error in error_codes.REFUSED:
            raise acls.refused(self._settings, [Right(READ, acls.TOPIC, topic)])
        hint = UNDECODABLE_HINT if error in UNDECODABLE else "see the broker's log"
        raise Fatal(f"topic {topic} cannot be read: {error.str()}", hint, REFUSED)
