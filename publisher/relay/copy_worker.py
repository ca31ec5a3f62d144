"""A lane copies a fixed set of partitions: one consumer, one thread, one transaction after another.

Records and the positions that follow them are one transaction at the destination. A lane decides nothing: it begins where it
is told, and ends at the first trouble with its reason in `failure`; the life that it belongs to fences, verifies and begins
anew. A record that cannot be carried is no such trouble: see `dead_letter.py`.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from publisher.errors import Aborted, NotAllowed, RecordFailed, RecordRejected
from publisher.kafka import acls
from publisher.kafka.acls import READ, Right
from publisher.kafka.clients import is_group_auth_noise
from publisher.kafka.error_codes import END, OUT_OF_RANGE, REFUSED, UNDECODABLE, UNKNOWN_CLIENT
from publisher.kafka.partitions import Partition
from publisher.kafka.sandboxed_reads import Taken, messages_of, sandboxed
from publisher.relay.clients import SEE_CHECK, far_reader, source_rejection
from publisher.relay.clusters import session_of
from publisher.relay.dead_letter import Fill, Refusing, places
from publisher.relay.rate_limit import RateLimit
from publisher.relay.rejection_records import TransactionRejected
from publisher.relay.sandboxed_partitions import SandboxedPartitions, rows_to_copy
from publisher.relay.settings import RelaySettings
from publisher.relay.start_position import OutOfRange
from publisher.relay.status import LaneState
from publisher.relay.transform import Route, Rules, copy
from publisher.runtime.context import Context, now_ms
from publisher.transactions.exactly_once import Produce, TransactionSession
from publisher.transactions.protocol import Record

log = logging.getLogger(__name__)

CALL_SECONDS = 5.0
IDLE_SECONDS = 0.1
BESIDE_SUSPECTS_SECONDS = 0.01  # while the sandbox reads
CHECKPOINT_SECONDS = 1.0  # positions move without records too: past markers of transactions, or what a filter held back
SEEN_SECONDS = 5.0  # the topics' ids were asked for no longer ago than this when a transaction begins; a busy broker takes 2
USUAL_COMMIT_SECONDS = 0.005
LONGEST_REST_SECONDS = 0.050  # between two small transactions: the broker pays for each
SMALL = 500  # records
PIECE = 500  # records
LARGEST_TRANSACTION = 16_777_216  # bytes of values
LAG_SECONDS = 1.0


def rest_after(commit_seconds: float) -> float:
    """Seconds between a small transaction whose commit took so long and the next: as long, and longer in proportion where the
    broker is busy, lest many lanes fill it with commits."""
    return min(commit_seconds * max(1.0, commit_seconds / USUAL_COMMIT_SECONDS), LONGEST_REST_SECONDS)


@dataclass(frozen=True)
class WorkerContext:
    """What the lanes of one life share. `checkpoint` gives the record of a route's position; `topics_checked_at()` is when the
    topics' ids were last found unchanged (monotonic seconds); `context` and `wait_until_decided` as TransactionSession takes
    them; `batch_bytes`: what every topic takes at once. A lane ends when `stopping` is set, and sets `ended`."""

    settings: RelaySettings
    checkpoint: Callable[[Route], Record]
    topics_checked_at: Callable[[], float]
    context: Context
    wait_until_decided: Callable[[Context], None]
    batch_bytes: int
    rate_limit: RateLimit
    stopping: threading.Event
    ended: threading.Event


class CopyWorker:
    def __init__(self, shared: WorkerContext, state: LaneState) -> None:
        self.state = state
        self.failure: Exception | None = None
        self.state.routes, self.state.stopped = {}, {}
        self._shared = shared
        self._settings = settings = shared.settings
        self._stopping = shared.stopping
        source = settings.source
        self._suspects = SandboxedPartitions(
            sandboxed(source.kafka, settings.lane_id(state.number), source.expanded_bytes), state.begun
        )
        recover = lambda: self._writing.recover()  # noqa: E731, PLW0108 - it is open later
        self._refusing = Refusing(settings, state, self._publish, recover, self._suspects)
        self._registered: Record | None = None
        self._session: TransactionSession | None = None
        rate = settings.bytes_per_second
        self._piece = min(PIECE, max(10, rate // 1_000)) if rate else PIECE
        self._largest = min(LARGEST_TRANSACTION, rate) if rate else LARGEST_TRANSACTION
        self._rules = Rules(settings.source.region, settings.destination.region, settings.filter, settings.destination.topic)
        self._added: queue.SimpleQueue[Sequence[Route]] = queue.SimpleQueue()
        self._lag_at = float("-inf")
        self._rest_until = 0.0
        self._consumer: Consumer | None = None
        self._thread = threading.Thread(target=self._run, name=settings.lane_id(state.number), daemon=True)

    def open(self, registered: Record) -> None:
        """Take the lane's transactional ids over; each producer commits `registered`. Raises as TransactionSession.open."""
        shared, self._registered = self._shared, registered
        self._session = session_of(
            self._settings,
            self._settings.transactional_ids(self.state.number),
            shared.batch_bytes,
            counters=self.state.counters,
            ownership_record=self._proof,
            context=Context(beat=self._beat, raise_if_cancelled=self._raise_if_ending),
            wait_until_decided=shared.wait_until_decided,
        )
        self._session.open()

    def _proof(self) -> Record:
        """A position as it is, once there is one; registering once more would hide a process that has replaced this one."""
        for route in self.state.routes.values():
            return self._shared.checkpoint(route)
        assert self._registered is not None
        return self._registered

    def _beat(self) -> None:
        self.state.heartbeat = time.monotonic()

    def _raise_if_ending(self) -> None:
        self._shared.context.check()
        if self._stopping.is_set():
            raise Aborted(f"lane {self.state.number} is to end")

    @property
    def _writing(self) -> TransactionSession:
        assert self._session is not None, "the lane is not open"
        return self._session

    def start(self) -> None:
        self._thread.start()

    def add(self, routes: Sequence[Route]) -> None:
        """Copy these partitions too, from their `next` on; their checkpoints are written. From any thread."""
        self._added.put(routes)

    def join(self, seconds: float) -> bool:
        """Wait for the end of the thread; whether it came."""
        if self._thread.ident is None:
            self._close()
        else:
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._consumer = far_reader(self._settings, self.state.number)
            while not self._stopping.is_set():
                self._turn(self._consumer)
        except KafkaException as error:
            self.failure = Aborted(f"lane {self.state.number}: {error.args[0].str()}")
        except Exception as error:  # noqa: BLE001 - the life that the lane belongs to raises it
            self.failure = error
        finally:
            self._close()
            self._shared.ended.set()

    def _turn(self, consumer: Consumer) -> None:
        """Take what is there, publish it."""
        self.state.heartbeat = time.monotonic()
        self._assign(consumer)
        rest = self._rest_until - time.monotonic()
        if rest > 0:
            self._stopping.wait(rest)
        if (taken := self._suspects.take()) is not None:
            self._carry(consumer, taken)
        messages = consumer.consume(1, BESIDE_SUSPECTS_SECONDS if self._suspects else IDLE_SECONDS)
        self._try(consumer, messages)
        for place in self._suspects.take_reported() & self._refusing.active.keys():
            consumer.incremental_unassign([TopicPartition(*place)])
            self._suspects.add(self._refusing.active[place])
        self._measure(consumer)

    def _try(self, consumer: Consumer, messages: list[Message]) -> bool:
        """Publish these and the messages behind them. False if one cannot be copied: all are read again, fewer at once."""
        if (messages or any(route.settle() for route in self.state.routes.values())) and self._same_topics():
            try:
                self._pay(*self._publish(partial(self._copy, consumer, messages)))
                self._refusing.room.passed(self._refusing.active)
            except TransactionRejected as unfit:
                self._refusing.take_back(consumer, messages, unfit)
                return False
        return True

    def _carry(self, consumer: Consumer, taken: Taken) -> None:
        """Publish what the sandbox has read, and have the consumer read a partition that is no suspect any longer."""
        route = self._refusing.active.get(taken.partition)
        if route is None or not self._same_topics():
            self._suspects.forget(taken.partition)
        elif taken.unreadable is not None:
            self._refusing.unreadable(consumer, taken.unreadable, now_ms())
        else:
            rows = rows_to_copy(taken.rows, self._refusing.room.now)
            messages = messages_of(taken.partition, rows)
            unread = rows[0].unread if rows else None
            if not (self._try(consumer, messages) if unread is None else self._refuse_unread(consumer, messages[0], unread)):
                return
            if taken.partition not in self._refusing.active:
                return
            if len(rows) < len(taken.rows):  # the others are read again
                self._suspects.add(route)
            elif taken.cleared:
                consumer.incremental_assign(places([route]))

    def _refuse_unread(self, consumer: Consumer, message: Message, why: str) -> bool:
        """Refuse a record from the sandbox whose headers cannot be read. Returns what `_try` does."""

        def refuse(produce: Produce) -> tuple[int, int]:
            self._refusing.unread(consumer, produce, message, ValueError(why))
            return 1, 0

        try:
            self._publish(refuse)
        except TransactionRejected as unfit:
            self._refusing.take_back(consumer, [message], unfit)
            return False
        return True

    def _assign(self, consumer: Consumer) -> None:
        while not self._added.empty():
            routes = self._added.get()
            for name in {route.topic for route in routes}:  # a client that knows no leader yet looks again only a second later
                consumer.list_topics(name, CALL_SECONDS)
            self._writing.refresh_metadata({route.destination for route in routes})
            added = {(route.topic, route.partition): route for route in routes}
            self._refusing.active |= added
            self.state.routes |= added
            consumer.incremental_assign(places(self._suspects.begin(routes)))

    def _same_topics(self) -> bool:
        """Wait until the topics are known to be the same ones; False where the lane ends before that."""
        while not self._stopping.is_set():
            now = self.state.heartbeat = time.monotonic()
            if self._shared.topics_checked_at() >= now - SEEN_SECONDS:
                return True
            self._stopping.wait(0.01)
        return False

    def _publish(self, fill: Fill) -> tuple[int, int]:
        """One transaction: what `fill` writes, and the positions after it. Raises TransactionRejected where the destination
        does not take one of the records; that transaction is still to be aborted."""
        state, before, amount = self.state, replace(self.state.tally), (0, 0)
        moved: list[Route] = []

        def write(produce: Produce) -> bool:
            nonlocal amount, moved
            if not self._same_topics():  # a producer may have been waited for since they were looked at
                return False
            amount = fill(produce)
            moved = [route for route in state.routes.values() if route.settle()]
            due = time.monotonic() - state.checkpoint_at >= CHECKPOINT_SECONDS
            if state.tally.written == before.written and not (moved and due):
                return False
            for route in moved:
                topic, value, key, *_ = self._shared.checkpoint(route)
                produce(topic, value, key)
            return True

        self._refusing.begin()
        try:
            if not self._writing.write(write):
                return amount
        except Exception as error:
            written, state.tally = state.tally.written - before.written, before
            self._refusing.aborted()
            raise self._failure(error, written) from error
        for route in moved:
            route.confirm()
        self._refusing.committed()
        state.checkpoint_at = time.monotonic()
        rest = rest_after(state.counters.last_ending_seconds) if amount[0] < SMALL else 0.0
        self._rest_until = state.checkpoint_at + rest
        return amount

    def _failure(self, error: Exception, written: int) -> Exception:
        """What the failure of a transaction of so many records means."""
        if isinstance(error, RecordRejected) or (isinstance(error, RecordFailed) and written):
            return TransactionRejected(error.code or 0, written)
        if isinstance(error, NotAllowed) and isinstance(error.__cause__, KafkaException):  # else it is the source that refuses
            return NotAllowed(f"the destination refuses lane {self.state.number}: {error}", SEE_CHECK)
        if isinstance(error, Aborted):
            kind = Aborted if isinstance(error, RecordFailed) else type(error)
            return kind(f"lane {self.state.number}: {error}")
        return error

    def _copy(self, consumer: Consumer, messages: list[Message], produce: Produce) -> tuple[int, int]:
        """Copy in small pieces, which stay in the processor's cache, and so few that the producer's queue takes them all."""
        state, room, active = self.state, self._refusing.room.now, self._refusing.active
        refuse = partial(self._refusing.unread, consumer, produce)
        count = size = 0
        while messages:
            for event in copy(messages, active, self._rules, produce, state.tally, refuse):
                self._hear(event)
            count += len(messages)
            size += sum(map(len, messages))
            if size >= self._largest or (left := min(self._piece, room - count)) <= 0:
                break
            messages = consumer.consume(left, 0)
        return count, size

    def _hear(self, event: Message) -> None:
        """What the consumer says that is no record."""
        error = event.error()
        assert error is not None
        if error in END:
            if route := self._refusing.active.get(cast("Partition", (event.topic(), event.partition()))):
                route.reach(event.offset() or 0, now_ms())
        elif error in UNDECODABLE:
            log.warning(
                "lane %d reads %s[%s] in the sandbox: %s", self.state.number, event.topic(), event.partition(), error.str()
            )
            self._suspects.report(cast("Partition", (event.topic(), event.partition())))
        elif error in OUT_OF_RANGE:
            raise OutOfRange(error.str(), event.topic(), event.partition())
        elif REFUSED.reason(error) == acls.TOPIC:
            raise acls.refused(self._settings.source.kafka, [Right(READ, acls.TOPIC, str(event.topic()))])
        elif not is_group_auth_noise(error):
            if error in REFUSED or error in UNKNOWN_CLIENT or error.fatal():
                raise source_rejection(self._settings.source.kafka, error)
            raise Aborted(f"the source says: {error.str()}")

    def _pay(self, count: int, size: int) -> None:
        """Count the bytes, and wait where there is a limit."""
        self.state.bytes += size
        until = time.monotonic() + self._shared.rate_limit.spend(size + 64 * count, time.monotonic())
        while (left := until - time.monotonic()) > 0 and not self._stopping.wait(min(left, 1.0)):
            self.state.heartbeat = time.monotonic()

    def _measure(self, consumer: Consumer) -> None:
        """Where the source's partitions end, as far as the last fetches told."""
        now = time.monotonic()
        if now - self._lag_at < LAG_SECONDS:
            return
        self._lag_at = now
        for partition, route in self._refusing.active.items():
            bounds: Any = consumer.get_watermark_offsets(TopicPartition(*partition), cached=True)
            if bounds is not None and bounds[1] >= 0:
                route.end = bounds[1]

    def _close(self) -> None:
        """Abort what is open, so that readers need not wait for its time-out; let the clients go."""
        if self._session is not None:
            self._session.close()
        self._suspects.close()
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
