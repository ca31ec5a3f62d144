"""Publish the transactions of a copying thread: records and the checkpoints after them, atomically.

The writer owns the thread's transaction session. It does not read the source, and does not decide what happens after a rejected
transaction.
"""

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from confluent_kafka import KafkaException

from publisher.errors import Aborted, NotAllowed, RecordFailed, RecordRejected
from publisher.relay.clients import CHECK_HINT
from publisher.relay.clusters import open_session
from publisher.relay.dead_letter import TransactionRejected
from publisher.relay.rate_limit import RateLimit
from publisher.relay.relay_state import LaneState
from publisher.relay.settings import RelaySettings
from publisher.relay.transform import Route
from publisher.runtime.context import Context
from publisher.transactions.exactly_once import Produce, TransactionSession
from publisher.transactions.session import Record

CHECKPOINT_SECONDS = 1.0  # between transactions without copies: positions also advance past markers and filtered records
SEEN_SECONDS = 5.0  # the greatest age of the last confirmed topic ids when a transaction begins; a busy broker needs 2 s
USUAL_COMMIT_SECONDS = 0.005
LONGEST_REST_SECONDS = 0.050  # after a small transaction, because every transaction is work for the broker
SMALL = 500  # a transaction of fewer records is small

Fill = Callable[[Produce], tuple[int, int]]
"""Produces the records of a transaction; returns how many source records were read, and the bytes of their values."""


def rest_after(commit_seconds: float) -> float:
    """Return how long a copying thread waits after a small transaction whose commit took `commit_seconds`.

    At most LONGEST_REST_SECONDS.
    """
    # The wait prevents many threads from overloading the broker. It is as long as the commit, if the commit took at most
    # USUAL_COMMIT_SECONDS. A slower commit shows that the broker is busy, so the wait grows faster: after three times
    # USUAL_COMMIT_SECONDS, the wait is three times as long as the commit.
    return min(commit_seconds * max(1.0, commit_seconds / USUAL_COMMIT_SECONDS), LONGEST_REST_SECONDS)


@dataclass(frozen=True)
class WorkerContext:
    """The values that the copy workers of one run share.

    Attributes:
        settings: the settings of the relay.
        checkpoint: returns the checkpoint record of a route.
        topics_checked_at: returns when the topic ids were last confirmed to be unchanged (monotonic seconds).
        context: the clock, and the check that is called during waits for a broker.
        wait_until_decided: returns when no transaction is open in the topics that the workers write to.
        batch_bytes: the largest allowed size of a batch in bytes. Every destination topic accepts batches of this size.
        rate_limit: the limit of bytes per second for all workers together.
        stopping: the workers end when this event is set.
        ended: a worker sets this event when it ends.
    """

    settings: RelaySettings
    checkpoint: Callable[[Route], Record]
    topics_checked_at: Callable[[], float]
    context: Context
    wait_until_decided: Callable[[Context], None]
    batch_bytes: int
    rate_limit: RateLimit
    stopping: threading.Event
    ended: threading.Event


class TransactionWriter:
    """Publishes one transaction after another. Only the worker's thread may call its methods, except `open`.

    Attributes:
        rest_until: the earliest time at which the next transaction should begin (monotonic seconds).
    """

    def __init__(self, shared: WorkerContext, state: LaneState) -> None:
        self.rest_until = 0.0
        self._shared = shared
        self._state = state
        self._registered: Record | None = None
        self._session: TransactionSession | None = None

    def open(self, registered: Record) -> None:
        """Take over the transactional ids of the writer. Raises the same errors as `TransactionSession.open`.

        Each producer commits `registered`, the registration record of this process. The commit fails if another
        process has taken over the ids.
        """
        shared = self._shared
        self._registered = registered
        self._session = open_session(
            shared.settings,
            shared.settings.transactional_ids(self._state.number),
            shared.batch_bytes,
            counters=self._state.counters,
            ownership_record=self._ownership_record,
            context=Context(beat=self._beat, raise_if_cancelled=self._raise_if_stopping),
            wait_until_decided=shared.wait_until_decided,
        )
        self._session.open()

    def publish(self, fill: Fill) -> tuple[int, int]:
        """Publish the records that `fill` produces, and the checkpoints after them, in one transaction.

        Returns:
            The result of `fill`; (0, 0) if it was not called.

        Raises:
            TransactionRejected: if the destination rejects one of the records. The caller must then call `recover` before any
                other method.
            Exception: any other error. The worker must then end.
        """
        # The transaction is aborted if the run ends before the topic ids are confirmed to be unchanged, or if there is no
        # record and no due checkpoint.
        state = self._state
        before = replace(state.copy_counts)
        amount = (0, 0)
        moved: list[Route] = []

        def write(produce: Produce) -> bool:
            nonlocal amount, moved
            if not self.wait_for_same_topics():  # the wait for a producer may have been long
                return False
            amount = fill(produce)
            moved = [route for route in state.routes.values() if route.advance_past_read()]
            is_due = time.monotonic() - state.checkpoint_at >= CHECKPOINT_SECONDS
            if state.copy_counts.written == before.written and not (moved and is_due):
                return False
            for route in moved:
                topic, value, key, *_ = self._shared.checkpoint(route)
                produce(topic, value, key)
            return True

        try:
            is_committed = self._open_session.write(write)
        except Exception as error:
            written = state.copy_counts.written - before.written
            state.copy_counts = before
            raise self._failure(error, written) from error
        if is_committed:
            for route in moved:
                route.confirm()
            state.checkpoint_at = time.monotonic()
            rest = rest_after(state.counters.last_ending_seconds) if amount[0] < SMALL else 0.0
            self.rest_until = state.checkpoint_at + rest
        return amount

    def recover(self) -> None:
        """Abort the open transaction after TransactionRejected. Raises the same errors as `TransactionSession.recover`."""
        self._open_session.recover()

    def refresh_metadata(self, topics: Iterable[str]) -> None:
        """Refresh the producers' metadata of these destination topics, so that the producers know new partitions."""
        self._open_session.refresh_metadata(topics)

    def wait_for_same_topics(self) -> bool:
        """Wait until the topic ids were confirmed to be unchanged within the last SEEN_SECONDS.

        Returns False if the run of the relay ends during the wait.
        """
        while not self._shared.stopping.is_set():
            now = self._state.heartbeat = time.monotonic()
            if self._shared.topics_checked_at() >= now - SEEN_SECONDS:
                return True
            self._shared.stopping.wait(0.01)
        return False

    def close(self) -> None:
        """Abort the open transaction and close the producers."""
        # Without the abort, readers would have to wait for the transaction's time-out.
        if self._session is not None:
            self._session.close()

    @property
    def _open_session(self) -> TransactionSession:
        assert self._session is not None, "the writer is not open"
        return self._session

    def _ownership_record(self) -> Record:
        """Return the record for the session's ownership check: the checkpoint of any copied partition."""
        # Without a copied partition it is the registration of this process. Later the session must not write the registration
        # again: if another process has replaced this one, that process's registration must remain the last one in the topic.
        for route in self._state.routes.values():
            return self._shared.checkpoint(route)
        assert self._registered is not None
        return self._registered

    def _beat(self) -> None:
        self._state.heartbeat = time.monotonic()

    def _raise_if_stopping(self) -> None:
        self._shared.context.check()
        if self._shared.stopping.is_set():
            raise Aborted(f"a stop of lane {self._state.number} was requested")

    def _failure(self, error: Exception, written: int) -> Exception:
        """Return the error to raise for the failed transaction of `written` records."""
        if isinstance(error, RecordRejected) or (isinstance(error, RecordFailed) and written):
            return TransactionRejected(error.code or 0, written)
        if isinstance(error, NotAllowed) and isinstance(error.__cause__, KafkaException):  # otherwise the source rejects it
            return NotAllowed(f"the destination denies access to lane {self._state.number}: {error}", CHECK_HINT)
        if isinstance(error, Aborted):
            kind = Aborted if isinstance(error, RecordFailed) else type(error)
            return kind(f"lane {self._state.number}: {error}")
        return error
