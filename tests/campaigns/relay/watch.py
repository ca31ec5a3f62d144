"""What a read_committed reader of the copies sees while faults happen: how many there are, and the longest stall."""

import threading
import time

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.campaigns.faults.watch import Stalls

LOOK_SECONDS = 0.5


class Watch(threading.Thread):
    """Follows a topic, which may not be there yet and may grow, until `close`."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        super().__init__(name="watch", daemon=True)
        self.copies = 0
        self.stalls = Stalls()
        self._topic = topic
        self._followed: set[int] = set()
        self._looked = float("-inf")
        self._closing = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "relay-watch",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 50,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
                "error_cb": lambda _: None,
            }
        )

    def run(self) -> None:
        while not self._closing.is_set():
            self._look(time.monotonic())
            messages = self._consumer.consume(5_000, 0.02)
            now = time.monotonic()
            good = [message for message in messages if message.error() is None]
            self.copies += len(good)
            for partition in {m.partition() or 0 for m in good}:
                self.stalls.arrived(partition, now)

    def close(self) -> None:
        """No more following."""
        self._closing.set()
        self.join()
        self._consumer.close()

    def _look(self, now: float) -> None:
        """Follow partitions that have come."""
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        try:
            found = self._consumer.list_topics(timeout=1.0).topics
        except KafkaException:
            return
        there = set(found[self._topic].partitions) if self._topic in found else set()
        self._consumer.incremental_assign([TopicPartition(self._topic, p, 0) for p in sorted(there - self._followed)])
        self._followed |= there
