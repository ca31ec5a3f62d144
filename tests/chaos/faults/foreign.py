"""Transactions of a foreign application, all aborted: one long one on the output topic, many short ones on the input."""

import itertools
import threading

from confluent_kafka import KafkaException, Producer

SECONDS = 60.0
TIMEOUT_MS = 300_000  # the broker would end it far too late


class Foreign:
    """One transaction at a time, with an id that no scorer has. Its steps wait for unavailable brokers."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._topic = topic
        self._properties = {
            "bootstrap.servers": bootstrap_servers,
            "transactional.id": f"foreign to {topic}",
            "transaction.timeout.ms": TIMEOUT_MS,
        }
        self._open: Producer | None = None
        self._turn = threading.Lock()

    def begin(self) -> None:
        """Begin a transaction with a record in some partition, where readers of committed records wait behind it."""
        self.end()
        with self._turn:
            producer = self._initialised()
            producer.begin_transaction()
            producer.produce(self._topic, b"no score")
            producer.flush(SECONDS)
            self._open = producer

    def end(self) -> None:
        with self._turn:
            producer, self._open = self._open, None
            if producer is None:
                return
            try:
                producer.abort_transaction(SECONDS)
            except KafkaException:
                self._initialised()  # by a successor

    def _initialised(self) -> Producer:
        producer = Producer(self._properties)
        producer.init_transactions(SECONDS)
        return producer


def abort_transactions(bootstrap_servers: str, topic: str, partitions: int, count: int) -> None:
    """Abort `count` transactions on `topic`, each of one to three records on every partition.

    Returns when all are aborted. Raises KafkaException if a broker stays unavailable.
    """
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": f"aborts on {topic}"})
    producer.init_transactions(SECONDS)
    for number in range(count):
        producer.begin_transaction()
        for partition, repeat in itertools.product(range(partitions), range(1 + number % 3)):
            producer.produce(topic, b'{"id": "aborted %d", "a": 0, "b": 0}' % repeat, partition=partition)
        producer.flush(SECONDS)
        producer.abort_transaction(SECONDS)
