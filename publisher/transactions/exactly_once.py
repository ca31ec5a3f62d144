"""The transaction session: what is written in a transaction becomes visible together, consumed offsets included, or not at all.

Transactional producers are used in turn, one transaction each. Scorers and relay workers publish through it. The decisions are
in `state_machine.py`. `publisher/README.md` explains why there are several producers and why a slow commit retires one.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from math import inf
from typing import Any, TypeVar

from confluent_kafka import KafkaException, Producer, TopicPartition

from publisher.errors import Aborted, Evicted, Fenced, RecordFailed, RecordRejected
from publisher.kafka.clients import RETRY_BACKOFF_MS, unwrap_kafka_errors
from publisher.runtime.abandonable_call import CallThread
from publisher.transactions.ownership_check import OwnershipCheck
from publisher.transactions.producer_pool import LOOK_SECONDS, PooledProducer, ProducerPool
from publisher.transactions.protocol import Counters, Record
from publisher.transactions.rejected_records import RecordSender
from publisher.transactions.retrying_calls import CommitTiming, RetryingCalls, reason
from publisher.transactions.state_machine import SessionState, SessionStep, advance
from publisher.transactions.transactional_ids import CALL_SECONDS

log = logging.getLogger(__name__)

HANG_SECONDS = CALL_SECONDS + 2.0  # send_offsets does not heed its own timeout (librdkafka #5456)
SLOW_COMMIT_SECONDS = 0.75 * RETRY_BACKOFF_MS / 1_000  # from here on librdkafka may have sent EndTxn a second time
ABORT_SECONDS = 1.0  # where a record was refused, an abort may wait in vain for others: a successor is made in any case

Produce = Callable[..., None]  # as `Producer.produce`
Write = Callable[[Produce], bool]
"""Writes the records of a transaction; whether there are any."""
Failure = TypeVar("Failure", bound=Exception)


class TransactionSession:
    """Writes exactly once, one transaction after another; see `publisher.transactions.protocol.Session`. One thread owns it.

    `make_producer(transactional_id)` gives a producer that is not initialised, for each of `ids`. `transaction_seconds`: how
    long one step may repeat its call; `patience`: how long a producer is waited for. A commit of `slow_commit_seconds` costs
    its producer its place; a call that has not returned after `hang_seconds` is given up. `waiting` is called now and then
    while brokers are away, and may raise. `decided(waiting)` returns when no transaction is open any more where this one writes
    (`wait_for_decided.py`). `clock` is monotonic, in seconds.

    Offsets are fenced by their group. Who sends none gives a `proof`: a record by which producers show that their ids are still
    the session's own (`ownership_check.py`). Such a session is over when nobody knows what became of a transaction.
    """

    sends_group = True

    def __init__(
        self,
        make_producer: Callable[[str], Producer],
        ids: Sequence[str],
        *,
        transaction_seconds: float,
        counters: Counters | None = None,
        proof: Callable[[], Record] | None = None,
        patience: float = inf,
        slow_commit_seconds: float = SLOW_COMMIT_SECONDS,
        hang_seconds: float = HANG_SECONDS,
        waiting: Callable[[], None] = lambda: None,
        decided: Callable[[Callable[[], None]], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counters = counters or Counters()
        self.state = SessionState.IDLE
        self._slow_commit_seconds = slow_commit_seconds
        self._hang_seconds = hang_seconds
        self._waiting = waiting
        self._decided = decided
        self._clock = clock
        self._pool = ProducerPool(make_producer, ids, waiting, patience, clock)
        self._active: PooledProducer | None = None
        self._sealer = CallThread("seal")
        self._sealed: Future[CommitTiming] | None = None
        self._calls = RetryingCalls(transaction_seconds, clock)
        self._proof = OwnershipCheck(self._pool, self._calls, proof, slow_commit_seconds) if proof else None
        self._producing = RecordSender(clock)
        self._hung = self._doubtful = self._unfit = False

    def open(self) -> None:
        """Wait until every id is taken over, which began with the construction: what a predecessor left open is decided then.
        Raises Fatal where the broker refuses, Retriable after `patience`, Aborted where another process has an id, and what
        `waiting` does."""
        self._pool.all_ready()
        self._wait_until_decided()
        if self._proof is not None:
            self._prove(self._proof.begin)

    def publish(
        self,
        records: Iterable[Record],
        offsets: Sequence[TopicPartition] = (),
        group_metadata: Any = None,
        *,
        overlap: bool = False,
    ) -> None:
        """One atomic step: the records, and the positions `offsets` (next offset to read, with metadata) of the group.

        Either may be empty. Returns once the broker has confirmed the commit, or, with `overlap`, while another thread waits
        for that. Raises Aborted, of any kind, where the transaction must not commit or nobody knows whether it did; then only
        `recover` is allowed. Raises NotAllowed where the broker does not let it."""
        self.settle()
        producer = self._begin()
        try:
            self._producing.produce(producer, records)
        except Aborted as error:
            raise self._failed(error) from error.__cause__
        self._commit(producer, list(offsets), group_metadata)
        if not overlap:
            self.settle()

    def write(self, write: Write) -> bool:
        """One atomic step: what `write(produce)` writes; False where that is nothing. Raises as `publish` does, and what
        `write` raises: then only `recover` is allowed."""
        self.settle()
        producer = self._begin()
        try:
            with unwrap_kafka_errors():
                written = write(producer.produce)
            if not written:
                self._calls.make(SessionStep.ABANDON, lambda: producer.abort_transaction(CALL_SECONDS))
        except KafkaException as exception:
            raise self._failed(reason(SessionStep.PRODUCE, exception.args[0])) from exception
        except Exception as error:
            self._failed(error)
            raise
        if not written:
            self.state = advance(self.state, SessionStep.ABANDON)
            self._rest()
            return False
        self._commit(producer, [], None)
        self.settle()
        return True

    def settle(self) -> None:
        """Wait for a commit that `publish` left to the other thread. Raises as `publish` does."""
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
            took = sealed.result()
        except Aborted as error:
            raise self._failed(error)  # noqa: B904 - the same error: a cause of itself would keep its producer alive
        finally:
            del sealed
        self._finish(self._clock() - began, took)

    def decide(self) -> None:
        """Wait until that commit is decided, or is given up: `settle` tells. Never raises."""
        while self._sealed is not None and not wait([self._sealed], timeout=LOOK_SECONDS).done:
            if self._clock() - self._calls.began > self._hang_seconds:
                log.error("a call to the broker has not returned for %g s: going on without it", self._hang_seconds)
                return

    def tick(self) -> None:
        """Nothing is due between two transactions."""

    def checkpoint(self) -> None:
        """Every publish has been one. Raises Aborted as `settle` does."""
        self.settle()

    def release(self, partitions: Iterable[TopicPartition], *, lost: bool) -> None:  # noqa: ARG002
        """What is being committed is decided before the partitions go. Never raises."""
        self.decide()
        if lost:
            self._pool.renew()

    def learn(self, topics: Iterable[str]) -> None:
        """Partitions of these topics may have come: see that they are written to. Raises as `ProducerPool.learn` does."""
        self._pool.learn(topics)

    def recover(self) -> None:
        """Make sure that the open transaction is decided: aborted where the group or a record was refused, else by a successor
        with the same id. After this the committed offsets tell what is visible. Raises Fatal where no successor can be made,
        and what `waiting` does; Aborted where only the ids fence this session, and nobody knows what became of it."""
        with contextlib.suppress(Aborted):
            self.settle()
        decided = False
        if self._proof is not None and not self._unfit:
            raise Aborted("nobody knows what became of the last transaction: take the ids over anew")
        if self._active is not None:
            turn = self._active
            aborted = not self._hung and self._abort(turn.producer)
            decided = aborted and self._unfit
            if self._doubtful or self._unfit or not aborted:  # librdkafka may skip sequence numbers after a refused record
                turn = self._pool.successor(turn.name)
            if self._doubtful:
                self._pool.renew()
            if not decided:
                self._pool.ready(turn)
            self._pool.put(turn)
            self._active, self._hung = None, False
        if not decided:
            self._wait_until_decided()
        self.state = advance(self.state, SessionStep.RECOVER)

    def close(self) -> None:
        """Abort what is open, so that readers need not wait for its time-out; then let the producers go. Never raises."""
        with contextlib.suppress(Aborted):
            self.settle()
        if self._active is not None and not self._hung:
            self._abort(self._active.producer)
        self._active = None
        self._sealer.close()
        self._pool.close(CALL_SECONDS if self._proof else 0.0)

    def _wait_until_decided(self) -> None:
        """What is waited for counts as open, for those who watch its age. Raises what `waiting` does."""
        self.counters.open_since = self.counters.open_since or self._clock()
        self._decided(self._waiting)
        self.counters.open_since = None

    def _begin(self) -> Producer:
        begun = advance(self.state, SessionStep.BEGIN)
        if self._proof is not None:
            self._prove(self._proof.renew)
        self._active = self._pool.take()
        self.state = begun
        producer = self._active.producer
        self.counters.open_since = self._clock()
        try:
            self._calls.make(SessionStep.BEGIN, producer.begin_transaction)
        except Aborted as error:
            raise self._failed(error)  # noqa: B904 - as in `settle`
        return producer

    def _prove(self, step: Callable[[], None]) -> None:
        try:
            step()
        except RecordFailed as error:  # it is not among the records that somebody would search
            raise self._failed(Aborted(f"the proof was not taken: {error}")) from error
        except Aborted as error:
            raise self._failed(error)  # noqa: B904 - as in `settle`

    def _commit(self, producer: Producer, offsets: list[TopicPartition], group_metadata: Any) -> None:
        """Leave the calls that wait for the broker to the other thread."""
        if offsets:
            self.state = advance(self.state, SessionStep.SEND_OFFSETS)
        self.state = advance(self.state, SessionStep.COMMIT)
        self._calls.began = self._clock()
        self._sealed = self._sealer.submit(lambda: self._calls.seal(producer, offsets, group_metadata))

    def _failed(self, error: Failure) -> Failure:
        """The transaction is in doubt, because of this error; and so is the whole pool, unless only the group has refused, or
        the broker one of its records: the next transactions have each record reported on."""
        self._unfit = isinstance(error, RecordFailed if self._proof else RecordRejected)
        self._doubtful = not self._unfit and not isinstance(error, Evicted)
        if self._unfit:
            self._producing.enable_delivery_reports()
        self.state = advance(self.state, SessionStep.FAIL)
        self.counters.fenced += isinstance(error, Fenced)
        self.counters.aborts += 1
        return error

    def _finish(self, waited: float, took: CommitTiming) -> None:
        """After a confirmed commit: the producer waits for its next turn, or a successor takes its place."""
        self.state = advance(self.state, SessionStep.COMMITTED)
        if self._proof is not None:
            self._proof.committed()
        self.counters.committed(waited, took.seconds, took.ending)
        if took.ending >= self._slow_commit_seconds:
            assert self._active is not None
            self.counters.rotations += 1
            self._active = self._pool.successor(self._active.name)
        self._rest()

    def _rest(self) -> None:
        if self._active is not None:
            self._pool.put(self._active)
        self._active = self.counters.open_since = None

    def _abort(self, producer: Producer) -> bool:
        """Whether the broker has confirmed it, and librdkafka cannot have sent it a second time; else a successor decides."""
        began = self._clock()
        try:
            with unwrap_kafka_errors():
                producer.abort_transaction(ABORT_SECONDS if self._unfit else CALL_SECONDS)
        except KafkaException as exception:
            log.info("abort: %s", exception.args[0])
            return False
        return self._clock() - began < self._slow_commit_seconds
