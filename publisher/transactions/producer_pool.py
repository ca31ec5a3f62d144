"""The transactional producers of a session: one an id, used in turn, each initialised in a thread of its own."""

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
from publisher.transactions.transactional_ids import CALL_SECONDS, initialised

LOOK_SECONDS = 0.5  # between calls of `waiting`


class PooledProducer(NamedTuple):
    """An id, and the producer that has it, or will have it."""

    name: str
    made: Future[Producer]

    @property
    def producer(self) -> Producer:
        """The producer. Raises Fatal where the broker does not let it begin."""
        return self.made.result()


class ProducerPool:
    """See the module. `waiting` is called now and then while a producer is waited for, and may raise; after `patience` seconds
    Retriable is raised. `unproven` are the ids taken over since the session last knew that all of them are its own."""

    def __init__(
        self,
        make_producer: Callable[[str], Producer],
        ids: Sequence[str],
        waiting: Callable[[], None],
        patience: float,
        clock: Callable[[], float],
    ) -> None:
        self.unproven: set[str] = set()
        self._make_producer = make_producer
        self._waiting = waiting
        self._patience = patience
        self._clock = clock
        self._closing = threading.Event()
        self._turns = deque(self.successor(name) for name in ids)

    def __len__(self) -> int:
        return len(self._turns)

    def successor(self, name: str) -> PooledProducer:
        """Another producer takes this id, however long that takes; a process may end meanwhile."""
        self.unproven.add(name)
        make, clock, closing = self._make_producer, self._clock, self._closing
        return PooledProducer(name, call_in_thread("producer-init", lambda: initialised(make, name, clock, closing, inf)))

    def take(self) -> PooledProducer:
        """The next in turn that is initialised; the first to be so where none is. Raises as `ready` does."""
        for _ in range(len(self._turns)):
            if self._turns[0].made.done():
                break
            self._turns.rotate(-1)
        self.ready(self._turns[0])
        return self._turns.popleft()

    def put(self, turn: PooledProducer) -> None:
        """It waits for its next turn."""
        self._turns.append(turn)

    def ready(self, turn: PooledProducer) -> Producer:
        """Its producer, initialised. Raises Fatal where it cannot be, Retriable, and what `waiting` does."""
        deadline = self._clock() + self._patience
        while not wait([turn.made], timeout=LOOK_SECONDS).done:
            self._waiting()
            if self._clock() > deadline:
                raise Retriable(f"the broker does not let {turn.name} begin")
        return turn.producer

    def all_ready(self) -> dict[str, Producer]:
        """Every producer that waits for its turn, initialised. Raises as `ready` does."""
        return {turn.name: self.ready(turn) for turn in self._turns}

    def replace(self, name: str) -> None:
        """A successor for this one, which takes its turn last."""
        self._turns = deque(turn for turn in self._turns if turn.name != name)
        self._turns.append(self.successor(name))

    def renew(self) -> None:
        """Successors for the producers that wait: one that has lived through a broker's death may hang in its next call."""
        self._turns = deque(self.successor(turn.name) if turn.made.done() else turn for turn in self._turns)

    def proven(self) -> None:
        """Every id is the session's own. Those taken over last are used first: the others have just committed."""
        self._turns = deque(sorted(self._turns, key=lambda turn: turn.name not in self.unproven))
        self.unproven.clear()

    def learn(self, topics: Iterable[str]) -> None:
        """Let each producer ask for these topics: a client writes only to partitions that it knows. Raises KafkaException."""
        for producer in self.all_ready().values():
            for topic in topics:
                with unwrap_kafka_errors():
                    producer.list_topics(topic, CALL_SECONDS)

    def close(self, seconds: float) -> None:
        """Let the producers go; those that are being made too. These are waited for so long: one that takes its id later
        would take it from the next session."""
        self._closing.set()
        wait([turn.made for turn in self._turns], seconds)
        self._turns.clear()
