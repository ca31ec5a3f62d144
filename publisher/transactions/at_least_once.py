"""At-least-once delivery: records are sent at once, and every second a checkpoint commits the positions after them.

Records are visible as soon as the broker has them. After a crash, the events since the last checkpoint (about one second) are
scored again, and the repeated scores may follow the scores of later events. The pure part is `UncommittedPositions`.
"""

# An idempotent producer sends the records, and reports failed records only. A checkpoint flushes the producer until nothing is
# in flight (measured 0.3-8 ms). If no record has failed, it starts a commit of the positions, and does not wait for the answer.
# If a record fails, or is not confirmed in time, no position after the last checkpoint is committed. The producer is discarded
# with all records in its queue, so that no later record overtakes the failed record. The scorer continues from the committed
# offsets.

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from publisher.errors import Aborted, NotAllowed
from publisher.kafka import roles
from publisher.kafka.error_codes import REFUSED, UNFIT_RECORD
from publisher.kafka.partitions import Partition
from publisher.runtime.context import Context
from publisher.transactions.counters import Counters
from publisher.transactions.offset_commits import GroupCommits
from publisher.transactions.rejected_records import REPORTS_SECONDS, RejectedRecords
from publisher.transactions.session import Record

log = logging.getLogger(__name__)

CHECKPOINT_SECONDS = (
    1.0  # a crash repeats the events of this time; measured: 312-340k events/s, against 48-192k with a flush for each batch
)
RELEASE_SECONDS = 5.0  # how long a rebalance waits for records in flight
UNCOMMITTED_SECONDS = 30.0  # without a commit for this long, all events since the last commit are read again
FULL_SECONDS = 0.05  # one poll of the producer while its queue is full

OnDelivery = Callable[[KafkaError, Message], None]


@dataclass(slots=True)
class UncommittedPositions:
    """The positions that follow published batches and are not committed yet. Pure: `now` is in monotonic seconds.

    A position is the next offset to read in an input partition.

    Attributes:
        published: positions that were published after the last commit was started.
        committing: positions in the commit that has no answer yet; empty without a pending commit.
        oldest_published: when the oldest position in `published` was published.
        oldest_committing: when the oldest position in `committing` was published.
        commit_started: when the last commit was started.
    """

    published: dict[Partition, TopicPartition] = field(default_factory=dict)
    committing: dict[Partition, TopicPartition] = field(default_factory=dict)
    oldest_published: float = 0.0
    oldest_committing: float = 0.0
    commit_started: float = float("-inf")

    def publish(self, offsets: Iterable[TopicPartition], now: float) -> None:
        """Add the positions after a batch that was passed to the producer."""
        if not self.published:
            self.oldest_published = now
        self.published |= {(p.topic, p.partition): p for p in offsets}

    def due(self, now: float) -> bool:
        """Return whether a checkpoint (a commit of the published positions) is due."""
        # A checkpoint is due if no commit is pending, and CHECKPOINT_SECONDS have passed since the last commit was started and
        # since the oldest position in `published` was published.
        return (
            bool(self.published)
            and not self.committing
            and now - max(self.oldest_published, self.commit_started) >= CHECKPOINT_SECONDS
        )

    def begin(self, now: float) -> dict[Partition, TopicPartition]:
        """Record that a commit of all positions in `published` starts, and return these positions."""
        self.committing = self.published
        self.published = {}
        self.oldest_committing = self.oldest_published
        self.commit_started = now
        return self.committing

    def record_commit_outcome(self, *, committed: bool) -> None:
        """Record the outcome of the pending commit. The next checkpoint repeats the positions of a failed commit."""
        if not committed and self.committing:
            self.published = self.committing | self.published
            self.oldest_published = self.oldest_committing
        self.committing = {}

    def uncommitted_seconds(self, now: float) -> float:
        """Return the age of the oldest published position that is not committed (seconds); 0.0 if there is none."""
        if self.committing:
            return now - self.oldest_committing
        return now - self.oldest_published if self.published else 0.0

    def pending(self) -> dict[Partition, TopicPartition]:
        """Return every position that is not known to be committed."""
        return self.committing | self.published

    def drop(self, partitions: Iterable[Partition]) -> None:
        """Remove the positions of these partitions."""
        for partition in partitions:
            self.published.pop(partition, None)
            self.committing.pop(partition, None)


class CheckpointSession:
    """Implements `publisher.transactions.session.Session` with at-least-once delivery.

    Methods that raise Aborted for a failed record raise NotAllowed if the broker denies the right to write.

    Args:
        make_producer: returns an idempotent producer that reports failed records only. The function has two arguments: the
            callback for these reports, and whether the producer sends each record in a separate request.
        commits: commits the offsets of the consumer group.
        confirm_seconds: how long the broker may take to confirm records.
        context: the clock.
    """

    sends_group = False

    def __init__(
        self,
        make_producer: Callable[[OnDelivery, bool], Producer],
        commits: GroupCommits,
        *,
        confirm_seconds: float,
        context: Context | None = None,
    ) -> None:
        self.counters = Counters()
        self._make_producer = make_producer
        self._commits = commits
        self._confirm_seconds = confirm_seconds
        self._clock = (context or Context()).clock.monotonic
        self._positions = UncommittedPositions()
        self._failure: Aborted | None = None
        self._missing_right: str | None = None
        self._rejected = RejectedRecords()
        self._record_rejected = False
        self._singly_until = float("-inf")
        self._singly = False
        self._commit_failing = False
        self._producer = make_producer(self._on_failure, False)

    def open(self) -> None:
        """Do nothing: a producer requests its producer id itself, before it sends the first record."""

    def publish(
        self,
        records: Iterable[Record],
        offsets: Sequence[TopicPartition],
        group_metadata: Any,  # noqa: ARG002
        *,
        overlap: bool = False,  # noqa: ARG002
    ) -> None:
        """Pass the records to the producer. A later checkpoint commits the positions.

        `group_metadata` and `overlap` are not used.

        Raises:
            RecordRejected: if the broker rejects records that were sent in requests of their own.
            Aborted: if a record of this or an earlier call has failed.
        """
        # For REPORTS_SECONDS after a rejection, the producer sends each record in a request of its own, and the call waits
        # until all records are confirmed. A failure then does not affect earlier batches. The consumer itself commits the
        # positions later.
        self._poll()
        if self._singly and self._clock() > self._singly_until:
            self._renew()
        self._produce(records)
        if self._singly:
            self._flush(self._confirm_seconds)
        self._check()
        self._positions.publish(offsets, self._clock())

    def wait_for_publish(self) -> None:
        """Do nothing. The next `publish`, `tick` or `checkpoint` reports failed records."""

    def wait_for_commit(self) -> None:
        """Do nothing. A pending checkpoint may still move the committed offsets, but only past published events."""

    def tick(self) -> None:
        """Start a checkpoint if one is due. Raises Aborted if a record failed, or commits fail for too long."""
        self._poll()
        now = self._clock()
        if self._positions.uncommitted_seconds(now) > UNCOMMITTED_SECONDS:
            raise Aborted(f"the group's positions could not be committed for {UNCOMMITTED_SECONDS:.0f} s")
        if self._positions.due(now):
            self._flush(self._confirm_seconds)
            elapsed = self._clock() - now
            begun = self._positions.begin(now)
            self._commits.begin(list(begun.values()), lambda error: self._on_commit(begun, error, elapsed))

    def checkpoint(self) -> None:
        """Flush the producer, commit the pending positions, and wait for the answer.

        Raises:
            Aborted: if a record or the commit has failed.
        """
        self._check()
        offsets = list(self._positions.pending().values())
        if not offsets:
            return
        try:
            self._commit(offsets, self._confirm_seconds)
        except KafkaException as exception:
            self._failure = Aborted(f"the positions could not be committed: {exception.args[0]}")
            self._check()
        self._positions = UncommittedPositions()

    def release(self, partitions: Iterable[TopicPartition], *, lost: bool) -> None:
        """Commit the positions of these partitions, so that their next owner continues from them.

        If the partitions are already lost, no position is committed.
        """
        # The new owner may already have committed later positions.
        leaving = {(p.topic, p.partition) for p in partitions}
        released = [position for key, position in self._positions.pending().items() if key in leaving]
        if released and not lost and self._failure is None:
            try:
                self._commit(released, RELEASE_SECONDS)
            except (Aborted, NotAllowed, KafkaException) as error:
                log.warning(
                    "positions of released partitions were not committed; the next owner will score events again: %s",
                    error,
                )
        self._positions.drop(leaving)

    def recover(self) -> None:
        """Discard the producer with its unconfirmed records, and create another producer."""
        self.counters.aborts += 1
        if self._record_rejected:
            self._singly_until = self._clock() + REPORTS_SECONDS
        if not self._singly:
            self._positions = UncommittedPositions()
        self._renew()

    def _renew(self) -> None:
        self._producer.purge()
        self._singly = self._clock() < self._singly_until
        self._producer = self._make_producer(self._on_failure, self._singly)
        self._failure = None
        self._record_rejected = False
        self._rejected = RejectedRecords(singly=True)

    def close(self) -> None:
        """Discard unconfirmed records. Never raises."""
        self._producer.purge()
        self._positions = UncommittedPositions()

    def _produce(self, records: Iterable[Record]) -> None:
        try:
            self._rejected.produce(self._producer, records, self._on_report if self._singly else None, self._make_room)
        except (BufferError, KafkaException) as error:
            self._record_rejected |= bool(self._rejected)
            self._failure = self._failure or Aborted(f"could not produce a record: {error}")

    def _make_room(self) -> None:
        """Wait until the broker has confirmed half of the records in the producer's full queue. Raises Aborted."""
        deadline = self._clock() + self._confirm_seconds
        full = len(self._producer)
        while len(self._producer) > full // 2:
            self._producer.poll(FULL_SECONDS)
            if self._clock() > deadline:
                self._failure = Aborted(f"the broker has not confirmed {full // 2} records in {self._confirm_seconds:g} s")
            self._check()

    def _commit(self, offsets: Sequence[TopicPartition], seconds: float) -> None:
        """Flush the producer, commit the offsets, and wait for the answer. Raises Aborted or KafkaException.

        `seconds` limits the flush.
        """
        began = self._clock()
        self._flush(seconds)
        self._commits.commit(offsets)
        self._committed(self._clock() - began)

    def _flush(self, seconds: float) -> None:
        """Wait until every record is confirmed. Raises Aborted if a record has failed or is not confirmed in time."""
        unsent = self._producer.flush(seconds)
        if unsent and self._failure is None:
            self._failure = Aborted(f"the broker did not confirm {unsent} records within {seconds:g} s")
        self._check()

    def _on_commit(self, begun: dict[Partition, TopicPartition], error: KafkaError | None, seconds: float) -> None:
        if begun is not self._positions.committing:  # a recovery or a checkpoint has replaced this commit
            return
        self._positions.record_commit_outcome(committed=error is None)
        if error is None:
            self._committed(seconds)
        elif not self._commit_failing:
            self._commit_failing = True
            log.warning("a checkpoint was not committed; the next one includes its positions: %s", error)

    def _committed(self, seconds: float) -> None:
        self.counters.committed(seconds)
        if self._commit_failing:
            self._commit_failing = False
            log.info("commits of checkpoints succeed again")

    def _on_report(self, record: Record, error: KafkaError, message: Message) -> None:
        self._rejected.note(record, error)
        self._on_failure(error, message)

    def _on_failure(self, error: KafkaError, message: Message) -> None:
        """Store the delivery failure of a record; `_check` raises it later."""
        if error in REFUSED:
            self._missing_right = f"no right to Write on topic {message.topic()!r}: {error}"
        self._record_rejected |= error in UNFIT_RECORD
        self._failure = self._failure or Aborted(f"a record for {message.topic()}[{message.partition()}] failed: {error}")

    def _poll(self) -> None:
        """Receive delivery reports. Raises Aborted."""
        self._producer.poll(0)
        self._check()

    def _check(self) -> None:
        if self._missing_right is not None:
            role = roles.running_role()
            user = roles.principal("", role)
            grant = f"grant it: kafka-acls.sh --add --allow-principal User:{user} --operation Write --topic TOPIC"
            raise NotAllowed(self._missing_right, roles.hint(grant, role))
        if self._failure is not None:
            raise self._rejected.error() if self._singly and self._rejected else self._failure
