"""Check that a session still owns its transactional ids, for sessions that send no consumer offsets.

Before a new producer writes, another producer of the session commits a record. If a newer process has taken over the ids, the
broker rejects this commit, and the session stops.
"""

# A session replaces a producer by a successor, which initialises the same id, and thereby fences every other producer of the
# id. This would succeed even if a newer process had taken over all ids of the session.

from collections.abc import Callable, Mapping

from confluent_kafka import Producer

from publisher.errors import Aborted
from publisher.kafka.clients import unwrap_kafka_errors
from publisher.transactions.producer_pool import ProducerPool
from publisher.transactions.retrying_calls import RetryingCalls
from publisher.transactions.session import Record
from publisher.transactions.state_machine import SessionStep


class OwnershipCheck:
    """Checks that no other process has taken over the ids of a producer pool.

    Methods raise Aborted, such as Fenced, if the session must not write. They also raise the errors of
    `ProducerPool.wait_until_initialised`.

    Args:
        pool: the producers of the session.
        calls: makes the broker calls of these producers.
        record: returns the record that a producer commits for a check.
        slow_seconds: after a commit of at least this duration, a new producer with the same id replaces the producer.
    """

    def __init__(self, pool: ProducerPool, calls: RetryingCalls, record: Callable[[], Record], slow_seconds: float) -> None:
        self._pool = pool
        self._calls = calls
        self._record = record
        self._slow_seconds = slow_seconds

    def check_all(self) -> None:
        """Check that the session owns every transactional id of the pool, by a commit of one record with each id.

        Call this after the session has taken over all ids. If another process has taken over an id since then, the broker
        rejects the commit.
        """
        self._commit(self._pool.wait_until_all_initialised())

    def check_successors(self) -> None:
        """Check that the session still owns its ids, if it has replaced producers by successors since the last check."""
        # Every other producer commits a record. If a newer process has taken over the ids, the broker rejects such a commit.
        unconfirmed = self._pool.unconfirmed_ids
        if not unconfirmed:
            return
        producers = self._pool.wait_until_all_initialised()
        others = {name: producer for name, producer in producers.items() if name not in unconfirmed}
        if not others and len(producers) > 1:
            raise Aborted("all producers were replaced: another process may have owned their transactional ids meanwhile")
        self._commit(others)
        self._pool.wait_until_all_initialised()  # the next commit confirms the successors too

    def committed(self) -> None:
        """Record that the session has committed a transaction, which proves that it still owns its ids."""
        self._pool.unconfirmed_ids.clear()

    def _commit(self, producers: Mapping[str, Producer]) -> None:
        slow = [name for name, producer in producers.items() if self._commit_seconds(producer) >= self._slow_seconds]
        self._pool.confirm_ownership()
        if len(slow) == len(self._pool) > 1:  # one producer stays, because the successors need its commit
            slow.pop()
        for name in slow:
            self._pool.replace(name)

    def _commit_seconds(self, producer: Producer) -> float:
        topic, value, key, *_ = self._record()
        self._calls.run(SessionStep.BEGIN, producer.begin_transaction)
        with unwrap_kafka_errors():
            producer.produce(topic, value, key)
        return self._calls.commit(producer, [], None).ending
