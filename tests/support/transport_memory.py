"""In-memory topics for the product's consumer, transaction session and processing loop, to measure them without a broker.

Results with these topics prove nothing about delivery guarantees. The consumer returns events that are available from the
start, or each event at its due time. The producers are the scripted producers of the session's conformance suite.
"""

import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from confluent_kafka import TIMESTAMP_CREATE_TIME, Message, TopicPartition

from publisher.transactions.exactly_once import TransactionSession
from publisher.transactions.transactional_ids import transactional_ids
from scorer.consumer.consumer import EventConsumer
from scorer.consumer.offset_metadata import OffsetMetadata
from scorer.consumer.start_offsets import StartPosition
from tests.unit.publisher.transactions.scripted import Log, ScriptedProducer

BACKLOG_MS = 60_000
GROUP = "metadata"
"""The value that scripted producers accept as the metadata of the consumer group."""


class MemoryLog(Log):
    """Topics and a transaction coordinator in memory.

    `committed_at` has the time of each commit, and the number of records that were visible at that time.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.clock = clock
        self.committed_at: list[tuple[float, int]] = []


class MemoryProducer(ScriptedProducer):
    """A scripted producer that never fails, and that records each commit in `MemoryLog.committed_at`."""

    def __init__(self, name: str, log: MemoryLog) -> None:
        super().__init__(name, log, lambda _: None)
        self._memory = log

    def commit_transaction(self, seconds: float) -> None:
        super().commit_transaction(seconds)
        self._memory.committed_at.append((self._memory.clock(), len(self._memory.visible)))


class MemoryConsumer:
    """A consumer of one partition of `topic` with these events; the consumer is the only member of its group.

    `due` has the time at which each event becomes available, ascending, in seconds of the log's clock. If `due` is None, all
    events are available at once with timestamps one minute ago, and the consumer never waits for more.
    """

    def __init__(self, topic: str, events: Sequence[bytes], log: MemoryLog, due: Sequence[float] | None = None) -> None:
        self._topic = topic
        self._log = log
        self._due = due
        self._at = 0
        self._paused = False
        self._assign: Callable[[Any, list[TopicPartition]], None] | None = None
        now_ms = time.time_ns() // 1_000_000
        start = log.clock()
        times = [now_ms + round((at - start) * 1_000) for at in due] if due else [now_ms - BACKLOG_MS] * len(events)
        self._messages = [
            Message(topic=topic, partition=0, offset=offset, value=value, timestamp=(TIMESTAMP_CREATE_TIME, stamp))
            for offset, (value, stamp) in enumerate(zip(events, times, strict=True))
        ]

    def subscribe(self, _: Sequence[str], on_assign: Callable[[Any, list[TopicPartition]], None], **_more: Any) -> None:
        """Store the callback `on_assign`; the first poll assigns the partition."""
        self._assign = on_assign

    def incremental_assign(self, partitions: Sequence[TopicPartition]) -> None:
        self._at = partitions[0].offset

    def poll(self, wait: float) -> Message | None:
        if self._assign is not None:
            assign, self._assign = self._assign, None
            assign(self, [TopicPartition(self._topic, 0)])
        if self._at < len(self._messages) and self._due is not None:
            time.sleep(min(wait, max(0.0, self._due[self._at] - self._log.clock())))
        return next(iter(self.consume(1, 0)), None)

    def consume(self, count: int, _: float) -> list[Message]:
        stop = self._at if self._paused else min(self._at + count, len(self._messages))
        if self._due is not None:
            now = self._log.clock()
            while stop > self._at and self._due[stop - 1] > now:
                stop -= 1
        messages = self._messages[self._at : stop]
        self._at = stop
        return messages

    def pause(self, _: Sequence[TopicPartition]) -> None:
        self._paused = True

    def resume(self, _: Sequence[TopicPartition]) -> None:
        self._paused = False

    def seek(self, position: TopicPartition) -> None:
        self._at = position.offset

    def committed(self, partitions: Sequence[TopicPartition], **_: Any) -> list[TopicPartition]:
        rows = []
        for p in partitions:
            offset, metadata = self._log.positions.get((p.topic, p.partition), (-1_001, None))
            rows.append(TopicPartition(p.topic, p.partition, offset, metadata or ""))
        return rows

    def get_watermark_offsets(self, _: TopicPartition, **_more: Any) -> tuple[int, int]:
        return 0, len(self._messages)

    def list_topics(self, topic: str, **_: Any) -> SimpleNamespace:
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions={0: SimpleNamespace(leader=0)})})

    def memberid(self) -> str:
        return GROUP

    def consumer_group_metadata(self) -> str:
        return GROUP

    def unsubscribe(self) -> None:
        """Do nothing, because the group has no other member."""

    def close(self) -> None:
        """Do nothing, because the group has no other member."""


def start_position(committed: TopicPartition) -> StartPosition:
    """Return the committed offset of the group as the start position, or the start of the partition without one."""
    position = TopicPartition(committed.topic, committed.partition, max(0, committed.offset))
    return StartPosition("position", position, OffsetMetadata.decode(committed.metadata))


def transport(
    owner: str, topic: str, events: Sequence[bytes], log: MemoryLog, due: Sequence[float] | None = None
) -> tuple[EventConsumer, TransactionSession]:
    """Return the product's consumer and an open transaction session over in-memory events.

    `events` and `due` are arguments of `MemoryConsumer`.
    """
    session = TransactionSession(
        lambda name: MemoryProducer(name, log),  # type: ignore[arg-type, return-value]
        transactional_ids(owner),
        transaction_seconds=10.0,
    )
    session.open()
    consumer: Any = MemoryConsumer(topic, events, log, due)
    start_positions: Any = SimpleNamespace(  # no topic is recreated
        recreated=lambda _: set(),
        are_current=lambda _: True,
        determine=lambda _, committed: [start_position(position) for position in committed],
        close=lambda: None,
    )
    return EventConsumer(consumer, [topic], start_positions, session), session
