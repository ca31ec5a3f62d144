"""At-least-once delivery: records go out at once, and every second a checkpoint commits the positions behind them.

An idempotent producer writes; nothing is called back for a record that arrived. A checkpoint waits until the producer has
nothing under way (`flush`); if no record failed, the positions reached are true and are committed without waiting for the
answer. After a crash at most what followed the last checkpoint is scored again. The pure part is `Positions`.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from publisher.errors import Aborted, NotAllowed
from publisher.kafka.error_codes import REFUSED, UNFIT_RECORD
from publisher.kafka.partitions import Partition
from publisher.transactions.offset_commits import GroupCommits
from publisher.transactions.protocol import Counters, Record
from publisher.transactions.rejected_records import CAREFUL_SECONDS, RejectedRecords

log = logging.getLogger(__name__)

CHECKPOINT_SECONDS = 1.0  # what a crash repeats; measured: 312-340k events/s, against 48-192k with a flush a batch
RELEASE_SECONDS = 5.0  # a rebalance waits so long for records that are under way
UNCOMMITTED_SECONDS = 30.0  # positions that cannot be committed for so long are given up, and nothing more is scored meanwhile
FULL_SECONDS = 0.05  # one wait for room in the producer's queue

OnDelivery = Callable[[KafkaError, Message], None]


@dataclass(slots=True)
class Positions:
    """Positions published and not yet committed. Pure: `now` is in monotonic seconds."""

    published: dict[Partition, TopicPartition] = field(default_factory=dict)
    committing: dict[Partition, TopicPartition] = field(default_factory=dict)
    since: float = 0.0
    oldest: float = 0.0
    began: float = float("-inf")

    def publish(self, offsets: Iterable[TopicPartition], now: float) -> None:
        """A batch has been handed to the producer."""
        if not self.published:
            self.since = now
        self.published |= {(p.topic, p.partition): p for p in offsets}

    def due(self, now: float) -> bool:
        """Whether a checkpoint is to be made."""
        return bool(self.published) and not self.committing and now - max(self.since, self.began) >= CHECKPOINT_SECONDS

    def begin(self, now: float) -> dict[Partition, TopicPartition]:
        """A commit of everything published begins."""
        self.committing, self.published = self.published, {}
        self.oldest, self.began = self.since, now
        return self.committing

    def answered(self, *, committed: bool) -> None:
        """The commit that was begun has succeeded, or it has not and its positions are due once more."""
        if not committed and self.committing:
            self.published = self.committing | self.published
            self.since = self.oldest
        self.committing = {}

    def waiting(self, now: float) -> float:
        """Seconds for which something published has not been committed."""
        if self.committing:
            return now - self.oldest
        return now - self.since if self.published else 0.0

    def pending(self) -> dict[Partition, TopicPartition]:
        """Everything that is not known to be committed."""
        return self.committing | self.published

    def drop(self, partitions: Iterable[Partition]) -> None:
        """These are nobody's here any more."""
        for partition in partitions:
            self.published.pop(partition, None)
            self.committing.pop(partition, None)


class CheckpointSession:
    """Publishes batches at least once; see the module and `publisher.transactions.protocol.Session`.

    `make_producer(on_delivery, singly)` gives an idempotent producer that reports only what failed, and may send each record
    by itself. `confirm_seconds`: how long the broker may take to confirm records. `clock` is monotonic, in seconds.
    """

    sends_group = False

    def __init__(
        self,
        make_producer: Callable[[OnDelivery, bool], Producer],
        commits: GroupCommits,
        *,
        confirm_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counters = Counters()
        self._make_producer = make_producer
        self._commits = commits
        self._confirm_seconds = confirm_seconds
        self._clock = clock
        self._positions = Positions()
        self._fault: Aborted | None = None
        self._refused = RejectedRecords()
        self._careful_until = float("-inf")
        self._careful = self._unfit = self._uncommitted = False
        self._refusal: str | None = None
        self._producer = make_producer(self._failed, False)

    def open(self) -> None:
        """There is nothing to wait for: the first record waits for the producer's id."""

    def publish(
        self,
        records: Iterable[Record],
        offsets: Sequence[TopicPartition],
        group_metadata: Any,  # noqa: ARG002
        *,
        overlap: bool = False,  # noqa: ARG002
    ) -> None:
        """Hand the records to the producer; the positions follow with a checkpoint. Raises Aborted where a record failed, be it
        of an earlier call. For some time after the broker has refused a record, records are sent singly and each call waits
        until its own are confirmed: then it raises RecordRejected for those that are not, and the earlier ones are safe.

        `group_metadata` and `overlap` are the protocol's: the consumer itself commits, and nothing is waited for anyhow.
        """
        self._look()
        if self._careful and self._clock() > self._careful_until:
            self._renew()
        self._produce(records)
        if self._careful:
            self._flush(self._confirm_seconds)
        self._check()
        self._positions.publish(offsets, self._clock())

    def settle(self) -> None:
        """What failed is told by the next call that writes."""

    def decide(self) -> None:
        """What a checkpoint has begun may still move the committed offsets: never past what was published."""

    def tick(self) -> None:
        """Make a checkpoint if it is time. Raises Aborted where a record failed, or commits fail for too long."""
        self._look()
        now = self._clock()
        if self._positions.waiting(now) > UNCOMMITTED_SECONDS:
            raise Aborted(f"the group's positions could not be committed for {UNCOMMITTED_SECONDS:.0f} s")
        if self._positions.due(now):
            self._flush(self._confirm_seconds)
            spent = self._clock() - now
            begun = self._positions.begin(now)
            self._commits.begin(list(begun.values()), lambda error: self._answered(begun, error, spent))

    def checkpoint(self) -> None:
        """A checkpoint that waits for its answer. Raises Aborted where a record failed or the commit did."""
        self._check()
        offsets = list(self._positions.pending().values())
        if not offsets:
            return
        try:
            self._commit(offsets, self._confirm_seconds)
        except KafkaException as exception:
            self._fault = Aborted(f"the positions could not be committed: {exception.args[0]}")
            self._check()
        self._positions = Positions()

    def release(self, partitions: Iterable[TopicPartition], *, lost: bool) -> None:
        """Commit what these partitions have reached, unless they are lost: their next owner goes on from there."""
        leaving = {(p.topic, p.partition) for p in partitions}
        mine = [position for key, position in self._positions.pending().items() if key in leaving]
        if mine and not lost and self._fault is None:
            try:
                self._commit(mine, RELEASE_SECONDS)
            except (Aborted, KafkaException) as error:
                log.warning("what was scored last will be scored again by the next owner: %s", error)
        self._positions.drop(leaving)

    def recover(self) -> None:
        """Give up what is not confirmed; a new producer takes over."""
        self.counters.aborts += 1
        if self._unfit:
            self._careful_until = self._clock() + CAREFUL_SECONDS
        if not self._careful:
            self._positions = Positions()
        self._renew()

    def _renew(self) -> None:
        """A new producer, careful where it has to be."""
        self._producer.purge()
        self._careful = self._clock() < self._careful_until
        self._producer = self._make_producer(self._failed, self._careful)
        self._fault, self._unfit, self._refused = None, False, RejectedRecords(singly=True)

    def close(self) -> None:
        """Give up what is not confirmed. Never raises."""
        self._producer.purge()
        self._positions = Positions()

    def _produce(self, records: Iterable[Record]) -> None:
        try:
            self._refused.produce(self._producer, records, self._told if self._careful else None, self._make_room)
        except (BufferError, KafkaException) as error:
            self._unfit |= bool(self._refused)
            self._fault = self._fault or Aborted(f"could not produce: {error}")

    def _make_room(self) -> None:
        """The producer's queue is full: nothing more is taken in before the broker has confirmed a good part of it."""
        deadline, full = self._clock() + self._confirm_seconds, len(self._producer)
        while len(self._producer) > full // 2:
            self._producer.poll(FULL_SECONDS)
            if self._clock() > deadline:
                self._fault = Aborted(f"the broker has not confirmed {full // 2} records in {self._confirm_seconds:g} s")
            self._check()

    def _commit(self, offsets: Sequence[TopicPartition], seconds: float) -> None:
        """Flush, commit, wait for the answer. Raises Aborted or KafkaException."""
        began = self._clock()
        self._flush(seconds)
        self._commits.commit(offsets)
        self._committed(self._clock() - began)

    def _flush(self, seconds: float) -> None:
        """Return once every record is confirmed. Raises Aborted where one failed or took too long."""
        left = self._producer.flush(seconds)
        if left and self._fault is None:
            self._fault = Aborted(f"{left} records were not confirmed within {seconds:g} s")
        self._check()

    def _answered(self, begun: dict[Partition, TopicPartition], error: KafkaError | None, seconds: float) -> None:
        if begun is not self._positions.committing:  # settled otherwise since: a recovery, or a checkpoint that waited
            return
        self._positions.answered(committed=error is None)
        if error is None:
            self._committed(seconds)
        elif not self._uncommitted:
            self._uncommitted = True
            log.warning("a checkpoint was not committed, the next one will be: %s", error)

    def _committed(self, seconds: float) -> None:
        self.counters.committed(seconds)
        if self._uncommitted:
            self._uncommitted = False
            log.info("checkpoints are committed again")

    def _told(self, record: Record, error: KafkaError, message: Message) -> None:
        self._refused.note(record, error)
        self._failed(error, message)

    def _failed(self, error: KafkaError, message: Message) -> None:
        """Of a record that the broker will never confirm."""
        if error in REFUSED:
            self._refusal = f"no right to Write on topic {message.topic()!r}: {error}"
        self._unfit |= error in UNFIT_RECORD
        self._fault = self._fault or Aborted(f"a record for {message.topic()}[{message.partition()}] failed: {error}")

    def _look(self) -> None:
        """Hear of what failed. Raises Aborted."""
        self._producer.poll(0)
        self._check()

    def _check(self) -> None:
        if self._refusal is not None:
            raise NotAllowed(self._refusal, "kafka-acls.sh --add --allow-principal User:NAME --operation Write --topic TOPIC")
        if self._fault is not None:
            raise self._refused.error() if self._careful and self._refused else self._fault
