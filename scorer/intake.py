"""The consumer: which partitions are ours, since when, and the events to take now.

One thread owns it. Every assignment of a partition begins a new epoch; a batch is only good while the epochs it was taken
under are unchanged, because the broker does not check whose partition an offset belongs to. Positions come from committed
offsets alone: at assignment, and after every recovery.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException, Message, TopicPartition

from publisher.errors import Fatal
from scorer.events.batch import Batch
from scorer.marks import Mark

log = logging.getLogger(__name__)

Partition = tuple[str, int]
COMMITTED_SECONDS = 10.0  # a coordinator that does not tell the committed offsets for so long is given up
FATAL_CODES = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "the right to read this topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "the right to use this consumer group",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "that the topic exists (scorer check --create makes what is missing)",
}


class Intake:
    """Takes events for a scorer.

    `before_assign(partitions)` runs before positions are read: fencing the dead. `start` is earliest or latest and holds
    only where the group has no offset.
    """

    def __init__(
        self,
        consumer: Consumer,
        topics: Sequence[str],
        start: str,
        before_assign: Callable[[Sequence[TopicPartition]], None],
    ) -> None:
        self.epochs: dict[Partition, int] = {}
        self.marks: dict[Partition, Mark] = {}
        self.arrived: set[Partition] = set()
        self.joined = False
        self._consumer = consumer
        self._start = OFFSET_BEGINNING if start == "earliest" else OFFSET_END
        self._before_assign = before_assign
        self._assignments = 0
        self._held: set[Partition] = set()
        self._unread: set[Partition] = set()
        self._next: dict[Partition, int] = {}
        self._group: Any = None
        consumer.subscribe(list(topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke)

    @property
    def group(self) -> Any:
        """The group metadata taken right after the last take: exactly this is sent with that batch's offsets."""
        return self._group

    def take(self, wait: float, limit: Callable[[int], int]) -> Batch | None:
        """At once what is there, or the first event within `wait` seconds and what came with it.

        `limit(timestamp_ms)` says, from the first event's time, how many to take. None where nothing came.
        """
        if self._unread:
            self.rewind(self._unread)
        before = dict(self.epochs)
        first = self._consumer.poll(wait)
        if first is None:
            return None
        messages = [first]
        if first.error() is None and (more := limit(first.timestamp()[1]) - 1) > 0:
            messages += self._consumer.consume(more, 0)
        self._group = self._consumer.consumer_group_metadata()
        changed = {p for p in before.keys() | self.epochs.keys() if before.get(p) != self.epochs.get(p)}
        messages = [m for m in messages if self._usable(m)]
        if changed:  # messages of two assignments may be mixed: read those partitions again from the committed offsets
            self._unread |= {(m.topic(), m.partition()) for m in messages} & changed & self.epochs.keys()  # type: ignore[arg-type]
            messages = [m for m in messages if (m.topic(), m.partition()) not in changed]
        if not messages:
            return None
        batch = self._batch(messages)
        self._next |= batch.next_offsets()
        return batch

    def stale(self, batch: Batch) -> bool:
        """Whether a partition of this batch has been assigned anew, or away, since it was taken."""
        return any(self.epochs.get(partition) != epoch for partition, epoch in batch.epochs.items())

    def rewind(self, partitions: Iterable[Partition] | None = None) -> None:
        """Go back to the committed offsets, of all assigned partitions or of these. Raises Fatal where they cannot be had."""
        wanted = [p for p in (self.epochs if partitions is None else partitions) if p in self.epochs]
        for position in self._positions([TopicPartition(*p) for p in wanted]):
            self._seek(position)
        self._unread.clear()

    def hold(self, partitions: Iterable[Partition]) -> None:
        """Stop reading these for a while."""
        self._held |= set(partitions)
        self._consumer.pause([TopicPartition(*p) for p in partitions])

    def release(self, partitions: Iterable[Partition]) -> None:
        """Read these again."""
        ours = [p for p in partitions if p in self.epochs]
        self._held -= set(partitions)
        self._consumer.resume([TopicPartition(*p) for p in ours])

    def lag(self) -> dict[Partition, int]:
        """Records behind the end of each assigned partition, from what the last fetches told."""
        rows = {}
        for key in self.epochs:
            low, high = self._consumer.get_watermark_offsets(TopicPartition(*key), cached=True)
            if high >= 0:
                rows[key] = max(0, high - self._next.get(key, low))
        return rows

    def close(self) -> None:
        """Leave the group, so that others take over at once."""
        self._consumer.close()

    def _batch(self, messages: list[Message]) -> Batch:
        batch = Batch(
            topics=[m.topic() for m in messages],  # type: ignore[misc]
            partitions=[m.partition() for m in messages],  # type: ignore[misc]
            offsets=[m.offset() for m in messages],  # type: ignore[misc]
            keys=[m.key() for m in messages],
            values=[m.value() for m in messages],
            timestamps=[max(m.timestamp()[1], 0) for m in messages],
            headers=[m.headers() for m in messages],  # type: ignore[misc]
        )
        batch.epochs = {p: self.epochs[p] for p in set(zip(batch.topics, batch.partitions, strict=True))}
        return batch

    def _usable(self, message: Message) -> bool:
        """Whether this is an event. Raises Fatal for an error after which the group member is no good any more."""
        error = message.error()
        if error is None:
            return True
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise self._out_of_range(message)
        if error.fatal() or error.code() == KafkaError._FATAL:
            raise Fatal(f"the consumer group refuses this member: {error.str()}", "start the scorer again")
        if error.code() in FATAL_CODES:
            raise Fatal(f"cannot read {message.topic()}: {error.str()}", f"check {FATAL_CODES[error.code()]}", 3)
        log.warning("consumer: %s", error.str())
        return False

    def _out_of_range(self, message: Message) -> Fatal:
        partition = TopicPartition(message.topic() or "", message.partition() or 0)
        low, high = self._consumer.get_watermark_offsets(partition, timeout=COMMITTED_SECONDS)
        committed = self._consumer.committed([partition], timeout=COMMITTED_SECONDS)[0].offset
        return Fatal(
            f"{partition.topic}[{partition.partition}] holds offsets {low} to {high}, but the group stands at {committed}: "
            "events were deleted before they were scored, or the topic was made anew",
            f"to go on deliberately: scorer offsets CONFIG --topic {partition.topic} --partition {partition.partition} "
            "--to earliest",
            3,
        )

    def _seek(self, position: TopicPartition) -> None:
        """Seek, again while a fresh assignment has not begun to fetch."""
        deadline = time.monotonic() + COMMITTED_SECONDS
        while True:
            try:
                return self._consumer.seek(position)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._STATE or time.monotonic() > deadline:
                    raise Fatal(f"cannot go back to {position}: {error.args[0]}", "start the scorer again") from error
                time.sleep(0.01)

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        if partitions:
            self._before_assign(partitions)
        positions = self._positions(partitions)
        self.joined = True
        self._assignments += 1
        for p in positions:
            self.epochs[p.topic, p.partition] = self._assignments
            self.arrived.add((p.topic, p.partition))
        self._consumer.incremental_assign(positions)
        log.info("assigned: %s", _names(partitions))

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        """Revoked and lost alike: a batch is never half-published here, so there is nothing to finish."""
        for p in partitions:
            key = p.topic, p.partition
            self.epochs.pop(key, None)
            self.marks.pop(key, None)
            self.arrived.discard(key)
            self._held.discard(key)
            self._unread.discard(key)
            self._next.pop(key, None)
        self._consumer.incremental_unassign(partitions)
        log.info("revoked: %s", _names(partitions))

    def _positions(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Where to read from: the committed offset, else the configured start. Takes the marks along."""
        if not partitions:
            return []
        try:
            committed = self._consumer.committed(list(partitions), timeout=COMMITTED_SECONDS)
        except KafkaException as error:
            raise Fatal(f"the committed offsets cannot be read: {error.args[0]}", "check the broker's coordinator") from error
        positions = []
        for p in committed:
            self.marks[p.topic, p.partition] = Mark.decode(p.metadata)
            if p.offset >= 0:
                self._next[p.topic, p.partition] = p.offset
            positions.append(TopicPartition(p.topic, p.partition, p.offset if p.offset >= 0 else self._start))
        return positions


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{p.topic}[{p.partition}]" for p in partitions) or "nothing"
