"""Sample a topic: read a limited number of records per second, and skip the other records up to the end of the topic."""

import contextlib
from dataclasses import dataclass, field

from confluent_kafka import OFFSET_END, Consumer, KafkaException, TopicPartition

from publisher.kafka.partitions import Partition


@dataclass(slots=True)
class TopicSampler:
    """Limits the records that are read from a topic: `budget` records at first, then `rate` records per second.

    `budget` is the number of records that may still be read. The caller subtracts 1 for each record that it reads.
    """

    topic: str
    rate: int
    budget: int
    _until: float = 0.0
    _behind: set[Partition] = field(default_factory=set)

    def skip(self, consumer: Consumer, unread: set[Partition], now: float) -> None:
        """Pause the topic if its budget is used up. In the next second, renew the budget and resume the topic at its end.

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
