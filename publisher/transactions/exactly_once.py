"""The transaction session: records and consumed offsets of a transaction become visible together, or not at all.

Scorers and relays publish through a session. A session has several transactional producers, and uses another one for each
transaction (`producer_pool.py` gives the reason). The tables in `state_machine.py` define its decisions.
"""

# A transaction whose outcome is unknown is decided by a successor of its producer: `init_transactions` with the same id returns
# only when the old transaction is committed or aborted. The committed offsets then show which of the two has happened. The
# session also replaces its idle producers by successors in three cases: after an unknown outcome, after a call that hangs, and
# after partitions were lost.
#
# A hanging call returns when a connection of its client changes. By default, a client that has lost all connections forgets the
# broker that the call waits for (librdkafka #5511), and the call may never return: each half-open connection cost 7 s and
# leaked a producer. Transactional producers therefore set `metadata.recovery.strategy: none`, and their successors connect to
# the bootstrap servers.
#
# A batch holds at most as many records as fit into one request of a partition (about 1 MB before compression), and producers
# linger for 100 ms. No caller waits for these 100 ms, because a commit flushes the producer. With larger batches or a shorter
# linger time, a second request of the partition may wait for the first one. librdkafka's thread may spin during such a wait
# (librdkafka #3692): for milliseconds, or as long as a broker does not answer. `scorer/worker/batching.py` allows this for
# feature records, because smaller batches cost more.

import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from math import inf
from typing import Any, TypeVar

from confluent_kafka import KafkaException, Producer, TopicPartition

from publisher.errors import Aborted, Fenced, RecordFailed
from publisher.kafka.clients import RETRY_BACKOFF_MS, unwrap_kafka_errors
from publisher.runtime.abandonable_call import CallThread
from publisher.runtime.context import Context
from publisher.transactions.counters import Counters
from publisher.transactions.ownership_check import OwnershipCheck
from publisher.transactions.producer_pool import CHECK_SECONDS, PooledProducer, ProducerPool
from publisher.transactions.rejected_records import RecordSender
from publisher.transactions.retrying_calls import CommitTiming, RetryingCalls, error_for
from publisher.transactions.session import Record
from publisher.transactions.state_machine import RECOVERIES, SessionState, SessionStep, advance, failure_step
from publisher.transactions.transactional_ids import CALL_SECONDS

log = logging.getLogger(__name__)

HANG_SECONDS = CALL_SECONDS + 2.0  # then a call is abandoned: send_offsets ignores its own timeout (librdkafka #5456)
SLOW_COMMIT_SECONDS = 0.75 * RETRY_BACKOFF_MS / 1_000  # from here on librdkafka may have sent EndTxn a second time
ABORT_SECONDS = 1.0  # after a rejected record an abort may wait in vain for the other records; a successor follows anyway

Produce = Callable[..., None]  # as `Producer.produce`
Write = Callable[[Produce], bool]
"""Writes the records of a transaction. Returns whether it has written any records."""
Failure = TypeVar("Failure", bound=Exception)


def _return_at_once(_: Context) -> None:
    pass


class TransactionSession:
    """Writes exactly once, one transaction after another; see `publisher.transactions.session.Session`. One thread owns it.

    A session that sends no offsets needs an `ownership_record`, and cannot recover if the outcome of a commit is unknown.

    Args:
        make_producer: returns a producer for a transactional id, not yet initialised.
        ids: the transactional ids, one for each producer.
        transaction_seconds: how long the session may repeat one call that fails.
        counters: the counters to continue; new ones by default.
        ownership_record: returns the record that the producers commit for the check in `ownership_check.py`; None for a session
            that sends offsets.
        producer_wait_seconds: how long the session waits for an initialised producer before it raises Retriable.
        slow_commit_seconds: after a commit of at least this duration, a new producer with the same id replaces the producer.
        hang_seconds: the time after which a call that has not returned is abandoned.
        context: the clock, and the check that the session calls while it waits for a broker.
        wait_until_decided: returns when no transaction is open in the topics that this session writes to
            (`wait_for_open_transactions.py`).
    """

    # If a session sends consumer offsets, the group coordinator fences it after another member has taken over. Other sessions
    # use `ownership_check.py`.

    sends_group = True

    def __init__(
        self,
        make_producer: Callable[[str], Producer],
        ids: Sequence[str],
        *,
        transaction_seconds: float,
        counters: Counters | None = None,
        ownership_record: Callable[[], Record] | None = None,
        producer_wait_seconds: float = inf,
        slow_commit_seconds: float = SLOW_COMMIT_SECONDS,
        hang_seconds: float = HANG_SECONDS,
        context: Context | None = None,
        wait_until_decided: Callable[[Context], None] = _return_at_once,
    ) -> None:
        self.counters = counters or Counters()
        self.state = SessionState.IDLE
        self._slow_commit_seconds = slow_commit_seconds
        self._hang_seconds = hang_seconds
        self._context = context or Context()
        self._wait_for_others = wait_until_decided
        self._clock = self._context.clock.monotonic
        self._pool = ProducerPool(make_producer, ids, self._context, producer_wait_seconds)
        self._active: PooledProducer | None = None
        self._commit_thread = CallThread("commit")
        self._pending_commit: Future[CommitTiming] | None = None
        self._calls = RetryingCalls(transaction_seconds, self._clock)
        self._ownership: OwnershipCheck | None = None
        if ownership_record is not None:
            self._ownership = OwnershipCheck(self._pool, self._calls, ownership_record, slow_commit_seconds)
        self._sender = RecordSender(self._clock)

    def open(self) -> None:
        """Wait until this session has taken over every transactional id. The constructor starts the take-over.

        Afterwards, every transaction that an earlier process had opened with these ids is committed or aborted.

        Raises:
            Fatal: if the broker rejects the initialisation of a producer.
            Retriable: if a producer is not initialised within `producer_wait_seconds`.
            Aborted: if another process has taken over an id.
            Exception: any error that `context.check` raises.
        """
        self._pool.wait_until_all_initialised()
        self._wait_until_decided()
        if self._ownership is not None:
            self._check_ownership(self._ownership.check_all)

    def publish(
        self,
        records: Iterable[Record],
        offsets: Sequence[TopicPartition] = (),
        group_metadata: Any = None,
        *,
        overlap: bool = False,
    ) -> None:
        """Publish the records and the group's `offsets` (next offset to read, with metadata) in one transaction.

        The records or the offsets may be empty. The call returns after the broker has confirmed the commit. If `overlap` is
        True, the call returns earlier, and a separate thread waits for the confirmation.

        Raises:
            Aborted: if the transaction must not commit, or if its outcome is unknown. After this error only `recover` is
                allowed.
            NotAllowed: if the broker's access control does not allow the transaction.
        """
        self.wait_for_publish()
        producer = self._begin()
        try:
            self._sender.send(producer, records)
        except Aborted as error:
            raise self._failed(error) from error.__cause__
        self._start_commit(producer, list(offsets), group_metadata)
        if not overlap:
            self.wait_for_publish()

    def write(self, write: Write) -> bool:
        """Publish the records that a function produces in one transaction.

        The function gets the method `produce` of a producer, and returns whether it has produced a record. Without a record,
        the transaction is aborted.

        Returns:
            Whether the transaction was committed.

        Raises:
            Aborted: in the same cases as `publish`. After this or any other error, only `recover` is allowed.
            NotAllowed: in the same cases as `publish`.
            Exception: any error that the function raises.
        """
        self.wait_for_publish()
        producer = self._begin()
        try:
            with unwrap_kafka_errors():
                written = write(producer.produce)
            if not written:
                self._calls.run(SessionStep.ABANDON, lambda: producer.abort_transaction(CALL_SECONDS))
        except KafkaException as exception:
            raise self._failed(error_for(SessionStep.PRODUCE, exception.args[0])) from exception
        except Exception as error:
            self._failed(error)
            raise
        if not written:
            self.state = advance(self.state, SessionStep.ABANDON)
            self._release_producer()
            return False
        self._start_commit(producer, [], None)
        self.wait_for_publish()
        return True

    def wait_for_publish(self) -> None:
        """Wait until the commit of the last `publish` or `write` has ended. Raises the same errors as `publish`."""
        if self._pending_commit is None:
            return
        began = self._clock()
        self.wait_for_commit()
        pending = self._pending_commit
        self._pending_commit = None
        if not pending.done():
            self._commit_thread.close()  # its thread ends, and releases the producer, if the call returns after all
            self._commit_thread = CallThread("commit")
            error = Aborted(f"a call to the broker has not returned for {self._hang_seconds:g} s")
            raise self._failed(error, SessionStep.HANG)
        try:
            timing = pending.result()
        except Aborted as error:
            raise self._failed(error)  # noqa: B904 - an error that is its own cause would keep its producer alive
        finally:
            del pending
        self._committed(self._clock() - began, timing)

    def wait_for_commit(self) -> None:
        """Wait until the pending commit has returned, or was abandoned because it hangs. Never raises.

        `wait_for_publish` reports a failure of the commit.
        """
        while self._pending_commit is not None and not wait([self._pending_commit], timeout=CHECK_SECONDS).done:
            if self._clock() - self._calls.began > self._hang_seconds:
                log.error("a call to the broker has not returned for %g s; the call is abandoned", self._hang_seconds)
                return

    def tick(self) -> None:
        """Do nothing: no work is due between two transactions."""

    def checkpoint(self) -> None:
        """Wait for the pending commit. Nothing else is due, because every transaction already contains the consumer offsets.

        Raises:
            Aborted: in the same cases as `wait_for_publish`.
        """
        self.wait_for_publish()

    def release(self, partitions: Iterable[TopicPartition], *, lost: bool) -> None:  # noqa: ARG002
        """Wait for the pending commit, so that the caller may release the partitions. Never raises.

        `lost` states that the partitions already belong to another member of the group.
        """
        # In this case the session replaces its idle producers by successors.
        self.wait_for_commit()
        if lost:
            self._pool.renew()

    def refresh_metadata(self, topics: Iterable[str]) -> None:
        """Refresh the producers' metadata of these topics. Raises the same errors as `ProducerPool.refresh_metadata`."""
        self._pool.refresh_metadata(topics)

    def recover(self) -> None:
        """Commit or abort the open transaction. The committed offsets then show which of the two has happened.

        Raises:
            Fatal: if the broker rejects the initialisation of a replaced producer's successor.
            Aborted: if this session has an ownership record, and the outcome of the transaction is unknown.
            Exception: any error that `context.check` raises.
        """
        # `RECOVERIES` has the steps for each failed state. A confirmed abort ends the transaction. Without one, the
        # initialisation of a successor with the same id ends it.
        with contextlib.suppress(Aborted):
            self.wait_for_publish()
        recovered = advance(self.state, SessionStep.RECOVER)
        recovery = RECOVERIES[self.state]
        if self._ownership is not None and not recovery.ids_stay_owned:
            raise Aborted(
                "the outcome of the last transaction is unknown, and another process may own the transactional ids; "
                "a new session must take over the ids"
            )
        decided = False
        if self._active is not None:
            pooled = self._active
            aborted = recovery.abort and self._abort(pooled.producer)
            decided = aborted and recovery.abort_decides
            if recovery.replace_producer or not aborted:
                pooled = self._pool.create_successor(pooled.name)
            if recovery.renew_pool:
                self._pool.renew()
            if not decided:
                self._pool.wait_until_initialised(pooled)
            self._pool.put(pooled)
            self._active = None
        if not decided:
            self._wait_until_decided()
        self.state = recovered

    def close(self) -> None:
        """Abort the open transaction and release the producers. Never raises."""
        # Without the abort, readers of committed records would have to wait until the transaction times out.
        with contextlib.suppress(Aborted):
            self.wait_for_publish()
        if self._active is not None and self.state is not SessionState.HUNG:
            self._abort(self._active.producer)
        self._active = None
        self._commit_thread.close()
        self._pool.close(CALL_SECONDS if self._ownership else 0.0)

    def _wait_until_decided(self) -> None:
        """Wait until the open transactions of other producers are committed or aborted."""
        # `open_since` includes this wait, so that the alert on the age of the open transaction covers it.
        self.counters.open_since = self.counters.open_since or self._clock()
        self._wait_for_others(self._context)
        self.counters.open_since = None

    def _begin(self) -> Producer:
        opened = advance(self.state, SessionStep.BEGIN)
        if self._ownership is not None:
            self._check_ownership(self._ownership.check_successors)
        self._active = self._pool.take()
        self.state = opened
        producer = self._active.producer
        self.counters.open_since = self._clock()
        try:
            self._calls.run(SessionStep.BEGIN, producer.begin_transaction)
        except Aborted as error:
            raise self._failed(error)  # noqa: B904 - as in `wait_for_publish`
        return producer

    def _check_ownership(self, check: Callable[[], None]) -> None:
        try:
            check()
        except RecordFailed as error:  # the record of the check is not among those that the caller would search
            raise self._failed(
                Aborted(f"the ownership check of the transactional ids failed, because its record was rejected: {error}")
            ) from error
        except Aborted as error:
            raise self._failed(error)  # noqa: B904 - as in `wait_for_publish`

    def _start_commit(self, producer: Producer, offsets: list[TopicPartition], group_metadata: Any) -> None:
        """Send the offsets and commit in the commit thread, so that the next batch is decoded and scored meanwhile."""
        # The next transaction begins only after this commit is confirmed. Otherwise it could commit offsets that skip the
        # events of a failed commit.
        if offsets:
            self.state = advance(self.state, SessionStep.SEND_OFFSETS)
        self.state = advance(self.state, SessionStep.COMMIT)
        self._calls.began = self._clock()
        self._pending_commit = self._commit_thread.submit(lambda: self._calls.commit(producer, offsets, group_metadata))

    def _failed(self, error: Failure, step: SessionStep | None = None) -> Failure:
        """Enter the failed state after `step`, and return `error`. If `step` is None, `failure_step` determines it."""
        step = step or failure_step(error, fenced_by_ids=self._ownership is not None)
        if step is SessionStep.REJECT:
            self._sender.enable_delivery_reports()
        self.state = advance(self.state, step)
        self.counters.fenced += isinstance(error, Fenced)
        self.counters.aborts += 1
        return error

    def _committed(self, waited: float, timing: CommitTiming) -> None:
        """Record a confirmed commit, and replace its producer if the commit was slow."""
        # librdkafka repeats an EndTxn request that is not answered within `retry.backoff.ms`. If the first request was only
        # late, the second request may commit half of the same producer's next transaction. The successor has the same id and a
        # new epoch, so the broker rejects requests of the old producer that are still in flight. Because `retry.backoff.ms` is
        # large, the duration of a commit shows whether the request may have been repeated.
        self.state = advance(self.state, SessionStep.COMMITTED)
        if self._ownership is not None:
            self._ownership.committed()
        self.counters.committed(waited, timing.seconds, timing.ending)
        if timing.ending >= self._slow_commit_seconds:
            assert self._active is not None
            self.counters.rotations += 1
            self._active = self._pool.create_successor(self._active.name)
        self._release_producer()

    def _release_producer(self) -> None:
        if self._active is not None:
            self._pool.put(self._active)
        self._active = None
        self.counters.open_since = None

    def _abort(self, producer: Producer) -> bool:
        """Abort the transaction. Return whether the broker confirmed it before librdkafka could repeat the request."""
        began = self._clock()
        try:
            with unwrap_kafka_errors():
                producer.abort_transaction(ABORT_SECONDS if self.state is SessionState.REJECTED else CALL_SECONDS)
        except KafkaException as exception:
            log.info("could not abort the transaction: %s", exception.args[0])
            return False
        return self._clock() - began < self._slow_commit_seconds
