"""A group of one member over a scripted client, for the consumer's unit tests. It proves nothing about delivery."""

from collections import deque
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any
from unittest.mock import create_autospec

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from msgspec.structs import replace

from publisher.kafka.partitions import Partition
from publisher.transactions.exactly_once import TransactionSession
from scorer.consumer.consumer import EventConsumer
from scorer.consumer.offset_metadata import OffsetMetadata
from scorer.consumer.sandboxed_partitions import SandboxedInputPartitions
from scorer.consumer.start_offsets import AnswerStartOffsets, StartPosition, StartPositions

TOPIC = "flights"
MEMBER = "member-of-the-test"


def event(offset: int, partition: int = 0, size: int = 2) -> Message:
    return Message(topic=TOPIC, partition=partition, offset=offset, value=b"x" * size, timestamp=(1, 1_000))


def failing(offset: int, code: int, partition: int = 0) -> Message:
    return Message(topic=TOPIC, partition=partition, offset=offset, error=KafkaError(code))


def end(offset: int, partition: int = 0) -> Message:
    """Return the end of a partition. `offset` is its next offset."""
    return failing(offset, KafkaError._PARTITION_EOF, partition)


class Group:
    """A consumer over a scripted client and scripted topics.

    `committed` are the group's offsets with their metadata. `waiting` are the messages that the client returns next; a callable
    among them is called in its turn. `reads` is the offset from which each partition is read.
    """

    def __init__(
        self, *, renew: Callable[[], Consumer] | None = None, suspects: SandboxedInputPartitions | None = None
    ) -> None:
        self.committed: dict[Partition, tuple[int, OffsetMetadata]] = {}
        self.waiting: deque[Message | Callable[[], None]] = deque()
        self.reads: dict[Partition, int] = {}
        self.unseekable: set[Partition] = set()
        self.topic_id = "one"
        self.answers: AnswerStartOffsets | None = None
        self.leaderless: set[int] = set()
        self.session = create_autospec(TransactionSession, instance=True)
        self.session.sends_group = True
        self.consumer = create_autospec(Consumer, instance=True)
        self._script(self.consumer)
        self.intake = EventConsumer(
            self.consumer, [TOPIC], self._start_positions(), self.session, renew=renew, suspects=suspects
        )

    def assign(self, *numbers: int, claimed: bool = True) -> None:
        """Assign partitions, and resume them as the worker does after their claim."""
        handlers = self.consumer.subscribe.call_args.kwargs
        handlers["on_assign"](self.consumer, [TopicPartition(TOPIC, number) for number in numbers])
        if claimed:
            self.intake.resume([(TOPIC, number) for number in numbers], "unclaimed")

    def revoke(self, *numbers: int, lost: bool = False) -> None:
        handlers = self.consumer.subscribe.call_args.kwargs
        handlers["on_lost" if lost else "on_revoke"](self.consumer, [TopicPartition(TOPIC, number) for number in numbers])

    def paused(self) -> set[int]:
        return set(self._paused)

    def offsets(self) -> list[int]:
        batch = self.intake.take(0.0, lambda _: 100)
        return batch.offsets if batch else []

    def _script(self, consumer: Any) -> None:
        self._paused: set[int] = set()
        consumer.memberid.return_value = MEMBER
        consumer.poll.side_effect = lambda _: next(iter(self._messages(1)), None)
        consumer.consume.side_effect = lambda max_messages, _: self._messages(max_messages)
        consumer.committed.side_effect = self._committed
        consumer.incremental_assign.side_effect = lambda ps: self.reads.update({(p.topic, p.partition): p.offset for p in ps})
        consumer.seek.side_effect = self._seek
        consumer.pause.side_effect = lambda ps: self._paused.update(p.partition for p in ps)
        consumer.resume.side_effect = lambda ps: self._paused.difference_update(p.partition for p in ps)
        consumer.get_watermark_offsets.side_effect = lambda *_, **__: (0, 100)
        consumer.list_topics.side_effect = lambda topic, **_: SimpleNamespace(
            topics={
                topic: SimpleNamespace(
                    error=None, partitions={n: SimpleNamespace(leader=-1 if n in self.leaderless else 1) for n in range(1_000)}
                )
            }
        )

    def _messages(self, max_messages: int) -> list[Message]:
        messages: list[Message] = []
        while self.waiting and len(messages) < max_messages:
            if callable(self.waiting[0]):
                self.waiting.popleft()()  # type: ignore[operator]
            else:
                messages.append(self.waiting.popleft())  # type: ignore[arg-type]
        return messages

    def _committed(self, partitions: Sequence[TopicPartition], **_: Any) -> list[TopicPartition]:
        positions = [(p, *self.committed.get((p.topic, p.partition), (-1_001, OffsetMetadata()))) for p in partitions]
        return [TopicPartition(p.topic, p.partition, offset, mark.encode()) for p, offset, mark in positions]

    def _seek(self, position: TopicPartition) -> None:
        partition = position.topic, position.partition
        if partition in self.unseekable:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.reads[partition] = position.offset

    def _start_positions(self) -> Any:
        def start_position(committed: TopicPartition) -> StartPosition:
            mark = replace(OffsetMetadata.decode(committed.metadata), topic_id=self.topic_id)
            position = TopicPartition(committed.topic, committed.partition, max(0, committed.offset))
            return StartPosition("position", position, mark, self.answers)

        start_positions = create_autospec(StartPositions, instance=True)
        start_positions.determine.side_effect = lambda _, committed: [
            start_position(p) for p in committed if p.offset >= 0 or p.partition not in self.leaderless
        ]
        stale: Callable[[Any], set[Partition]] = lambda marks: {p for p, m in marks.items() if m.topic_id != self.topic_id}  # noqa: E731
        start_positions.recreated.side_effect = stale
        start_positions.recreated_or_absent.side_effect = stale
        start_positions.is_current.side_effect = lambda _, topic_id: topic_id == self.topic_id
        start_positions.are_current.side_effect = lambda ids: all(topic_id == self.topic_id for _, topic_id in ids)
        return start_positions
