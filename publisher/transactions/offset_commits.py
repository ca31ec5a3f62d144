"""Offset commits of a consumer group outside transactions, made by the consumer that is the group's member."""

from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

Done = Callable[[KafkaError | None], None]
OnCommit = Callable[[KafkaError | None, list[TopicPartition]], None]


class GroupCommits:
    """Creates the consumer that joins a group, and uses it to commit offsets for the group.

    Only the thread that polls the consumer may use the instance.

    Args:
        make_consumer: returns a consumer. Its argument is the callback for the results of asynchronous commits.

    Attributes:
        consumer: the current consumer.
    """

    def __init__(self, make_consumer: Callable[[OnCommit], Consumer]) -> None:
        self._pending: dict[Any, Done] = {}
        self._make_consumer = make_consumer
        self.consumer = make_consumer(self._on_commit)

    def renew(self) -> Consumer:
        """Replace the consumer, which is no longer a member of its group. Callbacks of its pending commits are not called."""
        self._pending.clear()
        self.consumer.close()
        self.consumer = self._make_consumer(self._on_commit)
        return self.consumer

    def commit(self, offsets: Sequence[TopicPartition]) -> None:
        """Commit these offsets, and wait for the answer. Raises KafkaException."""
        for position in self.consumer.commit(offsets=list(offsets), asynchronous=False) or ():
            if position.error is not None:
                raise KafkaException(position.error)

    def begin(self, offsets: Sequence[TopicPartition], done: Done) -> None:
        """Start a commit of these offsets.

        Args:
            offsets: the offsets, with metadata.
            done: called with the error of the commit, or with None on success, during a later poll of the consumer. If the
                commit cannot be started, `done` is called before this method returns.
        """
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
