"""A reader of committed records without a consumer group, for topics that may not exist yet or may get more partitions."""

import time

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

REFRESH_SECONDS = 0.5  # the time between two refreshes of the list of partitions
READ_SECONDS = 1.0


class Follower:
    """Reads topics from their start. With `grows` false, no new partitions are looked up once every topic has partitions."""

    def __init__(self, bootstrap_servers: str, *topics: str, grows: bool = True) -> None:
        self._topics = topics
        self._grows = grows
        self._followed: set[tuple[str, int]] = set()
        self._refreshed_at = float("-inf")
        self._seen = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "follower",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 50,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
                "error_cb": lambda _: None,
            }
        )

    def take(self, seconds: float) -> list[Message]:
        """Return the records that arrive within `seconds`, at most 10,000."""
        self._refresh(time.monotonic())
        return [message for message in self._consumer.consume(10_000, seconds) if message.error() is None]

    def seen(self) -> int:
        """Read the available records, and return the number of records that this method has read so far.

        Reading stops after about one second if records keep arriving.
        """
        deadline = time.monotonic() + READ_SECONDS
        while count := len(self.take(0.1)):
            self._seen += count
            if time.monotonic() > deadline:
                break
        return self._seen

    def close(self) -> None:
        self._consumer.close()

    def _refresh(self, now: float) -> None:
        if now - self._refreshed_at < REFRESH_SECONDS or (
            not self._grows and {topic for topic, _ in self._followed} >= {*self._topics}
        ):
            return
        self._refreshed_at = now
        try:
            topics = self._consumer.list_topics(timeout=1.0).topics
        except KafkaException:  # the brokers are unavailable: try again at the next refresh
            return
        partitions = {(topic, number) for topic in self._topics if topic in topics for number in topics[topic].partitions}
        self._consumer.incremental_assign([TopicPartition(topic, p, 0) for topic, p in sorted(partitions - self._followed)])
        self._followed |= partitions
