"""The transactional producers of a session: one for each id, used in turn, each initialised in a thread of its own.

After a slow commit, a producer is replaced by a successor with the same id, and the other producers write while the successor
initialises.
"""

# A commit may take longer than `retry.backoff.ms`. librdkafka may then have sent EndTxn twice, and the late copy would end the
# next transaction of the same producer.

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from math import inf
from typing import NamedTuple

from confluent_kafka import Producer

from publisher.errors import Retriable
from publisher.kafka.clients import unwrap_kafka_errors
from publisher.runtime.abandonable_call import call_in_thread
from publisher.runtime.context import Context
from publisher.transactions.transactional_ids import CALL_SECONDS, initialised

CHECK_SECONDS = 0.5  # between checks of the context


class PooledProducer(NamedTuple):
    """A transactional id (`name`) with its producer. The future `initialised` is complete when the producer can be used."""

    name: str
    initialised: Future[Producer]

    @property
    def producer(self) -> Producer:
        """The initialised producer, after waiting for it. Raises Fatal if the broker rejects its initialisation."""
        return self.initialised.result()


class ProducerPool:
    """The idle producers of one session. One thread owns it.

    While a method waits for a producer, it calls `context.check`. It raises Retriable after `wait_seconds`.

    Attributes:
        unconfirmed_ids: the ids for which a producer was created since the session last confirmed that it owns all ids.
    """

    def __init__(
        self, make_producer: Callable[[str], Producer], ids: Sequence[str], context: Context, wait_seconds: float
    ) -> None:
        self.unconfirmed_ids: set[str] = set()
        self._make_producer = make_producer
        self._context = context
        self._wait_seconds = wait_seconds
        self._clock = context.clock.monotonic
        self._closing = threading.Event()
        self._idle = deque(self.create_successor(name) for name in ids)

    def __len__(self) -> int:
        return len(self._idle)

    def create_successor(self, name: str) -> PooledProducer:
        """Create another producer for this id, and start to initialise it in a thread, without a time limit.

        The thread does not keep the process running.
        """
        self.unconfirmed_ids.add(name)
        make_producer = self._make_producer
        clock = self._clock
        closing = self._closing
        call = call_in_thread("producer-init", lambda: initialised(make_producer, name, clock, closing, inf))
        return PooledProducer(name, call)

    def take(self) -> PooledProducer:
        """Remove and return the next initialised producer. If none is initialised, wait for the first in the pool.

        Raises the same errors as `wait_until_initialised`.
        """
        for _ in range(len(self._idle)):
            if self._idle[0].initialised.done():
                break
            self._idle.rotate(-1)
        self.wait_until_initialised(self._idle[0])
        return self._idle.popleft()

    def put(self, pooled: PooledProducer) -> None:
        """Return a producer to the pool. `take` returns it after all others."""
        self._idle.append(pooled)

    def wait_until_initialised(self, pooled: PooledProducer) -> Producer:
        """Return the producer once it is initialised.

        Raises:
            Fatal: if the broker rejects the initialisation.
            Retriable: if the producer is not initialised within `wait_seconds`.
            Exception: any error that `context.check` raises.
        """
        deadline = self._clock() + self._wait_seconds
        while not wait([pooled.initialised], timeout=CHECK_SECONDS).done:
            self._context.check()
            if self._clock() > deadline:
                raise Retriable(f"transactional.id {pooled.name!r} was not initialised within {self._wait_seconds:g} s")
        return pooled.producer

    def wait_until_all_initialised(self) -> dict[str, Producer]:
        """Wait until all idle producers are initialised, and return them by id.

        Raises the same errors as `wait_until_initialised`.
        """
        return {pooled.name: self.wait_until_initialised(pooled) for pooled in self._idle}

    def replace(self, name: str) -> None:
        """Replace the producer of this id by a new one. `take` returns the new producer after all others."""
        self._idle = deque(pooled for pooled in self._idle if pooled.name != name)
        self._idle.append(self.create_successor(name))

    def renew(self) -> None:
        """Replace each idle producer that is initialised by a new one with the same id."""
        # A producer that has lost a broker may hang in its next call.
        self._idle = deque(self.create_successor(pooled.name) if pooled.initialised.done() else pooled for pooled in self._idle)

    def confirm_ownership(self) -> None:
        """Record that the session owns every id. `take` then first returns the successors whose ids were unconfirmed."""
        # Every other producer has just committed a record for the ownership check, and must not be used again directly after a
        # commit (see POOL_SIZE).
        self._idle = deque(sorted(self._idle, key=lambda pooled: pooled.name not in self.unconfirmed_ids))
        self.unconfirmed_ids.clear()

    def refresh_metadata(self, topics: Iterable[str]) -> None:
        """Refresh each producer's metadata of these topics. A producer writes only to partitions that its metadata contains.

        Raises:
            KafkaException: if a broker does not answer. Also raises the errors of `wait_until_initialised`.
        """
        for producer in self.wait_until_all_initialised().values():
            for topic in topics:
                with unwrap_kafka_errors():
                    producer.list_topics(topic, CALL_SECONDS)

    def close(self, seconds: float) -> None:
        """Release the producers, after waiting up to `seconds` for initialisations that are in progress."""
        # Otherwise a producer could finish its initialisation later, and take over the id from the next session.
        self._closing.set()
        wait([pooled.initialised for pooled in self._idle], seconds)
        self._idle.clear()
