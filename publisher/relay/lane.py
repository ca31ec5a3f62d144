"""A lane copies a fixed set of partitions: one consumer, one thread, one transaction after another, by two producers in turn.

Records and the positions that follow them are one transaction at the destination. The producer whose transaction the broker
is still ending would have to wait for that; the other one need not. A lane decides nothing: it begins where it is told, and
ends at the first trouble with its reason in `failure`; whoever runs it fences, verifies and begins anew. A record that cannot
be carried is no such trouble: see `refusing.py`.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle
from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from publisher.errors import Aborted, Fenced
from publisher.kafka import rights
from publisher.kafka.clients import RETRY_BACKOFF_MS, introduced, of_no_group, unwrapping
from publisher.kafka.error_codes import RECORD_CODES
from publisher.kafka.reader import Partition
from publisher.kafka.rights import READ, Right
from publisher.relay.budget import Budget
from publisher.relay.clients import FENCED, REFUSED, begin, far_reader, near_writer, refusal
from publisher.relay.copy import Route, Rules, copy
from publisher.relay.refusing import Refusing, Write, places
from publisher.relay.settings import RelaySettings
from publisher.relay.state import LaneState
from publisher.relay.unfit import HIDING, Unfit

log = logging.getLogger(__name__)

CALL_SECONDS = 5.0
IDLE_SECONDS = 0.1
STUCK_SECONDS = 0.25  # the client sends nothing more once a record of the transaction was refused
CHECKPOINT_SECONDS = 1.0  # positions move without records too: past markers of transactions, or what a filter held back
SEEN_SECONDS = 2.0  # the topics' ids were checked no longer ago than this when a transaction begins
USUAL_COMMIT_SECONDS = 0.005
LONGEST_REST_SECONDS = 0.050  # between two small transactions: the broker pays for each
SMALL = 500  # records
PIECE = 500  # records
LARGEST_TRANSACTION = 16_777_216  # bytes of values
LAG_SECONDS = 1.0
SLOW_COMMIT_SECONDS = 0.75 * RETRY_BACKOFF_MS / 1_000  # from here on the client may have asked twice: publisher/README.md
EncodeCheckpoint = Callable[[Route], tuple[bytes, bytes]]
"""The key and value of a position's record."""


def rest_after(commit_seconds: float) -> float:
    """Seconds between a small transaction whose commit took so long and the next: as long, and longer in proportion where the
    broker is busy, lest many lanes fill it with commits."""
    return min(commit_seconds * max(1.0, commit_seconds / USUAL_COMMIT_SECONDS), LONGEST_REST_SECONDS)


class Lane:
    """See the module. `seen()` is when the topics' ids were last found unchanged; `ended` is set when the thread ends."""

    def __init__(
        self,
        settings: RelaySettings,
        state: LaneState,
        encode: EncodeCheckpoint,
        seen: Callable[[], float],
        budget: Budget,
        batch_bytes: int,
        stopping: threading.Event,
        ended: threading.Event,
    ) -> None:
        self.state = state
        self.failure: Exception | None = None
        self.state.routes, self.state.stopped = {}, {}
        self._settings = settings
        self._refusing = Refusing(settings, state, self._publish, self._renew)
        self._writers: dict[str, Producer] = {}
        self._turns = cycle(settings.transactional_ids(state.number))
        self._mine = next(self._turns)
        self._encode = encode
        self._seen = seen
        self._budget = budget
        self._batch_bytes = batch_bytes
        self._stopping = stopping
        self._ended = ended
        rate = settings.bytes_per_second
        self._piece = min(PIECE, max(10, rate // 1_000)) if rate else PIECE
        self._largest = min(LARGEST_TRANSACTION, rate) if rate else LARGEST_TRANSACTION
        self._rules = Rules(settings.source.region, settings.destination.region, settings.filter, settings.destination.topic)
        self._added: queue.SimpleQueue[Sequence[Route]] = queue.SimpleQueue()
        self._lag_at = float("-inf")
        self._rest_until = self._commit_took = 0.0
        self._consumer: Consumer | None = None
        self._thread = threading.Thread(target=self._run, name=settings.lane_id(state.number), daemon=True)

    @property
    def openings(self) -> list[Callable[[float], Producer]]:
        """What takes over its transactional ids, each within so many seconds. They raise as `begin` does."""
        return [partial(self._open, name) for name in self._settings.transactional_ids(self.state.number)]

    def _open(self, name: str, seconds: float) -> Producer:
        writer = introduced(near_writer(self._settings, name, self._batch_bytes), self._settings.checkpoint_topic)
        self._writers[name] = begin(self._settings, name, writer, self._stopping, seconds)
        return self._writers[name]

    def start(self) -> None:
        """Begin to copy what is added."""
        self._thread.start()

    def add(self, routes: Sequence[Route]) -> None:
        """Copy these partitions too, from their `next` on; their checkpoints are written. From any thread."""
        self._added.put(routes)

    def join(self, seconds: float) -> bool:
        """Wait for the end of the thread; whether it came."""
        if self._thread.ident is not None:
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._consumer = far_reader(self._settings, self.state.number)
            with unwrapping():
                while not self._stopping.is_set():
                    self._turn(self._consumer)
        except KafkaException as error:
            self.failure = self._failure(error.args[0])
        except Exception as error:  # noqa: BLE001 - handed to whoever runs the lane
            self.failure = error
        finally:
            self._close()
            self._ended.set()

    def _turn(self, consumer: Consumer) -> None:
        """Take what is there, publish it."""
        self.state.heartbeat = time.monotonic()
        self._assign(consumer)
        rest = self._rest_until - time.monotonic()
        if rest > 0:
            self._stopping.wait(rest)
        messages = consumer.consume(1, IDLE_SECONDS)
        if (messages or any(route.settle() for route in self.state.routes.values())) and self._same_topics():
            try:
                self._pay(*self._publish(partial(self._copy, consumer, messages)))
                self._refusing.room.passed(self._refusing.active)
            except Unfit as unfit:
                self._refusing.take_back(consumer, messages, unfit)
        self._measure(consumer)

    def _assign(self, consumer: Consumer) -> None:
        while not self._added.empty():
            routes = self._added.get()
            for name in {route.topic for route in routes}:  # a client that knows no leader yet looks again only a second later
                consumer.list_topics(name, CALL_SECONDS)
            for name in {route.destination for route in routes}:  # what has grown is written to only when this client knows
                for producer in self._writers.values():
                    producer.list_topics(name, CALL_SECONDS)
            added = {(route.topic, route.partition): route for route in routes}
            self._refusing.active |= added
            self.state.routes |= added
            consumer.incremental_assign(places(routes))

    def _same_topics(self) -> bool:
        """Wait until the topics are known to be the same ones; False where the lane ends before that."""
        while not self._stopping.is_set():
            now = self.state.heartbeat = time.monotonic()
            if self._seen() >= now - SEEN_SECONDS:
                return True
            self._stopping.wait(0.01)
        return False

    def _publish(self, write: Write) -> tuple[int, int]:
        """One transaction: what `write` writes, and the positions after it. Raises Unfit where the destination does not take
        one of the records; that transaction is still to be aborted."""
        producer, before = self._writers[self._mine], replace(self.state.tally)
        self._refusing.begin()
        try:
            producer.begin_transaction()
            count, size = write(producer)
            moved = [route for route in self.state.routes.values() if route.settle()]
            due = time.monotonic() - self.state.checkpoint_at >= CHECKPOINT_SECONDS
            if self.state.tally.written == before.written and not (moved and due):
                producer.abort_transaction(CALL_SECONDS)
                return count, size
            for route in moved:
                key, value = self._encode(route)
                producer.produce(self._settings.checkpoint_topic, value, key)
            self._commit(producer)
        except Exception as exception:
            self.state.aborts += 1
            written, self.state.tally = self.state.tally.written, before
            self._refusing.aborted()
            if isinstance(exception, KafkaException):
                raise self._failure(exception.args[0], written - before.written) from exception
            raise
        for route in moved:
            route.confirm()
        self._refusing.committed()
        if self._commit_took >= SLOW_COMMIT_SECONDS:
            self.state.rotations += 1
            self._replace(self._mine)
        self._mine = next(self._turns)
        self._rest_until = time.monotonic() + (rest_after(self._commit_took) if count < SMALL else 0.0)
        return count, size

    def _copy(self, consumer: Consumer, messages: list[Message], producer: Producer) -> tuple[int, int]:
        """Copy in small pieces, which stay in the processor's cache, and so few that the producer's queue takes them all."""
        state, room, active = self.state, self._refusing.room.now, self._refusing.active
        refuse = partial(self._refusing.unread, consumer, producer)
        count = size = 0
        while messages:
            for event in copy(messages, active, self._rules, producer.produce, state.tally, refuse):
                self._hear(event)
            count += len(messages)
            size += sum(map(len, messages))
            if size >= self._largest or (left := min(self._piece, room - count)) <= 0:
                break
            messages = consumer.consume(left, 0)
        return count, size

    def _commit(self, producer: Producer) -> None:
        """Commit; repeated while the client says that it may be, up to the transaction timeout."""
        deadline = time.monotonic() + self._settings.destination.transaction_timeout_ms / 1_000
        left = len(producer)
        while (
            still := producer.flush(STUCK_SECONDS)
        ) and still < left:  # no progress: the commit says why, if there is a reason
            left, self.state.heartbeat = still, time.monotonic()
        began = time.monotonic()
        while True:
            try:
                producer.commit_transaction(CALL_SECONDS)
                break
            except KafkaException as exception:
                error = exception.args[0]
                self.state.heartbeat = time.monotonic()
                if error.fatal() or error.txn_requires_abort() or not error.retriable() or self.state.heartbeat > deadline:
                    raise
        now = self.state.checkpoint_at = time.monotonic()
        self._commit_took = now - began
        self.state.transactions += 1
        self.state.commit_seconds += self._commit_took

    def _hear(self, event: Message) -> None:
        """What the consumer says that is no record."""
        error = event.error()
        assert error is not None
        code = error.code()
        if code == KafkaError._PARTITION_EOF:
            if route := self._refusing.active.get(cast("Partition", (event.topic(), event.partition()))):
                route.settle()
                route.next = max(route.next, event.offset() or 0)
        elif code == KafkaError._AUTO_OFFSET_RESET:
            raise OutOfRange(error.str(), event.topic(), event.partition())
        elif code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise rights.refused(self._settings.source.kafka, [Right(READ, rights.TOPIC, str(event.topic()))])
        elif code in REFUSED or error.fatal():
            raise refusal(self._settings.source.kafka, error, "the source refuses")
        elif not of_no_group(error):
            raise Aborted(f"lane {self.state.number}: the source says: {error.str()}")

    def _pay(self, count: int, size: int) -> None:
        """Count the bytes, and wait where there is a limit."""
        self.state.bytes += size
        until = time.monotonic() + self._budget.spend(size + 64 * count, time.monotonic())
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

    def _failure(self, error: KafkaError, written: int | None = None) -> Exception:
        """What an error means; `written` where it failed a transaction of so many records."""
        if written is not None and (error.code() in RECORD_CODES or (written and error.code() in HIDING)):
            return Unfit(error, written)
        if error.code() in REFUSED:
            return refusal(self._settings.destination.kafka, error, f"the destination refuses lane {self.state.number}")
        return (Fenced if error.code() in FENCED else Aborted)(f"lane {self.state.number}: {error.str()}")

    def _abort(self) -> None:
        with unwrapping():
            self._writers[self._mine].abort_transaction(CALL_SECONDS)

    def _renew(self) -> None:
        """Abort, and make a successor: a client whose records were refused numbers the next ones as if they were not, so that
        the broker refuses those too (librdkafka 2.16)."""
        self._abort()
        self._replace(self._mine)
        self._mine = next(self._turns)

    def _replace(self, name: str) -> None:
        """A new producer for an id of this lane. It fences a process that has taken the lane over just as well: so the lane's
        other producer commits a position once more, and is fenced where that process has its id (see `takeover.fence`)."""
        self._open(name, self._settings.destination.transaction_timeout_ms / 1_000)
        (other,) = (producer for known, producer in self._writers.items() if known != name)
        key, value = self._encode(next(iter(self.state.routes.values())))
        other.begin_transaction()
        other.produce(self._settings.checkpoint_topic, value, key)
        other.commit_transaction(CALL_SECONDS)

    def _close(self) -> None:
        """Abort what is open, so that readers need not wait for its time-out; let the clients go."""
        try:
            if self._mine in self._writers and self.failure is not None:
                self._abort()
        except KafkaException as exception:
            log.info("lane %d: abort: %s", self.state.number, exception.args[0])
        self._writers.clear()
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None


class OutOfRange(Exception):
    """The source does not hold the offset that comes next."""

    def __init__(self, message: str, topic: str | None, partition: int | None) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition
