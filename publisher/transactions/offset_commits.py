"""Offset commits of a consumer group outside transactions, made by the consumer that is the group's member."""

from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

Done = Callable[[KafkaError | None], None]
OnCommit = Callable[[KafkaError | None, list[TopicPartition]], None]


class GroupCommits:
    """The commits of one consumer; the consumer's thread owns it.

    `make_consumer(on_commit)` returns the consumer, which is the attribute `consumer` from then on.
    """

    def __init__(self, make_consumer: Callable[[OnCommit], Consumer]) -> None:
        self._pending: dict[Any, Done] = {}
        self._make_consumer = make_consumer
        self.consumer = make_consumer(self._on_commit)

    def renew(self) -> Consumer:
        """Replace a consumer that is no longer a member. Its pending commits get no answer."""
        self._pending.clear()
        self.consumer.close()
        self.consumer = self._make_consumer(self._on_commit)
        return self.consumer

    def commit(self, offsets: Sequence[TopicPartition]) -> None:
        """Commit, and wait for the answer. Raises KafkaException."""
        for position in self.consumer.commit(offsets=list(offsets), asynchronous=False) or ():
            if position.error is not None:
                raise KafkaException(position.error)

    def begin(self, offsets: Sequence[TopicPartition], done: Done) -> None:
        """Start a commit. `done` receives its outcome within a later poll of the consumer, or at once."""
        self._pending[_commit_key(offsets)] = done
        try:
            self.consumer.commit(offsets=list(offsets), asynchronous=True)
        except KafkaException as exception:
            self._on_commit(exception.args[0], list(offsets))

    def _on_commit(self, error: KafkaError | None, positions: list[TopicPartition]) -> None:
        done = self._pending.pop(_commit_key(positions), None)
        if done is not None:
            done(error or next((p.error for p in positions if p.error is not None), None))


def _commit_key(offsets: Sequence[TopicPartition]) -> frozenset[tuple[str, int, int]]:
    return frozenset((p.topic, p.partition, p.offset) for p in offsets)
