"""The load at the source during faults: numbered records at a steady rate; transactions, half of them aborted."""

import random
import threading
from typing import Any

from confluent_kafka import KafkaException, Producer

from tests.chaos.load import Load

TRANSACTION_RECORDS = 50
PERIOD_SECONDS = 0.1
CALL_SECONDS = 5.0
FINISH_SECONDS = 60.0


class Records(Load):
    """Numbered records over all partitions in turn; `widen` adds partitions."""

    def __init__(self, bootstrap_servers: str, topic: str, rate: float, partitions: int) -> None:
        super().__init__(bootstrap_servers, topic, rate)
        self.partitions = partitions

    def widen(self, partitions: int) -> None:
        """Write to so many partitions from now on. May be called from any thread."""
        self._producer.list_topics(self._topic, 10)  # the client rejects partitions that are not in its metadata
        self.partitions = partitions

    def _create_producer(self, **more: Any) -> Producer:
        """Allow one batch in flight: of two, a new leader may reject the first, accept the second, and report a duplicate."""
        return super()._create_producer(**{"max.in.flight": 1, **more})

    def _delivery(self, key: bytes | None) -> dict[str, Any]:
        return {**super()._delivery(key), "partition": self.written % self.partitions, "headers": [("h", key)]}


class Transactions(threading.Thread):
    """Small transactions beside the records, half of them aborted, until `finish`. Only the log has the outcome of each."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int, seed: int) -> None:
        super().__init__(name="transactions", daemon=True)
        self._topic = topic
        self._partitions = partitions
        self._rng = random.Random(seed)
        self._enough = threading.Event()
        self._properties: dict[str, Any] = {
            "bootstrap.servers": bootstrap_servers,
            "transactional.id": f"{topic}.load",
            "transaction.timeout.ms": 30_000,
            "linger.ms": 5,
            "log_level": 0,
            "error_cb": lambda _: None,
        }

    def run(self) -> None:
        producer: Producer | None = None
        while not self._enough.wait(PERIOD_SECONDS):
            try:
                producer = producer or self._fresh(CALL_SECONDS)
                self._transaction(producer)
            except KafkaException:
                producer = None

    def finish(self) -> None:
        """End the thread, and leave no open transaction. Raises KafkaException if the broker does not answer for long."""
        self._enough.set()
        self.join()
        self._fresh(FINISH_SECONDS)

    def _fresh(self, seconds: float) -> Producer:
        producer = Producer(self._properties)
        producer.init_transactions(seconds)
        return producer

    def _transaction(self, producer: Producer) -> None:
        producer.begin_transaction()
        for number in range(TRANSACTION_RECORDS):
            producer.produce(self._topic, b"transaction %d" % number, b"t", number % self._partitions)
        producer.flush(CALL_SECONDS)
        if self._rng.random() < 0.5:
            producer.commit_transaction(CALL_SECONDS)
        else:
            producer.abort_transaction(CALL_SECONDS)
