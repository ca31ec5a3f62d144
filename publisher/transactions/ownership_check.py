"""The proof that the ids of a session are still its own, for sessions that no group fences.

A producer that takes its id over fences whoever has it: even a process that has replaced this one, and has taken all ids. So
after a takeover another id has to commit something before the new producer writes: it is fenced where that process has it.
"""

from collections.abc import Callable, Mapping

from confluent_kafka import Producer

from publisher.errors import Aborted
from publisher.kafka.clients import unwrap_kafka_errors
from publisher.transactions.producer_pool import ProducerPool
from publisher.transactions.protocol import Record
from publisher.transactions.retrying_calls import RetryingCalls
from publisher.transactions.state_machine import SessionStep


class OwnershipCheck:
    """For the producers of one pool. `record()` gives what they commit. A commit of `slow_seconds` costs a producer its place.
    Methods raise Fenced, or Aborted of another kind, where the session must not write; and as `ProducerPool.ready` does."""

    def __init__(self, pool: ProducerPool, calls: RetryingCalls, record: Callable[[], Record], slow_seconds: float) -> None:
        self._pool = pool
        self._calls = calls
        self._record = record
        self._slow_seconds = slow_seconds

    def begin(self) -> None:
        """All ids were taken over: each commits."""
        self._commit(self._pool.all_ready())

    def renew(self) -> None:
        """Where ids were taken over since, all others commit."""
        unproven = self._pool.unproven
        if not unproven:
            return
        producers = self._pool.all_ready()
        others = {name: producer for name, producer in producers.items() if name not in unproven}
        if not others and len(producers) > 1:
            raise Aborted("all ids were taken over in turn, and nobody knows whether another process had them in between")
        self._commit(others)
        self._pool.all_ready()  # the next commit proves the successors too

    def committed(self) -> None:
        """A transaction is committed: what was taken over before it began is proven."""
        self._pool.unproven.clear()

    def _commit(self, producers: Mapping[str, Producer]) -> None:
        slow = [name for name, producer in producers.items() if self._seconds(producer) >= self._slow_seconds]
        self._pool.proven()
        if len(slow) == len(self._pool) > 1:  # one stays as it is: the others need its commit
            slow.pop()
        for name in slow:
            self._pool.replace(name)

    def _seconds(self, producer: Producer) -> float:
        """How long a commit took."""
        topic, value, key, *_ = self._record()
        self._calls.make(SessionStep.BEGIN, producer.begin_transaction)
        with unwrap_kafka_errors():
            producer.produce(topic, value, key)
        return self._calls.seal(producer, [], None).ending
