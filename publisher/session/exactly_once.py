"""The transaction session: records and consumed offsets become visible together, or none of them does.

A pool of transactional producers is used in turn, one transaction each. The decisions are in `transaction_states.py`; this is
the thin part that calls librdkafka. Why there is a pool, and why a slow commit costs a producer its place, is told in README.md
of this package.
"""

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from functools import partial
from math import inf
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from publisher.errors import Aborted, Evicted, Fenced, NotAllowed, RecordRefused
from publisher.kafka.clients import RETRY_BACKOFF_MS
from publisher.kafka.error_codes import NOT_NOW
from publisher.session.call_thread import CallThread, call_apart
from publisher.session.protocol import Counters, Record
from publisher.session.refused_records import CAREFUL_SECONDS, RefusedRecords
from publisher.session.states import State, Step, Verdict, advance, verdict
from publisher.session.transactional_ids import CALL_SECONDS, initialised, transactional_ids

log = logging.getLogger(__name__)

HANG_SECONDS = CALL_SECONDS + 2.0  # send_offsets may ignore its own timeout for ever (librdkafka #5456, #5511)
CONFIRM_SECONDS = 0.05  # between looks whether a record was refused
LOOK_SECONDS = 0.5  # between looks at a call that may hang
RIGHTS_HINT = "it takes Write on the topics and on the transactional-id, and Read on the group"
REASONS = {Verdict.FENCED: Fenced, Verdict.EVICTED: Evicted, Verdict.UNFIT: RecordRefused}
SLOW_COMMIT_SECONDS = 0.75 * RETRY_BACKOFF_MS / 1_000  # from here on librdkafka may have sent EndTxn a second time


class TransactionSession:
    """Publishes batches exactly once, one transaction each; see `publisher.session.protocol.Session`. One thread owns it.

    `make_producer(transactional_id)` gives a producer that is not initialised. `transaction_seconds` is the transaction
    timeout: how long one step may repeat its call. A commit of `slow_commit_seconds` or more costs its producer its place. One
    whose call has not returned after `hang_seconds` is given up. `waiting` is called now and then while brokers are away; where
    it raises Aborted, they are not waited for any longer. `decided(waiting)` returns when no transaction is open any more where
    this one writes (`open_transactions.py`). `clock` is monotonic, in seconds.
    """

    transactional = True

    def __init__(
        self,
        make_producer: Callable[[str], Producer],
        prefix: str,
        *,
        transaction_seconds: float,
        slow_commit_seconds: float = SLOW_COMMIT_SECONDS,
        hang_seconds: float = HANG_SECONDS,
        waiting: Callable[[], None] = lambda: None,
        decided: Callable[[Callable[[], None]], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counters = Counters()
        self.ids = transactional_ids(prefix)
        self.state = State.IDLE
        self._make_producer = make_producer
        self._transaction_seconds = transaction_seconds
        self._slow_commit_seconds = slow_commit_seconds
        self._hang_seconds = hang_seconds
        self._waiting = waiting
        self._decided = decided
        self._clock = clock
        self._closing = threading.Event()
        self._pool = deque((name, self._successor(name)) for name in self.ids)
        self._active: tuple[str, Future[Producer]] | None = None
        self._sealer = CallThread("seal")
        self._sealed: Future[float] | None = None
        self._call_began = 0.0
        self._hung = False
        self._doubtful = self._unfit = False
        self._refused = RefusedRecords()
        self._careful_until = float("-inf")

    def open(self) -> None:
        """Wait until every id of the pool is initialised (which began with the construction): whatever a predecessor left
        open under them is decided from here on. Raises Fatal where the broker refuses, Aborted where `waiting` did.
        """
        for _, producer in self._pool:
            self._await(producer)
        self._wait_until_decided()

    def publish(
        self,
        records: Iterable[Record],
        offsets: Sequence[TopicPartition] = (),
        group_metadata: Any = None,
        *,
        overlap: bool = False,
    ) -> None:
        """One atomic step: the records, and the positions `offsets` (next offset to read, with metadata) of the group.

        Either may be empty: what moves no group sends no offsets. Returns once the broker has confirmed the commit, or, with
        `overlap`, while another thread waits for that. Raises Aborted, of any kind, where the transaction must not commit or
        nobody knows whether it did; then only `recover` is allowed. Raises NotAllowed where the broker does not let it.
        """
        self.settle()
        producer = self._begin()
        self._produce(producer, records)
        steps: list[tuple[Step, Callable[[], None]]] = []
        if offsets:
            sent = list(offsets)
            steps.append((Step.SEND_OFFSETS, lambda: producer.send_offsets_to_transaction(sent, group_metadata, CALL_SECONDS)))
        steps.append((Step.COMMIT, lambda: producer.commit_transaction(CALL_SECONDS)))
        for step, _ in steps:
            self.state = advance(self.state, step)
        self._call_began = self._clock()
        self._sealed = self._sealer.submit(lambda: self._seal(steps))
        if not overlap:
            self.settle()

    def settle(self) -> None:
        """Wait for a commit that `publish` left to the other thread. Raises Aborted or Fenced as `publish` does."""
        if self._sealed is None:
            return
        began = self._clock()
        self.decide()
        sealed, self._sealed = self._sealed, None
        if not sealed.done():
            self._sealer.close()  # its thread ends, and lets go of the producer, should the call return
            self._sealer = CallThread("seal")
            self._hung = True
            raise self._failed(Aborted(f"a call to the broker has not returned for {self._hang_seconds:g} s"))
        try:
            seconds = sealed.result()
        except Aborted as error:
            raise self._failed(error) from error
        self._finish(self._clock() - began, seconds)

    def decide(self) -> None:
        """Wait until that commit is decided, or is given up: `settle` tells. Never raises."""
        while self._sealed is not None and not wait([self._sealed], timeout=LOOK_SECONDS).done:
            if self._clock() - self._call_began > self._hang_seconds:
                log.error("a call to the broker has not returned for %g s: going on without it", self._hang_seconds)
                return

    def tick(self) -> None:
        """Nothing is due between two transactions."""

    def checkpoint(self) -> None:
        """Every publish has been one. Raises Aborted as `settle` does."""
        self.settle()

    def release(self, partitions: Iterable[TopicPartition], *, lost: bool) -> None:  # noqa: ARG002
        """A batch is never half-published: what is being committed is decided before the partitions go. Never raises."""
        self.decide()
        if lost:
            self._renew()

    def recover(self) -> None:
        """Make sure that the open transaction is decided: aborted where the group or a record was refused, else by a successor
        with the same id. After this the committed offsets tell what is visible. Raises Fatal where no successor can be made,
        Aborted where `waiting` did."""
        with contextlib.suppress(Aborted):
            self.settle()
        decided = False
        if self._active is not None:
            name, producer = self._active
            self.counters.aborts += 1
            aborted = not self._hung and self._abort(producer.result())
            decided = aborted and self._unfit
            if self._doubtful or self._unfit or not aborted:  # librdkafka may skip sequence numbers after a refused record
                producer = self._successor(name)
            if self._doubtful:
                self._renew()
            if not decided:
                self._await(producer)
            self._pool.append((name, producer))
            self._active, self._hung = None, False
        if not decided:
            self._wait_until_decided()
        self.state = advance(self.state, Step.RECOVER)

    def close(self) -> None:
        """Abort what is open, then let the producers go. Never raises."""
        self._closing.set()
        with contextlib.suppress(Aborted):
            self.settle()
        if self._active is not None and not self._hung:
            self._abort(self._active[1].result())
        self._active = None
        self._sealer.close()
        self._pool.clear()

    def _wait_until_decided(self) -> None:
        """What is waited for counts as open, for those who watch its age. Raises Aborted where `waiting` does."""
        self.counters.open_since = self.counters.open_since or self._clock()
        self._decided(self._waiting)
        self.counters.open_since = None

    def _renew(self) -> None:
        """Successors for the producers that wait: one that has lived through a broker's death may hang in its next call."""
        self._pool = deque((name, self._successor(name) if made.done() else made) for name, made in self._pool)

    def _take_ready(self) -> tuple[str, Future[Producer]]:
        """The next producer in turn that is initialised; the first to be so where none is."""
        for _ in range(len(self._pool)):
            if self._pool[0][1].done():
                break
            self._pool.rotate(-1)
        self._await(self._pool[0][1])
        return self._pool.popleft()

    def _await(self, producer: Future[Producer]) -> None:
        """Return when it is initialised. Raises Fatal where it cannot be, Aborted where `waiting` does."""
        while not wait([producer], timeout=LOOK_SECONDS).done:
            self._waiting()
        producer.result()

    def _begin(self) -> Producer:
        begun = advance(self.state, Step.BEGIN)
        self._active = self._take_ready()
        self.state = begun
        producer = self._active[1].result()
        self.counters.open_since = self._clock()
        try:
            self._call(Step.BEGIN, producer.begin_transaction)
        except Aborted as error:
            raise self._failed(error) from error
        return producer

    def _seal(self, steps: Iterable[tuple[Step, Callable[[], None]]]) -> float:
        """In the other thread: the calls that wait for the broker, the commit last; the seconds that this one took."""
        for step, call in steps:
            began = self._clock()
            self._call(step, call)
        return self._clock() - began

    def _call(self, step: Step, call: Callable[[], None]) -> None:
        """Make a call, again where `verdict` says so and the transaction timeout is not over. Raises Aborted or Fenced."""
        deadline = self._clock() + self._transaction_seconds
        while True:
            self._call_began = self._clock()
            try:
                return call()
            except KafkaException as exception:
                error = exception.args[0]
                answer = verdict(step, error)
                log.warning("%s failed: %s (%s)", step.value, error, answer.name.lower())
                if answer is Verdict.REPEAT and self._clock() < deadline:
                    continue
                if answer is Verdict.REFUSED:
                    raise NotAllowed(f"the broker does not allow to {step.value}: {error}", RIGHTS_HINT) from exception
                raise REASONS.get(answer, Aborted)(str(error)) from exception

    def _failed(self, error: Aborted) -> Aborted:
        """The transaction is in doubt, because of this error; and so is the whole pool, unless only the group has refused, or
        the broker one of its records: the next transactions have each record reported on."""
        self._unfit = isinstance(error, RecordRefused)
        self._doubtful = not self._unfit and not isinstance(error, Evicted)
        if self._unfit:
            self._careful_until = self._clock() + CAREFUL_SECONDS
        self.state = advance(self.state, Step.FAIL)
        self.counters.fenced += isinstance(error, Fenced)
        return error

    def _produce(self, producer: Producer, records: Iterable[Record]) -> None:
        produce = producer.produce
        refused = self._refused = RefusedRecords()
        careful = self._clock() < self._careful_until
        record: Record | None = None
        try:
            for record in records:
                topic, value, key, partition, timestamp, headers = record
                report = partial(self._report, refused, record) if careful else None
                try:
                    produce(topic, value, key, partition, report, None, timestamp, headers)
                except BufferError:
                    producer.poll(CALL_SECONDS)
                    produce(topic, value, key, partition, report, None, timestamp, headers)
        except (BufferError, KafkaException) as error:
            if record is not None and isinstance(error, KafkaException):
                refused.note(record, error.args[0])
                if error.args[0] in NOT_NOW:  # one that was sent before has failed: its report says why
                    self._careful_until = self._clock() + CAREFUL_SECONDS
                    if careful:
                        producer.flush(CONFIRM_SECONDS)
            raise self._failed(refused.error() if refused else Aborted(f"could not produce: {error}")) from error
        if careful:
            self._confirm(producer)

    @staticmethod
    def _report(refused: RefusedRecords, record: Record, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.note(record, error)

    def _confirm(self, producer: Producer) -> None:
        """Return once the broker has taken every record, or does not say so in time: the commit tells then. A commit that meets
        a refusal waits for the records behind it, which are not sent any more, until its call is over."""
        deadline = self._clock() + CALL_SECONDS
        while producer.flush(CONFIRM_SECONDS) and not self._refused and self._clock() < deadline:
            self._call_began = self._clock()
        if self._refused:
            raise self._failed(self._refused.error())

    def _finish(self, waited: float, seconds: float) -> None:
        """After a confirmed commit: the producer waits for its next turn, or a successor takes its place."""
        assert self._active is not None
        name, producer = self._active
        self._active = self.counters.open_since = None
        self.state = advance(self.state, Step.COMMITTED)
        self.counters.committed(waited, seconds)
        if seconds >= self._slow_commit_seconds:
            self.counters.rotations += 1
            producer = self._successor(name)
        self._pool.append((name, producer))

    def _abort(self, producer: Producer) -> bool:
        """Whether the broker has confirmed it, and librdkafka cannot have sent it a second time; else a successor decides."""
        began = self._clock()
        try:
            producer.abort_transaction(CALL_SECONDS)
        except KafkaException as exception:
            log.info("abort: %s", exception.args[0])
            return False
        return self._clock() - began < self._slow_commit_seconds

    def _successor(self, name: str) -> Future[Producer]:
        """Brokers that are away are waited for. In a thread that does not keep a process from ending meanwhile."""
        return call_apart("producer-init", lambda: initialised(self._make_producer, name, self._clock, self._closing, inf))
