"""The transaction session: records and consumed offsets become visible together, or none of them does.

A pool of transactional producers is used in turn, one transaction each. The pure part is `TRANSITIONS` (the states as a
table) and `verdict` (what an error means at a step); `TransactionSession` is the thin part that calls librdkafka. Why there is
a pool, and why a slow commit costs a producer its place, is told in README.md of this package.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from enum import Enum
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from publisher.errors import Aborted, Fatal, Fenced
from publisher.kafka import RETRY_BACKOFF_MS
from publisher.session import Counters, Record

log = logging.getLogger(__name__)

POOL_SIZE = 3
CALL_SECONDS = 5.0  # one call of librdkafka; a step repeats it up to the transaction timeout
INIT_SECONDS = 120.0  # a coordinator that loads its log, or an old transaction that is still being decided
SLOW_COMMIT_SECONDS = 0.75 * RETRY_BACKOFF_MS / 1_000  # from here on librdkafka may have sent EndTxn a second time


class State(Enum):
    """Where the session stands between two calls."""

    IDLE = "idle"
    OPEN = "open"
    OFFSETS = "offsets sent"
    COMMITTING = "committing"
    BROKEN = "broken"


class Step(Enum):
    """What the session is asked to do next, or what befell it."""

    BEGIN = "begin"
    SEND_OFFSETS = "send offsets"
    COMMIT = "commit"
    COMMITTED = "committed"
    FAIL = "fail"
    RECOVER = "recover"


TRANSITIONS: dict[tuple[State, Step], State] = {
    (State.IDLE, Step.BEGIN): State.OPEN,
    (State.OPEN, Step.SEND_OFFSETS): State.OFFSETS,
    (State.OPEN, Step.COMMIT): State.COMMITTING,
    (State.OFFSETS, Step.COMMIT): State.COMMITTING,
    (State.COMMITTING, Step.COMMITTED): State.IDLE,
    **{(state, Step.FAIL): State.BROKEN for state in State},
    **{(state, Step.RECOVER): State.IDLE for state in (State.IDLE, State.BROKEN)},
}


def advance(state: State, step: Step) -> State:
    """The state after `step`. Raises RuntimeError for a step that the table does not have: a bug of the caller."""
    try:
        return TRANSITIONS[state, step]
    except KeyError:
        raise RuntimeError(f"the transaction session cannot {step.value!r} while it is {state.value!r}") from None


class Verdict(Enum):
    """What an error at a step asks for."""

    REPEAT = "the same call again"
    RECOVER = "abort, and go on from the committed offsets"
    FENCED = "as RECOVER; another producer has this transactional.id"
    GIVE_UP = "no repetition will help"


FENCED_CODES = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})
INIT_REPEATED_CODES = frozenset(
    {
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._STATE,
    }
)


def verdict(step: Step, error: KafkaError) -> Verdict:
    """What to do about `error` at `step`.

    Only a commit is repeated: repeating send_offsets after a transport error led to wrong states and once to a call that
    never returned (librdkafka #5456, #5511), so everything there recovers at once.
    """
    if step is Step.RECOVER:  # init_transactions
        if error.retriable() or error.code() in INIT_REPEATED_CODES:
            return Verdict.REPEAT
        return Verdict.FENCED if error.code() in FENCED_CODES else Verdict.GIVE_UP
    if error.code() in FENCED_CODES:
        return Verdict.FENCED
    if step is Step.COMMIT and error.retriable() and not error.fatal() and not error.txn_requires_abort():
        return Verdict.REPEAT
    return Verdict.RECOVER


class TransactionSession:
    """Publishes batches exactly once, one transaction each; see `publisher.session.Session`. One thread owns it.

    `make_producer(transactional_id)` gives a producer that is not initialised. `transaction_seconds` is the transaction
    timeout: how long one step may repeat its call. A commit of `slow_commit_seconds` or more costs its producer its place.
    `clock` is monotonic, in seconds.
    """

    transactional = True

    def __init__(
        self,
        make_producer: Callable[[str], Producer],
        prefix: str,
        *,
        transaction_seconds: float,
        slow_commit_seconds: float = SLOW_COMMIT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counters = Counters()
        self.ids = transactional_ids(prefix)
        self.state = State.IDLE
        self._make_producer = make_producer
        self._transaction_seconds = transaction_seconds
        self._slow_commit_seconds = slow_commit_seconds
        self._clock = clock
        self._makers = ThreadPoolExecutor(POOL_SIZE, thread_name_prefix="producer-init")
        self._closing = threading.Event()
        self._pool = deque((name, self._successor(name)) for name in self.ids)
        self._active: tuple[str, Future[Producer]] | None = None

    def open(self) -> None:
        """Wait until every id of the pool is initialised (which began with the construction): whatever a predecessor left
        open under them is decided from here on. Raises Fatal where the broker refuses or does not answer.
        """
        for _, producer in self._pool:
            producer.result()

    def publish(self, records: Iterable[Record], offsets: Sequence[TopicPartition] = (), group_metadata: Any = None) -> None:
        """One atomic step: the records, and the positions `offsets` (next offset to read, with metadata) of the group.

        Either may be empty: what moves no group sends no offsets. Returns once the broker has confirmed the commit. Raises
        Aborted or Fenced where the transaction must not commit or nobody knows whether it did; then only `recover` is allowed.
        """
        self._active = self._take_ready()
        producer = self._active[1].result()
        self._step(Step.BEGIN, producer.begin_transaction)
        self._produce(producer, records)
        if offsets:
            self._step(Step.SEND_OFFSETS, producer.send_offsets_to_transaction, list(offsets), group_metadata, CALL_SECONDS)
        began = self._clock()
        self._step(Step.COMMIT, producer.commit_transaction, CALL_SECONDS)
        self._finish(self._clock() - began)

    def tick(self) -> None:
        """Nothing is due between two transactions."""

    def checkpoint(self) -> None:
        """Every publish has been one."""

    def release(self, partitions: Iterable[TopicPartition], *, lost: bool) -> None:
        """A batch is never half-published, so there is nothing to commit or to give up."""

    def recover(self) -> None:
        """Make sure that the open transaction is decided, by a successor with the same id: after this the committed offsets
        tell what is visible. Raises Fatal where no successor can be made."""
        if self._active is not None:
            name, old = self._active
            self.counters.aborts += 1
            self._abort(old.result())
            replacement = self._successor(name)
            replacement.result()
            self._pool.append((name, replacement))
            self._active = None
        self.state = advance(self.state, Step.RECOVER)

    def close(self) -> None:
        """Abort what is open, then let the producers go. Never raises."""
        self._closing.set()
        if self._active is not None:
            self._abort(self._active[1].result())
        self._active = None
        self._makers.shutdown(wait=False, cancel_futures=True)
        self._pool.clear()

    def _take_ready(self) -> tuple[str, Future[Producer]]:
        """The next producer in turn that is initialised; the first to be so where none is."""
        for _ in range(len(self._pool)):
            if self._pool[0][1].done():
                break
            self._pool.rotate(-1)
        name, producer = self._pool.popleft()
        producer.result()
        return name, producer

    def _step(self, step: Step, call: Callable[..., None], *arguments: Any) -> None:
        """Make one call of a transaction, again where `verdict` says so and the transaction timeout is not over."""
        self.state = advance(self.state, step)
        deadline = self._clock() + self._transaction_seconds
        while True:
            try:
                return call(*arguments)
            except KafkaException as exception:
                error = exception.args[0]
                answer = verdict(step, error)
                log.warning("%s failed: %s (%s)", step.value, error, answer.name.lower())
                if answer is Verdict.REPEAT and self._clock() < deadline:
                    continue
                self.state = advance(self.state, Step.FAIL)
                if answer is Verdict.FENCED:
                    self.counters.fenced += 1
                    raise Fenced(str(error)) from exception
                raise Aborted(str(error)) from exception

    def _produce(self, producer: Producer, records: Iterable[Record]) -> None:
        produce = producer.produce
        try:
            for record in records:
                topic, value, key, partition, timestamp, headers = record
                try:
                    produce(topic, value, key, partition, None, None, timestamp, headers)
                except BufferError:
                    producer.poll(CALL_SECONDS)
                    produce(topic, value, key, partition, None, None, timestamp, headers)
        except (BufferError, KafkaException) as error:
            self.state = advance(self.state, Step.FAIL)
            raise Aborted(f"could not produce: {error}") from error

    def _finish(self, seconds: float) -> None:
        """After a confirmed commit: the producer waits for its next turn, or a successor takes its place."""
        assert self._active is not None
        name, producer = self._active
        self._active = None
        self.state = advance(self.state, Step.COMMITTED)
        self.counters.committed(seconds)
        if seconds >= self._slow_commit_seconds:
            self.counters.rotations += 1
            producer = self._successor(name)
        self._pool.append((name, producer))

    def _abort(self, producer: Producer) -> None:
        try:
            producer.abort_transaction(CALL_SECONDS)
        except KafkaException as exception:  # the successor's init_transactions decides
            log.info("abort: %s", exception.args[0])

    def _successor(self, name: str) -> Future[Producer]:
        return self._makers.submit(self._make_ready, name)

    def _make_ready(self, name: str) -> Producer:
        producer = self._make_producer(name)
        initialise(producer, name, self._clock, self._closing)
        return producer


def transactional_ids(prefix: str) -> list[str]:
    """The ids of the pool of the process whose owner id is `prefix`."""
    return [f"{prefix}.{k}" for k in range(POOL_SIZE)]


def initialise(
    producer: Producer,
    name: str,
    clock: Callable[[], float],
    closing: threading.Event,
    seconds: float = INIT_SECONDS,
) -> None:
    """init_transactions until it succeeds: fences every other producer of this id and decides what it left open.

    Raises Fatal where repeating cannot help or `seconds` are over.
    """
    deadline = clock() + seconds
    while True:
        try:
            return producer.init_transactions(CALL_SECONDS)
        except KafkaException as exception:
            error = exception.args[0]
            if verdict(Step.RECOVER, error) is not Verdict.REPEAT or clock() > deadline or closing.is_set():
                raise Fatal(
                    f"the broker does not let transactional.id {name!r} begin: {error}",
                    "check the broker and the right to write with this transactional.id",
                ) from exception
            closing.wait(0.02)
