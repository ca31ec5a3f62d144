"""A transaction of somebody else on the output topic, which says nothing in the end: it is aborted."""

import threading

from confluent_kafka import KafkaException, Producer

SECONDS = 60.0
TIMEOUT_MS = 300_000  # by itself it ends far too late


class Foreign:
    """One transaction at a time, under an id that no scorer has. Its steps wait for brokers that are away."""

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
        """With a record in some partition, where readers of committed records wait behind it."""
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
