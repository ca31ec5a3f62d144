"""The consumer: which partitions are ours, since when, and the events to take now.

One thread owns it. Every assignment of a partition begins a new epoch; a batch is only good while the epochs it was taken
under are unchanged, because the broker does not check whose partition an offset belongs to. Positions come from committed
offsets alone: at assignment, and after every recovery.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition
from msgspec.structs import replace

from publisher.errors import Evicted, Fatal, MemberLost
from publisher.kafka.error_codes import ABSENT, NOT_NOW, OUT_OF_RANGE
from publisher.kafka.partitions import Partition
from scorer.events.batch import Batch, End
from scorer.intake import group_offsets
from scorer.intake.beginnings import AnswersFrom, Beginning, Beginnings, known
from scorer.intake.columns import batch_of, chunk
from scorer.intake.consumer_errors import out_of_range, usable
from scorer.intake.marks import Mark
from scorer.intake.pauses import Pauses

log = logging.getLogger(__name__)

HEARD_MESSAGES, HEARD_SECONDS = 1_000, 0.05  # at a time, of those that nobody may score
ELSEWHERE_SECONDS = 1.0
SEEK_SECONDS = 10.0  # a fresh assignment has begun to fetch by then
LOOK_SECONDS = 10.0  # between looks at the partitions' leaders, and whether somebody has moved the group back into range
RANGE, UNLED = "out of range", "no leader"  # why a partition is held


class Intake:
    """Takes events for a scorer.

    `before_assign(partitions)` runs before positions are read: it fences the dead. `before_revoke(partitions, lost)` runs while
    they are still ours, unless they are lost.
    `before_read` runs before committed offsets are read: what is being committed has to be decided by then. `waiting` is called
    now and then while no broker tells them, and may raise Aborted. `beginnings` says where to begin without any.
    `renew` gives another consumer for the one that is no member any more. `outside` says of partitions that cannot be
    read why that is. `marks` and `committed` are what the group's offsets say, `arrived` the assignments that nobody has
    looked at yet, `anew` the partitions of topics that were made again of which nothing has been answered. Only `transactional`
    sessions send the group metadata, and it is not cheap: a quarter of what a batch of one event costs.
    """

    def __init__(
        self,
        consumer: Consumer,
        topics: Sequence[str],
        beginnings: Beginnings,
        before_assign: Callable[[Sequence[TopicPartition]], None],
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
        self.leader_epochs: dict[Partition, int] = {}
        self.arrived: set[Partition] = set()
        self.joined = self._closing = False
        self._topics = list(topics)
        self._renew = renew
        self._transactional = transactional
        self.anew: dict[Partition, AnswersFrom] = {}
        self._beginnings = beginnings
        self._before_assign = before_assign
        self._before_revoke = before_revoke
        self._before_read = before_read
        self._waiting = waiting
        self._changes = self._largest = 0
        self._look_at = 0.0
        self._unled: set[Partition] = set()
        self._unsought_since = 0.0  # when a seek first failed of those that fail now
        self._unread: set[Partition] = set()
        self._unbegun: set[Partition] = set()  # ours, without a leader that could tell where they begin
        self._next: dict[Partition, int] = {}
        self._doubted: dict[Partition, int] = {}
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
        self._unread |= self._beginnings.made_again(self.marks)
        if self._unread:
            self.rewind(self._unread)
        before = dict(self.epochs)
        messages = self._read(wait, limit)
        self._group = self._ask_group()
        changed = {p for p in before.keys() | self.epochs.keys() if before.get(p) != self.epochs.get(p)}
        if any(map(Message.error, messages)):
            messages = self._usable(messages)
        if changed:  # messages of two assignments may be mixed: read those partitions again from the committed offsets
            self._unread |= {(m.topic(), m.partition()) for m in messages} & changed & self.epochs.keys()  # type: ignore[arg-type]
            messages = [m for m in messages if (m.topic(), m.partition()) not in changed]
        if self._unread:
            messages = [m for m in messages if (m.topic(), m.partition()) not in self._unread]
        return self._batch(messages, self._end) if messages else None

    def stale(self, batch: Batch) -> bool:
        """Whether a partition of this batch has been assigned anew, or away, or is another topic's since it was taken."""
        if any(self.epochs.get(partition) != epoch for partition, epoch in batch.epochs.items()):
            return True
        return not self._beginnings.same({(p[0], self.marks[p].topic_id) for p in batch.epochs})

    def offsets(self, batch: Batch, mark: Mark, reached: Mapping[Partition, int] | None = None) -> list[TopicPartition]:
        """The positions after a batch, or those that a part of it has `reached`, under this mark with the topic's id, with the
        leader epoch of the last event."""
        marks: dict[str, str] = {}
        positions = []
        for partition, offset in (reached or batch.reached).items():
            topic_id = self.marks.get(partition, mark).topic_id
            if topic_id not in marks:
                marks[topic_id] = replace(mark, topic_id=topic_id).encode()
            epoch = known(batch.leader_epochs[partition])
            positions.append(TopicPartition(*partition, offset, marks[topic_id], epoch))
        return positions

    def commit(self, batch: Batch, mark: Mark) -> None:
        """The offsets after a batch are committed under this mark: known to us where the partition has been ours since."""
        for partition, offset in batch.reached.items():
            if self.epochs.get(partition) == batch.epochs[partition]:
                self.marks[partition] = replace(mark, topic_id=self.marks[partition].topic_id)
                self.committed[partition] = offset
                self.leader_epochs[partition] = known(batch.leader_epochs[partition])
                self.anew.pop(partition, None)

    def hear(self, wait: float) -> None:
        """Wait for what the group says to a member that it has refused. A `rewind` has to follow: events are skipped."""
        before, deadline = self._changes, time.monotonic() + wait
        while self._changes == before and time.monotonic() < deadline:
            self._usable(self._consumer.consume(HEARD_MESSAGES, HEARD_SECONDS))

    def rewind(self, partitions: Iterable[Partition] | None = None) -> None:
        """Go back to the committed offsets, of all partitions or of these. Raises Evicted; Fatal where there are none."""
        wanted = [p for p in (self.epochs if partitions is None else partitions) if p in self.epochs]
        positions = self._positions([TopicPartition(*p) for p in wanted])
        self._unread = (self._unread - set(wanted)) | {(p.topic, p.partition) for p in positions if not self._seek(p)}
        self.hold(self._unbegun, UNLED)
        self._group = self._ask_group()

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
        self._unread |= self._unbegun - self._unled
        moved = group_offsets.moved(self._consumer, {p: self.committed[p] for p in self.outside.keys() - self._unled})
        if moved:
            self.rewind(moved)
            self.release(moved, RANGE)
            for partition in moved:
                log.info("%s[%d]: the group was moved; reading again", *partition)
                self.outside.pop(partition, None)

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

    def elsewhere(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """What the group has committed of partitions that others hold, where a broker tells."""
        asked = [TopicPartition(*p) for p in partitions]
        try:
            found = self._consumer.committed(asked, timeout=ELSEWHERE_SECONDS) if asked else []
        except KafkaException:
            return {}
        return {(p.topic, p.partition): p.offset for p in found if p.error is None}

    def lag(self) -> dict[Partition, int]:
        """Records behind the end of each assigned partition; missing where no end is known."""
        found = group_offsets.known_ends(self._consumer, self.epochs, set(self._pauses.partitions) - self._unled)
        return {key: max(0, high - self._next.get(key, low)) for key, (low, high) in found.items()}

    def close(self) -> None:
        """Leave the group, so that others take over at once."""
        self._closing = True
        self._beginnings.close()
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

    def _batch(self, messages: list[Message], end: End) -> Batch:
        batch = batch_of(messages, end)
        batch.epochs = {p: self.epochs[p] for p in batch.reached}
        batch.leader_epochs = {p: messages[at].leader_epoch() for p, at in batch.last.items()}
        self._next |= batch.reached
        return batch

    def _seek(self, position: TopicPartition) -> bool:
        """Whether reading goes on there; not where an assignment has not begun to fetch, or is about to go."""
        try:
            self._consumer.seek(position)
        except KafkaException as error:
            self._unsought_since = self._unsought_since or time.monotonic()
            if error.args[0] not in NOT_NOW or time.monotonic() > self._unsought_since + SEEK_SECONDS:
                self._unsought_since = 0.0
                raise MemberLost(f"cannot go back to {position}: {error.args[0]}") from error
            return False
        self._unsought_since = 0.0
        return True

    def _usable(self, messages: Iterable[Message]) -> list[Message]:
        """Those that are events. A topic that is not there may be about to be made again: `beginnings` waits for it. Where a
        position is out of range, the topic may be another one by now, or the error about an earlier position: it is read anew.
        """
        events: list[Message] = []
        outside: dict[Partition, int | None] = {}
        for message in messages:
            error = message.error()
            if error is None:
                events.append(message)
            elif error in OUT_OF_RANGE:
                outside[message.topic(), message.partition()] = message.offset()  # type: ignore[index]
            elif error not in ABSENT:
                usable(message)
        if not outside:
            return events
        again = self._beginnings.look({p: mark for p, mark in self.marks.items() if p in outside})
        again |= {p for p in outside.keys() & self._next.keys() if self._is_doubtful(p, outside[p])}
        self._unread |= again
        self._hold_outside(outside.keys() - again)
        return [m for m in events if (m.topic(), m.partition()) not in again]

    def _is_doubtful(self, partition: Partition, at: int | None) -> bool:
        """Whether an error may be about an earlier position than ours. Of a log that was cut the client does not say where:
        that is doubted once for each position."""
        here = self._next[partition]
        if at is not None and at >= 0:
            return at != here
        before, self._doubted[partition] = self._doubted.get(partition), here
        return before != here

    def _hold_outside(self, partitions: set[Partition]) -> None:
        """Hold partitions whose position is out of range, with an alarm, while the others go on."""
        for partition in sorted(partitions & self.epochs.keys() - (self.outside.keys() - self._unled)):
            self._unled.discard(partition)
            self.hold([partition], RANGE)
            self.outside[partition] = out_of_range(self._consumer, TopicPartition(*partition), self.committed[partition])
            log.error("%s; the others go on", self.outside[partition])

    def _join(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._topic_ids: dict[str, str] = {}
        self._pauses = Pauses(consumer)
        self._ask_group: Callable[[], Any] = consumer.consumer_group_metadata if self._transactional else lambda: None
        revoked, lost = partial(self._leave, lost=False), partial(self._leave, lost=True)
        consumer.subscribe(self._topics, on_assign=self._on_assign, on_revoke=revoked, on_lost=lost)

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        if self._closing:  # it came too late to be ours, and a consumer that closes is told no committed offsets any more
            return
        if partitions:
            self._before_assign(partitions)
        try:
            positions = self._positions(partitions)
        except Evicted as error:
            raise MemberLost(f"assigned and refused at once: {error}") from error
        self.joined = True
        self._changes += 1
        self.epochs |= {(p.topic, p.partition): self._changes for p in partitions}
        self.arrived |= {(p.topic, p.partition) for p in positions}
        unbegun = [TopicPartition(*p, OFFSET_BEGINNING) for p in self._unbegun & {(p.topic, p.partition) for p in partitions}]
        self._consumer.incremental_assign([*positions, *unbegun])
        self.hold(self._unbegun, UNLED)
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
            self.outside.pop(key, None)
            self._unread.discard(key)
            self._unbegun.discard(key)
            self._next.pop(key, None)
            self._doubted.pop(key, None)
            self.leader_epochs.pop(key, None)
            self.anew.pop(key, None)
        self._pauses.forget([(p.topic, p.partition) for p in partitions])
        self._consumer.incremental_unassign(partitions)
        log.info("%s: %s", "lost" if lost else "revoked", _names(partitions))

    def _positions(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Where to read from: the committed offset, else where `beginnings` says; partitions that it leaves out are `_unbegun`
        from here on. Takes the marks along.

        Raises MemberLost where a topic was made again: its leader epochs begin at 0, and a client that has known higher ones of
        the old topic takes those for outdated, and never reads the new topic (librdkafka 2.16). Another client does.
        """
        self._before_read()
        found = group_offsets.committed(self._consumer, partitions, self._waiting)
        beginnings = self._beginnings.of(self._consumer, list(map(self._remembered, found)))
        for position, topic_id in ((b.position, b.mark.topic_id) for b in beginnings):
            if self._topic_ids.setdefault(position.topic, topic_id) != topic_id:
                raise MemberLost(f"{position.topic} was made again, and the client reads on at the old one's leader epochs")
        begun = {(b.position.topic, b.position.partition): self._begin(b) for b in beginnings}
        late = self._unbegun & begun.keys()
        self.arrived |= late
        self.release(late, UNLED)
        self._unbegun -= late
        for key in {(p.topic, p.partition) for p in partitions} - begun.keys():
            self._without_beginning(key)
        return list(begun.values())

    def _without_beginning(self, key: Partition) -> None:
        """What is known of a partition counts no more: it is held until it has a leader, and begins then."""
        self._unbegun.add(key)
        self.arrived.discard(key)
        self.marks[key] = Mark()
        for known_of in (self.committed, self._next, self.leader_epochs, self.anew):
            known_of.pop(key, None)
        if key in self.epochs:
            self._changes += 1
            self.epochs[key] = self._changes

    def _remembered(self, told: TopicPartition) -> TopicPartition:
        """The group's position; ours, where the group has none yet."""
        key = told.topic, told.partition
        if told.offset >= 0 or key not in self.committed:
            return told
        return TopicPartition(*key, self.committed[key], self.marks[key].encode())

    def _begin(self, beginning: Beginning) -> TopicPartition:
        position = beginning.position
        key = position.topic, position.partition
        before = self.marks.get(key)
        if key in self.epochs and before is not None and before.topic_id != beginning.mark.topic_id:
            self._changes += 1  # what is in hand of it is another topic's
            self.epochs[key] = self._changes
            self.release([key], RANGE)
            self.outside.pop(key, None)
        self.marks[key] = beginning.mark
        self.committed[key] = self._next[key] = position.offset
        self.leader_epochs[key] = known(position.leader_epoch)
        if beginning.after is not None:
            self.anew[key] = beginning.after
        return position


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{p.topic}[{p.partition}]" for p in partitions) or "nothing"
