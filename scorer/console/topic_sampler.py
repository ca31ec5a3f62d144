"""A topic that is sampled: beyond so many records a second reading goes on at its end."""

import contextlib
from dataclasses import dataclass, field

from confluent_kafka import OFFSET_END, Consumer, KafkaException, TopicPartition

from publisher.kafka.partitions import Partition


@dataclass(slots=True)
class TopicSampler:
    """At most `rate` records a second, and `budget` before the first second is over."""

    topic: str
    rate: int
    budget: int
    _until: float = 0.0
    _behind: set[Partition] = field(default_factory=set)

    def skip(self, consumer: Consumer, unread: set[Partition], now: float) -> None:
        """Where the records of this second are used up, its partitions pause, and no longer count as `unread`; with the next
        second they go on at their ends. `now` in Unix seconds."""
        if now >= self._until:
            self.budget, self._until = max(self.budget, self.rate), now + 1.0
            for partition in self._behind:
                with contextlib.suppress(KafkaException):
                    consumer.seek(TopicPartition(*partition, OFFSET_END))
                    consumer.resume([TopicPartition(*partition)])
            self._behind.clear()
        elif self.budget <= 0 and not self._behind:
            mine = [p for p in consumer.assignment() if p.topic == self.topic]
            self._behind = {(p.topic, p.partition) for p in mine}
            unread -= self._behind
            consumer.pause(mine)
