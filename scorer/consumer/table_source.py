"""The source of the records of tables on Kafka: a consumer without a group, and requests for ends and topics.

It implements `scorer.tables.source.TableSource`. Requests are asynchronous, so that a broker that does not answer never delays
the reading of the other partitions. This module makes no decisions about rows.
"""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
from confluent_kafka import OFFSET_BEGINNING, IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition

from publisher.errors import MemberLost
from publisher.kafka import acls, connection, error_codes
from publisher.kafka import clients as kafka
from publisher.kafka.acls import READ, Right
from publisher.kafka.clients import ErrorWatch, KafkaSettings
from publisher.kafka.error_codes import ABSENT, PASSING
from publisher.kafka.partitions import LATEST, Partition
from publisher.kafka.topic_ids import topic_id
from publisher.kafka.topics import Topic
from scorer.fetch.native_source import open_fetch_source
from scorer.fetch.source import FetchedRecords, FetchFailure, PartitionRecords
from scorer.native import byte_columns
from scorer.native.librdkafka import librdkafka_plugin
from scorer.tables.row_store import TableRecords
from scorer.tables.source import FetchedTableRecords, PartitionEnds

log = logging.getLogger(__name__)

CALL_RECORDS = 4_000
CALL_BYTES = 8 << 20  # target size of the records of one call, estimated from the record size in the previous call
QUEUE_KIBIBYTES = 16_384  # of prefetched records
ANSWER_SECONDS = 2.0  # the time limit of a request
LONGEST_RENEWAL_SECONDS = 30.0  # between two replacements of the client for requests during an outage
NOTHING = FetchedTableRecords((), {}, frozenset())


class KafkaTableSource:
    """The `TableSource` on Kafka: reads the records of table topics.

    Args:
        settings: the settings of the Kafka connection.
        client_id: the client id.
    """

    def __init__(self, settings: KafkaSettings, client_id: str) -> None:
        self._settings = settings
        self._client_id = client_id
        self._watch = ErrorWatch()
        self._positions: dict[Partition, int] = {}  # the next offset of each partition that is read
        self._max_records = CALL_RECORDS
        self._logged: set[tuple[Partition, int]] = set()
        self._ends: tuple[float, Mapping[TopicPartition, Future[Any]]] | None = None
        self._topics: Mapping[str, Future[Any]] | None = None
        self._admin = kafka.admin(settings, client_id, self._watch)
        self._renewal = ClientRenewal(time.monotonic())
        self._open()

    def start(self, partitions: Iterable[Partition]) -> None:
        """Read these partitions from their beginning on; see `TableSource`."""
        self._assign(dict.fromkeys(partitions, OFFSET_BEGINNING))

    def stop(self, partitions: Iterable[Partition]) -> None:
        """Stop reading these partitions; see `TableSource`."""
        stopped = [partition for partition in partitions if self._positions.pop(partition, None) is not None]
        if stopped:
            self._consumer.incremental_unassign([TopicPartition(*partition) for partition in stopped])

    def renew(self) -> None:
        """Replace the consumer; see `TableSource`.

        This is needed if a topic is recreated some seconds after its deletion. The old consumer (librdkafka 2.16) fetches no
        record of the recreated topic, even after a new assignment.
        """
        self._reopen()

    def read(self, seconds: float) -> FetchedTableRecords:
        """Return the records that arrive within `seconds`; see `TableSource`."""
        try:
            if self._source.first(seconds) is not None:
                self._source.more(self._max_records - 1, 0.0)
        except MemberLost:  # a record left the queue of its partition: read it again
            self._reopen()
            return NOTHING
        fetched = self._source.finish()
        if self._watch.fatal is not None:
            raise connection.refused(self._settings, self._watch.fatal)
        lost = [failure[0] for failure in fetched.failures if self._is_lost(failure)]
        columns = fetched.columns()
        reached = {partition: int(offsets[-1]) + 1 for partition, _, offsets in columns.partitions}
        for partition, end in fetched.ends.items():
            reached[partition] = max(end, reached.get(partition, 0))
        reached = {partition: offset for partition, offset in reached.items() if partition in self._positions}
        self._positions |= reached
        if columns.size:
            self._max_records = max(1, min(CALL_RECORDS, CALL_BYTES * len(columns.values) // columns.size))
        return FetchedTableRecords(self._by_topic(columns), reached, frozenset(lost))

    def ask_ends(self, partitions: Iterable[Partition], now: float) -> None:
        """Ask for the last stable offsets of partitions; see `TableSource`."""
        specs = {TopicPartition(*partition): LATEST for partition in partitions}
        committed = IsolationLevel.READ_COMMITTED
        self._ends = now, self._admin.list_offsets(specs, isolation_level=committed, request_timeout=ANSWER_SECONDS)

    def answered_ends(self) -> PartitionEnds | None:
        """Return the answer to the last request for ends; see `TableSource`."""
        if self._ends is None:
            return PartitionEnds(float("-inf"), {})
        asked_at, answers = self._ends
        if not all(answer.done() for answer in answers.values()):
            return None
        self._ends = None
        ends = {}
        errors = [self._failure(answer) for answer in answers.values()]
        for (partition, answer), error in zip(answers.items(), errors, strict=True):
            if error is None and (end := answer.result().offset) >= 0:
                ends[partition.topic, partition.partition] = end
        if self._topics is None and self._renewal.is_due(errors, time.monotonic()):
            self._admin = kafka.admin(self._settings, self._client_id, self._watch)
        return PartitionEnds(asked_at, ends)

    def ask_topics(self, names: Iterable[str]) -> None:
        """Ask for the descriptions of topics; see `TableSource`."""
        self._topics = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=ANSWER_SECONDS)

    def answered_topics(self) -> Mapping[str, Topic | None] | None:
        """Return the answer to the last request for topics; see `TableSource`."""
        if self._topics is None:
            return {}
        if not all(answer.done() for answer in self._topics.values()):
            return None
        answers = self._topics
        self._topics = None
        topics: dict[str, Topic | None] = {}
        for name, answer in answers.items():
            error = self._failure(answer)
            if error is None:
                described = answer.result()
                topics[name] = Topic(topic_id(described), len(described.partitions))
            elif error in ABSENT:
                topics[name] = None
            elif error in error_codes.REFUSED:
                raise acls.refused(self._settings, [Right(READ, acls.TOPIC, name)])
        return topics

    def close(self) -> None:
        """Close the consumer."""
        self._source.close()
        self._consumer.close()

    def _by_topic(self, columns: FetchedRecords) -> list[tuple[str, TableRecords]]:
        """Return the records of each topic, without the records of partitions that are no longer read."""
        count = len(columns.values)
        parts: dict[str, list[PartitionRecords]] = {}
        for part in columns.partitions:
            if part.partition in self._positions:
                parts.setdefault(part.partition[0], []).append(part)
        records = []
        for topic, topic_parts in parts.items():
            rows = np.sort(np.concatenate([part.rows for part in topic_parts]))
            numbers = np.empty(count, np.int32)
            offsets = np.empty(count, np.int64)
            for part in topic_parts:
                numbers[part.rows] = part.partition[1]
                offsets[part.rows] = part.offsets
            values: byte_columns.Column = columns.values
            keys: byte_columns.Column = columns.keys
            if len(rows) < count:
                values = byte_columns.part(values, rows)
                keys = byte_columns.part(keys, rows)
            removed = byte_columns.is_null(values)
            records.append((topic, TableRecords(numbers[rows], offsets[rows], keys, values, removed)))
        return records

    def _is_lost(self, failure: FetchFailure) -> bool:
        """Return whether a failure reports that the position of a partition is not in its log. Log other failures.

        Raises NotAllowed if a right is missing.
        """
        partition, _, error = failure
        if error in error_codes.OUT_OF_RANGE:
            return partition in self._positions
        if error in error_codes.REFUSED and not kafka.is_group_auth_noise(error):
            raise acls.refused(self._settings, [Right(READ, acls.TOPIC, partition[0])])
        passes = kafka.is_group_auth_noise(error) or error.retriable() or error in PASSING or error in ABSENT
        if not passes and (partition, error.code()) not in self._logged:
            self._logged.add((partition, error.code()))
            log.error("table topic %s[%d] cannot be read: %s", *partition, error.str())
        return False

    def _assign(self, starts: Mapping[Partition, int]) -> None:
        """Read partitions from these offsets on."""
        positions = [TopicPartition(*partition, offset) for partition, offset in starts.items()]
        self._positions |= {partition: max(0, offset) for partition, offset in starts.items()}
        if positions:
            self._source.forward(positions)
            self._consumer.incremental_assign(positions)

    def _open(self) -> None:
        """Create the consumer, without partitions."""
        fetching = {
            "enable.partition.eof": True,
            "error_cb": self._watch,
            "queued.max.messages.kbytes": QUEUE_KIBIBYTES,
            "topic.metadata.refresh.interval.ms": 10_000,  # the delay until an added partition is read
        }
        self._consumer = kafka.plugged_reader(self._settings, self._client_id, librdkafka_plugin(), **fetching)
        self._source = open_fetch_source(self._consumer)

    def _reopen(self) -> None:
        """Replace the consumer by another one, which reads all partitions again from their positions."""
        self.close()
        self._open()
        self._assign(self._positions.copy())

    @staticmethod
    def _failure(answer: "Future[Any]") -> KafkaError | None:
        """Return the error of an answer; None if the request succeeded."""
        exception = answer.exception()
        if exception is None:
            return None
        return exception.args[0] if isinstance(exception, KafkaException) else KafkaError(KafkaError._FAIL, str(exception))


class ClientRenewal:
    """Decides when the client that requests end offsets and topics must be replaced. Pure.

    While requests fail, the time between two replacements is doubled, up to LONGEST_RENEWAL_SECONDS. Otherwise a client that
    needs more than ANSWER_SECONDS to connect to an overloaded cluster would never get an answer.
    """

    def __init__(self, now: float) -> None:
        """Begin with a client that is created at `now`, in monotonic seconds."""
        self._opened_at = now
        self._seconds = ANSWER_SECONDS

    def is_due(self, errors: Sequence[KafkaError | None], now: float) -> bool:
        """Return whether the client must be replaced now. The caller then replaces it.

        Args:
            errors: the result of a request for end offsets: the error of each partition, or None if its end was returned.
            now: the time in monotonic seconds.
        """
        if not needs_new_client(errors):
            self._seconds = ANSWER_SECONDS
            return False
        if now - self._opened_at <= self._seconds:
            return False
        self._opened_at = now
        self._seconds = min(2 * self._seconds, LONGEST_RENEWAL_SECONDS)
        return True


def needs_new_client(errors: Sequence[KafkaError | None]) -> bool:
    """Return whether the client must be replaced after a request for ends.

    Args:
        errors: the error of each partition, or None if its end was returned.
    """
    # A client that gets no answer may wait for the cluster's controller for ever, although the cluster is healthy. A client
    # (librdkafka 2.16) that has cached the metadata of a topic sends no request for a partition that was added to the topic
    # later: it reports the partition as unknown until it refreshes the metadata, by default after 5 minutes.
    present = [error for error in errors if error is not None]
    is_unknown = any(error in ABSENT or error.code() == KafkaError._UNKNOWN_PARTITION for error in present)
    return is_unknown or 0 < len(present) == len(errors)
