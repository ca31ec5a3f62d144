"""Copy a set of partitions with one consumer in one thread, in one transaction after another.

A worker never restarts: every error that does not concern a single record ends it. `transaction_writer.py` publishes the
transactions; `dead_letter.py` decides about records that cannot be copied.
"""

import logging
import queue
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, cast

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from publisher.errors import Aborted
from publisher.kafka import acls
from publisher.kafka.acls import READ, Right
from publisher.kafka.clients import is_group_auth_noise
from publisher.kafka.error_codes import END, OUT_OF_RANGE, REFUSED, UNDECODABLE, UNKNOWN_CLIENT
from publisher.kafka.partitions import Partition
from publisher.kafka.sandboxed_reads import SandboxResult, messages_of, sandboxed
from publisher.relay.clients import create_source_consumer, source_rejection
from publisher.relay.dead_letter import (
    RejectedRecord,
    TransactionLimit,
    TransactionRejected,
    rejected_record,
    unreadable_batch,
    unreadable_record,
)
from publisher.relay.relay_state import LaneState
from publisher.relay.sandboxed_partitions import SandboxedPartitions, rows_to_copy
from publisher.relay.start_position import OutOfRange
from publisher.relay.transaction_writer import TransactionWriter, WorkerContext
from publisher.relay.transform import Route, Rules, copy
from publisher.runtime.context import now_ms
from publisher.transactions.exactly_once import Produce
from publisher.transactions.session import Record

log = logging.getLogger(__name__)

CALL_SECONDS = 5.0
IDLE_SECONDS = 0.1
SANDBOX_IDLE_SECONDS = 0.01  # the longest poll of the consumer while the sandbox reads other partitions
PIECE = 500  # the most records that one poll returns; they fit into the processor's cache and the producer's queue
LARGEST_TRANSACTION = 16_777_216  # bytes of values
LAG_SECONDS = 1.0
STOPPED_HINT = (
    "make the destination topic accept the record and restart the relay, or configure refusal_topic, or run "
    "`publisher checkpoint set` to skip the record"
)


class CopyWorker:
    """Copies a fixed share of the relay's partitions, a lane, in a thread of its own.

    Attributes:
        state: the state of the lane, for metrics and health checks.
        failure: the error that has ended the thread; None if there is none.
    """

    def __init__(self, shared: WorkerContext, state: LaneState) -> None:
        self.state = state
        self.failure: Exception | None = None
        self.state.routes = {}
        self.state.stopped = {}
        self._shared = shared
        self._settings = settings = shared.settings
        self._stopping = shared.stopping
        self._region = settings.source.region
        self._active: dict[Partition, Route] = {}
        self._writer = TransactionWriter(shared, state)
        self._limit = TransactionLimit(settings.transaction_records)
        sandbox = sandboxed(settings.source.kafka, settings.lane_id(state.number), settings.source.expanded_bytes)
        self._sandboxed = SandboxedPartitions(sandbox, state.begun)
        rate = settings.bytes_per_second
        self._piece = min(PIECE, max(10, rate // 1_000)) if rate else PIECE
        self._largest = min(LARGEST_TRANSACTION, rate) if rate else LARGEST_TRANSACTION
        self._rules = Rules(self._region, settings.destination.region, settings.filter, settings.destination.topic)
        self._added: queue.SimpleQueue[Sequence[Route]] = queue.SimpleQueue()
        self._ends_updated_at = float("-inf")
        self._consumer: Consumer | None = None
        self._thread = threading.Thread(target=self._run, name=settings.lane_id(state.number), daemon=True)

    def open(self, registered: Record) -> None:
        """Take over the transactional ids of this worker. Raises the same errors as `TransactionSession.open`.

        Each producer commits `registered`, the registration record of this process. The commit fails if another
        process has taken over the ids.
        """
        self._writer.open(registered)

    def start(self) -> None:
        """Start the thread of the worker. Allowed once, after `open`."""
        self._thread.start()

    def add(self, routes: Sequence[Route]) -> None:
        """Also copy the partitions of these routes, from their `next` offsets. Allowed from any thread.

        The first checkpoints of the partitions must be written before the call.
        """
        self._added.put(routes)

    def join(self, seconds: float) -> bool:
        """Wait for the end of the thread; return whether it has ended."""
        if self._thread.ident is None:
            self._close()
        else:
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._consumer = create_source_consumer(self._settings, self.state.number)
            while not self._stopping.is_set():
                self._poll(self._consumer)
        except KafkaException as error:
            self.failure = Aborted(f"lane {self.state.number}: {error.args[0].str()}")
        except Exception as error:  # noqa: BLE001 - the run of the relay raises it
            self.failure = error
        finally:
            self._close()
            self._shared.ended.set()

    def _poll(self, consumer: Consumer) -> None:
        """Poll once the consumer and the sandbox (`SandboxedPartitions`). Publish copies of the received records."""
        self.state.heartbeat = time.monotonic()
        self._assign_added(consumer)
        rest = self._writer.rest_until - time.monotonic()
        if rest > 0:
            self._stopping.wait(rest)
        if (result := self._sandboxed.take()) is not None:
            self._copy_sandboxed(consumer, result)
        messages = consumer.consume(1, SANDBOX_IDLE_SECONDS if self._sandboxed else IDLE_SECONDS)
        self._copy_messages(consumer, messages)
        for partition in self._sandboxed.take_reported() & self._active.keys():
            consumer.incremental_unassign([TopicPartition(*partition)])
            self._sandboxed.add(self._active[partition])
        self._update_ends(consumer)

    def _assign_added(self, consumer: Consumer) -> None:
        while not self._added.empty():
            routes = self._added.get()
            for name in {route.topic for route in routes}:  # without a known leader the client would retry only after 1 s
                consumer.list_topics(name, CALL_SECONDS)
            self._writer.refresh_metadata({route.destination for route in routes})
            added = {(route.topic, route.partition): route for route in routes}
            self._active |= added
            self.state.routes |= added
            consumer.incremental_assign(_positions(self._sandboxed.begin(routes)))

    def _copy_messages(self, consumer: Consumer, messages: list[Message]) -> bool:
        """Publish the copies of these messages, and of further messages that the consumer has already fetched.

        Returns:
            False if the destination has rejected the transaction. Its records are then read again and copied in smaller
            transactions.
        """
        if not (messages or any(route.advance_past_read() for route in self.state.routes.values())):
            return True
        if not self._writer.wait_for_same_topics():
            return True
        unreadable: list[RejectedRecord] = []
        try:
            count, size = self._writer.publish(partial(self._write_copies, consumer, messages, unreadable))
        except TransactionRejected as rejection:
            self._repeat_smaller(consumer, messages, unreadable, rejection)
            return False
        for record in unreadable:
            self._report_refused_or_stop(consumer, record)
        self._throttle(count, size)
        self._limit.record_commit(self._active)
        return True

    def _write_copies(
        self, consumer: Consumer, messages: list[Message], unreadable: list[RejectedRecord], produce: Produce
    ) -> tuple[int, int]:
        """Produce the copies of `messages`, and of further messages that are already fetched, until the transaction is full.

        Records with unreadable headers are appended to `unreadable`.

        Returns:
            The number of messages, and the bytes of their values.
        """
        # With a refusal topic, the dead letter of such a record is produced. Without one, later records of its partition are
        # not copied in this transaction. The partition is stopped only after the commit, so that an abort has nothing to undo.
        routes = dict(self._active)
        has_refusal_topic = bool(self._settings.refusal_topic)
        count = size = 0
        while messages:
            events, unread = copy(
                messages, routes, self._rules, produce, self.state.copy_counts, skip_unreadable=has_refusal_topic
            )
            for message, error in unread:
                record = unreadable_record(self._region, message, error)
                unreadable.append(record)
                if has_refusal_topic:
                    self._write_dead_letter(record, False, produce)
            for event in events:
                self._handle_event(event, routes)
            count += len(messages)
            size += sum(map(len, messages))
            remaining = min(self._piece, self._limit.current - count)
            if size >= self._largest or remaining <= 0:
                break
            messages = consumer.consume(remaining, 0)
        return count, size

    def _handle_event(self, event: Message, routes: Mapping[Partition, Route]) -> None:
        """Handle a message of the consumer that is not a record: the end of a partition, or an error."""
        error = event.error()
        assert error is not None
        partition = cast("Partition", (event.topic(), event.partition()))
        if error in END:
            if route := routes.get(partition):
                route.advance_to_end(event.offset() or 0, now_ms())
        elif error in UNDECODABLE:
            log.warning(
                "lane %d reads %s[%s] in the sandbox, because a batch cannot be decoded: %s",
                self.state.number,
                *partition,
                error.str(),
            )
            self._sandboxed.report(partition)
        elif error in OUT_OF_RANGE:
            raise OutOfRange(error.str(), event.topic(), event.partition())
        elif REFUSED.reason(error) == acls.TOPIC:
            raise acls.refused(self._settings.source.kafka, [Right(READ, acls.TOPIC, str(event.topic()))])
        elif not is_group_auth_noise(error):
            if error in REFUSED or error in UNKNOWN_CLIENT or error.fatal():
                raise source_rejection(self._settings.source.kafka, error)
            raise Aborted(f"the source returned an error: {error.str()}")

    def _copy_sandboxed(self, consumer: Consumer, result: SandboxResult) -> None:
        """Publish the records or dead letter of a sandbox result.

        If the sandbox has released the partition, the consumer reads it again.
        """
        route = self._active.get(result.partition)
        if route is None or not self._writer.wait_for_same_topics():
            self._sandboxed.forget(result.partition)
            return
        if result.unreadable is not None:
            self._refuse_or_stop(consumer, unreadable_batch(self._region, result.unreadable, now_ms()), forms=(True,))
            return
        rows = rows_to_copy(result.rows, self._limit.current)
        messages = messages_of(result.partition, rows)
        if rows and rows[0].unread is not None:
            is_published = self._refuse_unreadable_row(consumer, messages[0], rows[0].unread)
        else:
            is_published = self._copy_messages(consumer, messages)
        if not is_published or result.partition not in self._active:
            return
        if len(rows) < len(result.rows):  # the other rows are read again
            self._sandboxed.add(route)
        elif result.released:
            consumer.incremental_assign(_positions([route]))

    def _refuse_unreadable_row(self, consumer: Consumer, message: Message, error: str) -> bool:
        """Dead-letter a record whose headers the sandbox process could not read, or stop its partition.

        Returns:
            False if the destination has rejected the transaction with the dead letter.
        """
        record = unreadable_record(self._region, message, ValueError(error))
        if self._settings.refusal_topic:
            try:
                count, _ = self._writer.publish(partial(self._write_dead_letter, record, False))
            except TransactionRejected as rejection:
                self._repeat_smaller(consumer, [message], [record], rejection)
                return False
            if not count:
                return True
        self._report_refused_or_stop(consumer, record)
        return True

    def _repeat_smaller(
        self,
        consumer: Consumer,
        messages: list[Message],
        unreadable: Sequence[RejectedRecord],
        rejection: TransactionRejected,
    ) -> None:
        """Abort a rejected transaction, and read its records again in smaller transactions.

        If the transaction has only one record, the record is dead-lettered, or its partition is stopped.

        Args:
            consumer: the consumer.
            messages: the first messages of the transaction.
            unreadable: the records that the transaction contained as dead letters.
            rejection: the error that reports the rejection.
        """
        candidates = {partition: route.next for partition, route in self._active.items() if route.advance_past_read()}
        for route in self.state.routes.values():
            route.rewind()
        self._writer.recover()
        has_record = any(not m.error() and (m.topic(), m.partition()) in self._active for m in messages)
        if self._limit.current > 1:
            log.info(
                "lane %d copies in smaller transactions, because the destination rejects one of %d records: %s",
                self.state.number,
                rejection.written,
                rejection,
            )
            self._limit.record_rejection(rejection.written, candidates)
        elif rejection.reason is None or not has_record:
            raise Aborted(f"lane {self.state.number}: {rejection}")
        else:
            self._limit.record_isolation()
            if unreadable:  # the refusal topic rejects its dead letter
                self._refuse_or_stop(consumer, unreadable[0], forms=(True,))
            else:
                record = rejected_record(self._region, messages[0], rejection.reason, str(rejection))
                self._refuse_or_stop(consumer, record, forms=(False, True))
        for partition, route in self._active.items():
            if partition in self._sandboxed:
                self._sandboxed.add(route)
        consumer.assign(_positions(route for partition, route in self._active.items() if partition not in self._sandboxed))

    def _refuse_or_stop(self, consumer: Consumer, record: RejectedRecord, forms: tuple[bool, ...]) -> None:
        """Publish the dead letter of a record in a transaction of its own, or else stop the record's partition.

        Args:
            consumer: the consumer.
            record: the record.
            forms: the values of the argument `bare` of `RejectedRecord.dead_letter` to try, in this order: False for the
                complete dead letter, True for a dead letter without the value.
        """
        for bare in forms if self._settings.refusal_topic else ():
            try:
                count, _ = self._writer.publish(partial(self._write_dead_letter, record, bare))
            except TransactionRejected as rejection:
                log.warning(
                    "lane %d: the refusal topic rejects the dead letter of %s: %s", self.state.number, record.source, rejection
                )
                self._active[record.partition].rewind()
                self._writer.recover()
                continue
            if count:
                log.warning("lane %d cannot copy %s", self.state.number, record)
            return
        self._stop(consumer, record)

    def _report_refused_or_stop(self, consumer: Consumer, record: RejectedRecord) -> None:
        """Log a record whose dead letter was committed, or stop its partition if no refusal topic is configured."""
        if self._settings.refusal_topic:
            log.warning("lane %d cannot copy %s", self.state.number, record)
        else:
            self._stop(consumer, record)

    def _write_dead_letter(self, record: RejectedRecord, bare: bool, produce: Produce) -> tuple[int, int]:
        self._active[record.partition].last_skipped = record.message
        produce(self._settings.refusal_topic, **record.dead_letter(bare=bare))
        self.state.copy_counts.refused += 1
        return 1, 0

    def _stop(self, consumer: Consumer, record: RejectedRecord) -> None:
        """Stop copying the partition of this record until the next run of the relay."""
        # No record is lost, because the checkpoint stays before the record, and no later record is copied.
        partition = record.partition
        del self._active[partition]
        if partition in self._sandboxed:
            self._sandboxed.forget(partition)
        else:
            consumer.incremental_unassign([TopicPartition(*partition)])
        reason = f"stopped at offset {record.source.offset}, which cannot be copied: {record.reason} ({record.error})"
        self.state.stopped[partition] = reason
        log.error("lane %d: %s[%d] %s; %s", self.state.number, *partition, reason, STOPPED_HINT)

    def _throttle(self, count: int, size: int) -> None:
        """Count `count` records of `size` bytes in total, and wait as long as the rate limit requires."""
        self.state.bytes += size
        until = time.monotonic() + self._shared.rate_limit.add_bytes(size + 64 * count, time.monotonic())
        while (remaining := until - time.monotonic()) > 0 and not self._stopping.wait(min(remaining, 1.0)):
            self.state.heartbeat = time.monotonic()

    def _update_ends(self, consumer: Consumer) -> None:
        """Update the end offsets of the source partitions from the answers to the last fetches."""
        now = time.monotonic()
        if now - self._ends_updated_at < LAG_SECONDS:
            return
        self._ends_updated_at = now
        for partition, route in self._active.items():
            bounds: Any = consumer.get_watermark_offsets(TopicPartition(*partition), cached=True)
            if bounds is not None and bounds[1] >= 0:
                route.end = bounds[1]

    def _close(self) -> None:
        """Close the writer, the sandbox and the consumer."""
        self._writer.close()
        self._sandboxed.close()
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None


def _positions(routes: Iterable[Route]) -> list[TopicPartition]:
    """Return the next offset of each route, in the form that the assignment of a consumer needs."""
    return [TopicPartition(route.topic, route.partition, route.next, leader_epoch=route.epoch) for route in routes]
