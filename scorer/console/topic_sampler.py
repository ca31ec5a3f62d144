"""Sample a topic: beyond a number of records per second, skip to its end."""

import contextlib
from dataclasses import dataclass, field

from confluent_kafka import OFFSET_END, Consumer, KafkaException, TopicPartition

from publisher.kafka.partitions import Partition


@dataclass(slots=True)
class TopicSampler:
    """Limit a topic to `rate` records per second, and to `budget` records in the first second."""

    topic: str
    rate: int
    budget: int
    _until: float = 0.0
    _behind: set[Partition] = field(default_factory=set)

    def skip(self, consumer: Consumer, unread: set[Partition], now: float) -> None:
        """Pause the topic when the budget of this second is used up; resume at its end in the next second.

        Paused partitions are removed from `unread`. `now` is in Unix seconds.
        """
        if now >= self._until:
            self.budget = max(self.budget, self.rate)
            self._until = now + 1.0
            for partition in self._behind:
                with contextlib.suppress(KafkaException):
                    consumer.seek(TopicPartition(*partition, OFFSET_END))
                    consumer.resume([TopicPartition(*partition)])
            self._behind.clear()
        elif self.budget <= 0 and not self._behind:
            partitions = [p for p in consumer.assignment() if p.topic == self.topic]
            self._behind = {(p.topic, p.partition) for p in partitions}
            unread -= self._behind
            consumer.pause(partitions)
