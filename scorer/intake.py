"""The consumer: which partitions are ours, since when, and the events to take now.

One thread owns it. Every assignment of a partition begins a new epoch; a batch is only good while the epochs it was taken
under are unchanged, because the broker does not check whose partition an offset belongs to. Positions come from committed
offsets alone: at assignment, and after every recovery.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException, Message, TopicPartition

from publisher.errors import Evicted, Fatal, MemberLost
from scorer import group_offsets
from scorer.attempts import Arrival
from scorer.batching import chunk
from scorer.columns import batch_of
from scorer.consumer_errors import out_of_range, usable
from scorer.events.batch import Batch, End
from scorer.isolation import Isolation
from scorer.marks import Mark
from scorer.pauses import Pauses

log = logging.getLogger(__name__)

Partition = tuple[str, int]
HEARD_MESSAGES, HEARD_SECONDS = 1_000, 0.05  # at a time, of those that nobody may score
SEEK_SECONDS = 10.0  # a fresh assignment has begun to fetch by then
LOOK_SECONDS = 10.0  # between looks at the partitions' leaders, and whether somebody has moved the group back into range
RANGE = "out of range"  # why a partition is held


class Intake:
    """Takes events for `owner`, a scorer.

    `before_assign(partitions)` runs before positions are read: it fences the dead and tells who they are (`owner` among them
    means an earlier life of ours). `before_revoke(partitions, lost)` runs while they are still ours, unless they are lost.
    `before_read` runs before committed offsets are read: what is being committed has to be decided by then. `waiting` is called
    now and then while no broker tells them, and may raise Aborted. `start` (earliest or latest) holds where there are none.
    `renew` gives another consumer for the one that is no member any more. `outside` says of partitions that cannot be read
    why that is. `marks` and `committed` are what the group's offsets say, `arrivals` the assignments that nobody has claimed
    yet. Only `transactional` sessions send the group metadata, which is not cheap: a quarter of a batch of one event.
    """

    def __init__(
        self,
        consumer: Consumer,
        owner: str,
        topics: Sequence[str],
        start: str,
        before_assign: Callable[[Sequence[TopicPartition]], set[str]],
        before_revoke: Callable[[Sequence[TopicPartition], bool], None],
        before_read: Callable[[], None],
        waiting: Callable[[], None] = lambda: None,
        *,
        renew: Callable[[], Consumer] | None = None,
        transactional: bool = True,
    ) -> None:
        self.epochs: dict[Partition, int] = {}
        self.outside: dict[Partition, str] = {}
        self.marks: dict[Partition, Mark] = {}
        self.committed: dict[Partition, int] = {}
        self.arrived: set[Partition] = set()
        self.arrivals: dict[Partition, Arrival] = {}
        self.joined = self._closing = False
        self._topics = list(topics)
        self._renew = renew
        self._transactional = transactional
        self._owner = owner
        self._start = OFFSET_BEGINNING if start == "earliest" else OFFSET_END
        self._before_assign = before_assign
        self._before_revoke = before_revoke
        self._before_read = before_read
        self._waiting = waiting
        self._changes = self._largest = 0
        self._look_at = 0.0
        self._unled: set[Partition] = set()
        self._unread: set[Partition] = set()
        self._next: dict[Partition, int] = {}
        self._lived: set[Partition] = set()
        self._alone = Isolation()
        self._end: End = "empty"
        self._group: Any = None
        self._join(consumer)

    @property
    def group(self) -> Any:
        """The group metadata taken right after the last read: exactly this is sent with the offsets that follow from it."""
        return self._group

    def take(self, wait: float, limit: Callable[[int], int]) -> Batch | None:
        """At once what is there, or the first event within `wait` seconds and what came with it.

        `limit(timestamp_ms)` says, from the first event's time, how many to take. None where nothing came.
        """
        if self._unread:
            self.rewind(self._unread)
        if alone := self._alone.next():
            self._resume_alone(alone[0])
            return self._batch(alone, "isolation")
        before = dict(self.epochs)
        messages = self._read(0.0 if self._alone.waiting else wait, limit)
        self._group = self._ask_group()
        changed = {p for p in before.keys() | self.epochs.keys() if before.get(p) != self.epochs.get(p)}
        if any(map(Message.error, messages)):
            messages = list(filter(self._usable, messages))
        if changed:  # messages of two assignments may be mixed: read those partitions again from the committed offsets
            self._unread |= {(m.topic(), m.partition()) for m in messages} & changed & self.epochs.keys()  # type: ignore[arg-type]
            messages = [m for m in messages if (m.topic(), m.partition()) not in changed]
        if self._alone.partitions:
            messages = self._keep_aside(messages)
        return self._batch(messages, self._end) if messages else None

    def stale(self, batch: Batch) -> bool:
        """Whether a partition of this batch has been assigned anew, or away, since it was taken."""
        return any(self.epochs.get(partition) != epoch for partition, epoch in batch.epochs.items())

    def commit(self, batch: Batch, mark: Mark) -> None:
        """The offsets after a batch are committed under this mark: known to us where the partition has been ours since."""
        for partition, offset in batch.reached.items():
            if self.epochs.get(partition) == batch.epochs[partition]:
                self.marks[partition] = mark
                self.committed[partition] = offset

    def hear(self, wait: float) -> None:
        """Wait for what the group says to a member that it has refused. A `rewind` has to follow: events are skipped."""
        before, deadline = self._changes, time.monotonic() + wait
        while self._changes == before and time.monotonic() < deadline:
            for message in self._consumer.consume(HEARD_MESSAGES, HEARD_SECONDS):
                self._usable(message)

    def rewind(self, partitions: Iterable[Partition] | None = None) -> None:
        """Go back to the committed offsets, of all partitions or of these. Raises Evicted; Fatal where there are none."""
        wanted = [p for p in (self.epochs if partitions is None else partitions) if p in self.epochs]
        if aside := self._alone.waiting & set(wanted):
            self._alone.forget(aside)
            self._consumer.resume([TopicPartition(*p) for p in aside])
        for position in self._positions([TopicPartition(*p) for p in wanted]):
            self._seek(position)
        self._unread.clear()
        self._group = self._ask_group()

    def isolate(self, partition: Partition) -> None:
        """From now on events of this partition come one at a time, in a batch of their own."""
        self._alone.partitions.add(partition)

    def join(self, partition: Partition) -> None:
        """Its events come together with others again."""
        self._alone.partitions.discard(partition)

    def rejoin(self) -> None:
        """Join the group as another member: all partitions are lost, and come back as the group says."""
        if self._renew is None:
            raise Fatal("the consumer is no member of its group any more", "start the scorer again")
        self._leave(self._consumer, [TopicPartition(*p) for p in self.epochs], lost=True)
        self._join(self._renew())

    def hold(self, partitions: Iterable[Partition], reason: str) -> None:
        """Stop reading these until this reason is gone."""
        self._pauses.hold(partitions, reason)

    def release(self, partitions: Iterable[Partition], reason: str) -> None:
        """Read these again, unless another reason holds them."""
        self._pauses.release(partitions, reason)

    def look_again(self, now: float) -> None:
        """Tell of partitions without a leader, and read those again that were out of range where the group was moved since.

        A position that has come into range by itself is none to go on from: records before it were never read. `now` is in
        monotonic seconds.
        """
        if now < self._look_at:
            return
        self._look_at = now + LOOK_SECONDS
        self._mind_leaders()
        moved = group_offsets.moved(self._consumer, {p: self.committed[p] for p in self.outside.keys() - self._unled})
        if moved:
            self.rewind(moved)
            self.release(moved, RANGE)
            for partition in moved:
                log.info("%s[%d]: the group was moved; reading again", *partition)
                del self.outside[partition]

    def _mind_leaders(self) -> None:
        """The client itself goes on with a partition when it has a leader again."""
        without = group_offsets.leaderless(self._consumer, self._topics) & self.epochs.keys()
        for partition in without - self.outside.keys():
            self._unled.add(partition)
            self.outside[partition] = "{}[{}] has no leader: none of its brokers is there".format(*partition)
            log.error("%s; the others go on", self.outside[partition])
        for partition in self._unled - without:
            self._unled.discard(partition)
            if self.outside.pop(partition, None):
                log.info("%s[%d] has a leader again", *partition)

    def lag(self) -> dict[Partition, int]:
        """Records behind the end of each assigned partition; missing where no end is known."""
        found = group_offsets.known_ends(self._consumer, self.epochs, self._pauses.partitions)
        return {key: max(0, high - self._next.get(key, low)) for key, (low, high) in found.items()}

    def close(self) -> None:
        """Leave the group, so that others take over at once."""
        self._closing = True
        if not self.epochs:  # a cooperative librdkafka consumer that holds nothing does not leave when it closes (2.16)
            self._consumer.unsubscribe()
        self._consumer.close()

    def _read(self, wait: float, limit: Callable[[int], int]) -> list[Message]:
        """What there is, up to the limits in events and in bytes; the first message within `wait` seconds."""
        self._end = "empty"
        first = self._consumer.poll(wait)
        if first is None:
            return []
        messages = [first]
        if first.error() is not None:
            return messages
        most = limit(first.timestamp()[1])
        size = largest = len(first)
        while (more := chunk(most - len(messages), size, max(largest, self._largest))) > 0:
            came = self._consumer.consume(more, 0)
            messages += came
            sizes = list(map(len, came))
            size, largest = size + sum(sizes), max(largest, *sizes, 0)
            if len(came) < more:
                break
        else:
            self._end = "events" if len(messages) >= most else "bytes"
        self._largest = largest
        return messages

    def _keep_aside(self, messages: list[Message]) -> list[Message]:
        """Without those of isolated partitions, which are not read on until what waits of them is answered."""
        before = self._alone.waiting
        others = self._alone.split(messages)
        if fresh := self._alone.waiting - before:
            self._consumer.pause([TopicPartition(*p) for p in fresh])
        return others

    def _resume_alone(self, taken: Message) -> None:
        """Read a partition on when nothing waits of it any more."""
        partition: Partition = taken.topic(), taken.partition()  # type: ignore[assignment]
        if partition not in self._alone.waiting:
            self._consumer.resume([TopicPartition(*partition)])

    def _batch(self, messages: list[Message], end: End) -> Batch:
        batch = batch_of(messages, end)
        batch.epochs = {p: self.epochs[p] for p in batch.reached}
        self._next |= batch.reached
        return batch

    def _seek(self, position: TopicPartition) -> None:
        """Seek, again while a fresh assignment has not begun to fetch."""
        deadline = time.monotonic() + SEEK_SECONDS
        while True:
            try:
                return self._consumer.seek(position)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._STATE or time.monotonic() > deadline:
                    raise MemberLost(f"cannot go back to {position}: {error.args[0]}") from error
                self._waiting()
                time.sleep(0.01)

    def _usable(self, message: Message) -> bool:
        """Whether this is an event. A partition whose position is out of range is held, with an alarm, and the others go on."""
        error = message.error()
        if error is None or error.code() != KafkaError._AUTO_OFFSET_RESET:
            return usable(message)
        partition: Partition = message.topic(), message.partition()  # type: ignore[assignment]
        if partition in self.epochs and partition not in self.outside:
            self.hold([partition], RANGE)
            self.outside[partition] = out_of_range(self._consumer, TopicPartition(*partition), self.committed[partition])
            log.error("%s; the others go on", self.outside[partition])
        return False

    def _join(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._pauses = Pauses(consumer)
        self._ask_group: Callable[[], Any] = consumer.consumer_group_metadata if self._transactional else lambda: None
        revoked, lost = partial(self._leave, lost=False), partial(self._leave, lost=True)
        consumer.subscribe(self._topics, on_assign=self._on_assign, on_revoke=revoked, on_lost=lost)

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        if self._closing:  # it came too late to be ours, and a consumer that closes is told no committed offsets any more
            return
        dead = self._before_assign(partitions) if partitions else set()
        try:
            positions = self._positions(partitions)
        except Evicted as error:
            raise MemberLost(f"assigned and refused at once: {error}") from error
        self.arrivals |= self._arrivals(positions, dead)
        self.joined = True
        self._changes += 1
        for p in positions:
            self.epochs[p.topic, p.partition] = self._changes
            self.arrived.add((p.topic, p.partition))
        self._consumer.incremental_assign(positions)
        log.info("assigned: %s", _names(partitions))

    def _leave(self, _: Consumer, partitions: list[TopicPartition], *, lost: bool) -> None:
        self._before_revoke(partitions, lost)
        self._changes += 1
        for p in partitions:
            key = p.topic, p.partition
            self.epochs.pop(key, None)
            self.marks.pop(key, None)
            self.committed.pop(key, None)
            self.arrived.discard(key)
            self.arrivals.pop(key, None)
            self.join(key)
            self._alone.forget([key])
            self.outside.pop(key, None)
            self._unread.discard(key)
            self._next.pop(key, None)
        self._pauses.forget([(p.topic, p.partition) for p in partitions])
        self._consumer.incremental_unassign(partitions)
        log.info("%s: %s", "lost" if lost else "revoked", _names(partitions))

    def _positions(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Where to read from: the committed offset, else the configured start. Takes the marks along."""
        self._before_read()
        found = group_offsets.committed(self._consumer, partitions, self._waiting)
        fresh = [(p.topic, p.partition) for p in found if p.offset < 0 and (p.topic, p.partition) not in self.committed]
        starts = group_offsets.edges(self._consumer, fresh, self._start, self._waiting)
        positions = []
        for p in found:
            key = p.topic, p.partition
            offset = p.offset if p.offset >= 0 else self.committed.get(key, starts.get(key, 0))
            self.marks[key] = Mark.decode(p.metadata)
            self.committed[key] = self._next[key] = offset
            positions.append(TopicPartition(*key, offset))
        return positions

    def _arrivals(self, positions: Sequence[TopicPartition], dead: set[str]) -> dict[Partition, Arrival]:
        """What each assignment found; see attempts.py. The ends are only asked for where something is suspicious."""
        crashed = {(p.topic, p.partition): self._crashed((p.topic, p.partition), dead) for p in positions}
        suspicious = [p for p, died in crashed.items() if died or self.marks[p].attempts]
        ends = group_offsets.edges(self._consumer, suspicious, OFFSET_END, self._waiting)
        waiting = {p: max(0, ends.get(p, 0) - self.committed[p]) for p in crashed}
        self._lived |= crashed.keys()
        return {
            p: Arrival.after(self.marks[p].attempts, alone=self.marks[p].alone, crashed=died, waiting=waiting[p])
            for p, died in crashed.items()
        }

    def _crashed(self, partition: Partition, dead: set[str]) -> bool:
        """Whether the owner before this assignment died with it. Ours is the name of an earlier life, until we had it."""
        owner = self.marks[partition].owner
        return owner in dead and not (owner == self._owner and partition in self._lived)


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{p.topic}[{p.partition}]" for p in partitions) or "nothing"
