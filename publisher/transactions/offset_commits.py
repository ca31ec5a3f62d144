"""Commits positions of a consumer group outside transactions, as the member that one consumer is."""

from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

Done = Callable[[KafkaError | None], None]
OnCommit = Callable[[KafkaError | None, list[TopicPartition]], None]


class GroupCommits:
    """One thread owns it, the consumer's. `make_consumer(on_commit)` gives that consumer, which is `consumer` from then on."""

    def __init__(self, make_consumer: Callable[[OnCommit], Consumer]) -> None:
        self._begun: dict[Any, Done] = {}
        self._make_consumer = make_consumer
        self.consumer = make_consumer(self._answered)

    def renew(self) -> Consumer:
        """Another consumer, for one that is no member any more: commits that were begun are answered no more."""
        self._begun.clear()
        self.consumer.close()
        self.consumer = self._make_consumer(self._answered)
        return self.consumer

    def commit(self, offsets: Sequence[TopicPartition]) -> None:
        """Commit and wait. Raises KafkaException."""
        for position in self.consumer.commit(offsets=list(offsets), asynchronous=False) or ():
            if position.error is not None:
                raise KafkaException(position.error)

    def begin(self, offsets: Sequence[TopicPartition], done: Done) -> None:
        """Commit without waiting: `done` is told the outcome within some later poll of the consumer, or at once."""
        self._begun[_places(offsets)] = done
        try:
            self.consumer.commit(offsets=list(offsets), asynchronous=True)
        except KafkaException as exception:
            self._answered(exception.args[0], list(offsets))

    def _answered(self, error: KafkaError | None, positions: list[TopicPartition]) -> None:
        done = self._begun.pop(_places(positions), None)
        if done is not None:
            done(error or next((p.error for p in positions if p.error is not None), None))


def _places(offsets: Sequence[TopicPartition]) -> frozenset[tuple[str, int, int]]:
    return frozenset((p.topic, p.partition, p.offset) for p in offsets)
