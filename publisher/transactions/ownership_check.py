"""The check that a session still owns its transactional ids, for sessions that no consumer group fences.

A producer that initialises its id fences the process that has it, even one that has replaced this process and has taken over
all ids. So after a takeover a producer of another id commits a record before the new producer writes: the broker fences it if
that process has its id.
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
    """The check of one pool. `record()` returns the record that producers commit for it.

    A producer whose commit takes `slow_seconds` is replaced. Methods raise Fenced, or another Aborted, if the session must not
    write, and as `ProducerPool.ready` does.
    """

    def __init__(self, pool: ProducerPool, calls: RetryingCalls, record: Callable[[], Record], slow_seconds: float) -> None:
        self._pool = pool
        self._calls = calls
        self._record = record
        self._slow_seconds = slow_seconds

    def check_all(self) -> None:
        """Commit with every producer, after all ids were taken over."""
        self._commit(self._pool.all_ready())

    def check_successors(self) -> None:
        """Commit with every other producer if ids were taken over since the last check."""
        unproven = self._pool.unproven
        if not unproven:
            return
        producers = self._pool.all_ready()
        others = {name: producer for name, producer in producers.items() if name not in unproven}
        if not others and len(producers) > 1:
            raise Aborted("all ids were taken over in turn: another process may have had them in between")
        self._commit(others)
        self._pool.all_ready()  # the next commit confirms the successors too

    def committed(self) -> None:
        """Record a committed transaction: it confirms the ids that were taken over before it began."""
        self._pool.unproven.clear()

    def _commit(self, producers: Mapping[str, Producer]) -> None:
        slow = [name for name, producer in producers.items() if self._commit_seconds(producer) >= self._slow_seconds]
        self._pool.proven()
        if len(slow) == len(self._pool) > 1:  # one producer stays: the successors need its commit
            slow.pop()
        for name in slow:
            self._pool.replace(name)

    def _commit_seconds(self, producer: Producer) -> float:
        topic, value, key, *_ = self._record()
        self._calls.run(SessionStep.BEGIN, producer.begin_transaction)
        with unwrap_kafka_errors():
            producer.produce(topic, value, key)
        return self._calls.commit(producer, [], None).ending
