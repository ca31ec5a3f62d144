"""Records that cannot be copied: the search for a rejected record, and the dead letters in the refusal topic. Pure.

A broker rejects a whole request because of one record, and hides the reason in its answers to the following requests. A
rejected transaction is therefore aborted and repeated with fewer records, until it contains only the rejected record.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from confluent_kafka import KafkaError, Message

from publisher.kafka.error_codes import UNFIT_RECORD
from publisher.kafka.headers import headers_of_one
from publisher.kafka.partitions import Partition
from publisher.kafka.sandboxed_reads import UnreadableBatch
from publisher.kafka.source_position import COPIED_TO, Position
from publisher.relay.transform import Headers, Route

UNREADABLE = "unreadable-headers"
UNREADABLE_BATCH = "unreadable-batch"
SOURCE = "refused.source"
LAST = "refused.last"
LARGEST_KEY = 1_024  # bytes; a bare dead letter omits a longer key


class TransactionRejected(Exception):
    """The destination rejects one of the `written` records of the open transaction, which must be aborted.

    Attributes:
        reason: the reason for the dead letter, such as "too-large"; None if it is unknown.
        written: the number of records in the transaction.
    """

    def __init__(self, code: int, written: int) -> None:
        super().__init__(KafkaError(code).str())
        self.reason = UNFIT_RECORD.get(code)
        self.written = written


class TransactionLimit:
    """Limits the number of records in the next transaction. The limit is reduced to find a rejected record.

    Attributes:
        current: the largest number of records in the next transaction.
    """

    # The candidates of a search are the partitions of the rejected transaction, each up to the offset that the transaction
    # reached. The search ends when all candidates are committed, or when a rejected transaction contains only one record. After
    # the search each commit doubles the limit. During the search no commit raises it, because a transaction may contain only
    # records of partitions that are not candidates.

    def __init__(self, most: int) -> None:
        self.current = self._most = most
        self._candidates: dict[Partition, int] = {}

    def record_rejection(self, count: int, candidates: Mapping[Partition, int]) -> None:
        """Halve the limit after the destination has rejected a transaction of `count` records.

        Args:
            count: the number of records in the transaction.
            candidates: the partitions with records in the transaction, each with the source offset after its last record.
        """
        self.current = max(1, min(self.current, count) // 2)
        self._candidates = dict(candidates)

    def record_isolation(self) -> None:
        """End the search, because the rejected transaction contained only one record."""
        self._candidates.clear()

    def record_commit(self, active: Mapping[Partition, Route]) -> None:
        """Record a commit. Double the limit, unless some records of the rejected transaction are not committed yet.

        Args:
            active: the partitions that are copied now. Other partitions are no longer searched.
        """
        if self.current < self._most:
            remaining = self._candidates.items()
            self._candidates = {p: end for p, end in remaining if p in active and active[p].committed < end}
            if not self._candidates:
                self.current = min(self._most, 2 * self.current)


class RejectedRecord(NamedTuple):
    """A record that cannot be copied, or a batch that cannot be read.

    Attributes:
        message: the record; for a batch, a message without content at the last offset.
        source: the position of the record at the source; for a batch, the position of its first record.
        reason: the reason for the dead letter, such as "too-large".
        error: the text of the error.
        headers: the headers of the record; None if they cannot be read.
        last: the last offset of a batch; None for a single record.
    """

    message: Message
    source: Position
    reason: str
    error: str
    headers: Headers | None
    last: int | None = None

    @property
    def partition(self) -> Partition:
        """Return the source partition."""
        return self.source.topic, self.source.partition

    def __str__(self) -> str:
        return f"{self.source}: {self.reason} ({self.error})"

    def dead_letter(self, *, bare: bool) -> dict[str, Any]:
        """Return the dead letter for the refusal topic, as arguments of `Producer.produce`.

        If `bare` is true, the dead letter has no value, none of the record's headers, no large key, and the current time. It is
        used if the refusal topic rejects the complete dead letter.
        """
        key = self.message.key()
        timestamp_ms = self.message.timestamp()[1]
        omitted = ["headers"] if self.headers is None or bare else []
        if bare:
            omitted.append("value")
            if key is not None and len(key) > LARGEST_KEY:
                omitted.append("key")
        added = {"refused.reason": self.reason, "refused.error": self.error, SOURCE: str(self.source)}
        if self.last is not None:
            added[LAST] = str(self.last)
        if omitted:
            added["refused.without"] = ",".join(omitted)
        return {
            "value": None if bare else self.message.value(),
            "key": None if "key" in omitted else key,
            "timestamp": 0 if bare else max(timestamp_ms, 0),
            "headers": [*(h for h in self.headers or () if not bare and h[0] != COPIED_TO), *added.items()],
        }


def rejected_record(region: str, message: Message, reason: str, error: str) -> RejectedRecord:
    """Return the RejectedRecord for a message of the source `region` that the destination rejects."""
    return RejectedRecord(message, _position(region, message), reason, error, headers_of_one(message) or [])


def unreadable_record(region: str, message: Message, error: Exception) -> RejectedRecord:
    """Return the RejectedRecord for a message of the source `region` whose headers cannot be read."""
    return RejectedRecord(message, _position(region, message), UNREADABLE, repr(error.__cause__ or error), None)


def unreadable_batch(region: str, batch: UnreadableBatch, now_ms: int) -> RejectedRecord:
    """Return the RejectedRecord, with the timestamp `now_ms`, for a batch of the source `region` that cannot be read."""
    topic, number = batch.partition
    last = Message(topic=topic, partition=number, offset=batch.last, timestamp=(1, now_ms))
    source = Position(region, topic, number, batch.first)
    return RejectedRecord(last, source, UNREADABLE_BATCH, str(batch), None, batch.last)


def _position(region: str, message: Message) -> Position:
    topic, number = cast("Partition", (message.topic(), message.partition()))
    return Position(region, topic, number, message.offset() or 0)
