"""What a read_committed reader sees while faults happen: how many answers, and the longest stall of a partition."""

import threading
import time

from confluent_kafka import Consumer, TopicPartition


class Stalls:
    """The longest time between two arrivals on one partition. Pure: `now` is monotonic seconds."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._last: dict[int, float] = {}

    def arrived(self, partition: int, now: float) -> None:
        """An answer came on this partition."""
        self.longest = max(self.longest, now - self._last.get(partition, now))
        self._last[partition] = now

    def forget(self) -> None:
        """Begin anew."""
        self.longest = 0.0


class Watch(threading.Thread):
    """Follows scores, and the answers in `others`, until `close`."""

    def __init__(self, bootstrap_servers: str, scores: str, *others: str) -> None:
        super().__init__(name="watch", daemon=True)
        self.answers = 0
        self._since_ms = 0
        self.stalls = Stalls()
        self._scores = scores
        self._closing = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "faults-watch",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 50,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
                "error_cb": lambda _: None,
            }
        )
        known = self._consumer.list_topics(timeout=30).topics
        self._consumer.assign([TopicPartition(topic, p, 0) for topic in (scores, *others) for p in known[topic].partitions])

    def run(self) -> None:
        while not self._closing.is_set():
            messages = self._consumer.consume(5_000, 0.02)
            now = time.monotonic()
            good = [m for m in messages if m.error() is None and m.timestamp()[1] >= self._since_ms]
            self.answers += len(good)
            for partition in {m.partition() or 0 for m in good if m.topic() == self._scores}:
                self.stalls.arrived(partition, now)

    def begin_anew(self, since_ms: int) -> None:
        """Count only answers to events of this time (Unix ms) or later; their answers bear it."""
        self._since_ms, self.answers = since_ms, 0

    def close(self) -> None:
        """No more following."""
        self._closing.set()
        self.join()
        self._consumer.close()
