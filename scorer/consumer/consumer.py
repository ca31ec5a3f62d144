"""The consumer: fetches events, and determines the position of each partition.

One thread owns it. Positions come only from committed offsets: at assignment, and after every recovery.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from publisher.errors import Evicted, Fatal, MemberLost
from publisher.kafka.error_codes import ABSENT, OUT_OF_RANGE, UNDECODABLE
from publisher.kafka.partitions import Partition, in_ranges
from publisher.transactions.protocol import Session
from scorer.consumer import group_offsets
from scorer.consumer.assignment import AssignedPartitions
from scorer.consumer.fetch import BatchFetcher, FetchFailure
from scorer.consumer.native_fetch import open_fetch_source
from scorer.consumer.paused_partitions import GroupMembership, PauseReason, pass_over
from scorer.consumer.sandboxed_partitions import SandboxedInputPartitions
from scorer.consumer.start_offsets import StartPosition, StartPositions
from scorer.consumer.unavailable_partitions import UnavailablePartitions
from scorer.decoding.batch import Batch

log = logging.getLogger(__name__)

FIRST_OFFSET = 0  # of a partition without a leader, which is paused
HEARD_MESSAGES, HEARD_SECONDS = 1_000, 0.05  # at a time, of those that nobody may score
BESIDE_SUSPECTS_SECONDS = 0.01  # a wait for an event while the sandbox reads
LOOK_SECONDS = 10.0  # between looks at the partitions' leaders, and whether somebody has moved the group back into range


class EventConsumer:
    """Fetches events for a scorer.

    `beginnings` decides where a partition without a committed offset begins. `session` completes pending commits before
    committed offsets are
    read, and before partitions are released. `fence(partitions)` ends transactions of dead owners, before positions are read
    at an assignment, and
    returns those owners. `waiting` is called repeatedly while no broker answers, and may raise Aborted. `renew` returns
    another consumer for one
    that is no longer a member. `offsets_command` is the command that moves the group. `suspects` reads partitions that may end
    this process.
    """

    def __init__(
        self,
        consumer: Consumer,
        topics: Sequence[str],
        beginnings: StartPositions,
        session: Session,
        *,
        fence: Callable[[Sequence[TopicPartition]], Collection[str]] = lambda _: (),
        waiting: Callable[[], None] = lambda: None,
        renew: Callable[[], Consumer] | None = None,
        offsets_command: str = "scorer offsets CONFIG",
        suspects: SandboxedInputPartitions | None = None,
    ) -> None:
        self.partitions = AssignedPartitions()
        self.joined = self._closing = False
        self._topics = list(topics)
        self._beginnings = beginnings
        self._session = session
        self._fence = fence
        self._waiting = waiting
        self._renew = renew
        self._offsets_command = offsets_command
        self.unreadable = UnavailablePartitions()
        self._unbegun: set[Partition] = set()  # ours, without a leader that could tell where they begin: not in `partitions`
        self._unread: set[Partition] = set()  # what comes of these does not count before they are read from another position
        self._suspects = suspects
        self._undecodable: set[Partition] = set()  # what came of these before the batch that cannot be read is being scored
        self._suspects_turn = False
        self._look_at = 0.0
        self._pull = BatchFetcher()
        self.group: Any = None
        """The group metadata from right after the last fetch: it is sent with the offsets of that batch."""
        self._join(consumer)

    def take(self, wait: float, limit: Callable[[int], int], until: float = 0.0) -> Batch | None:
        """Return the available events, or the first within `wait` seconds and those `until` then (monotonic seconds).

        `limit(timestamp_ms)` returns the maximum number of events, given the time of the first one. None if no event arrived.
        """
        before = self.partitions.changes  # what begins only now is claimed before anything of it counts
        self._unread |= self._beginnings.made_again(self.partitions.marks())
        if self._unread:
            self.rewind(self._unread)
        if self._suspects is not None and (batch := self._take_suspects(self._suspects, limit)) is not None:
            return batch
        if self._suspects:
            wait = min(wait, BESIDE_SUSPECTS_SECONDS)
        taken = self._pull.take(self._source, wait, limit, until)
        self.group = self._member.group()
        self._look_at_failures(taken.failures)
        without: set[Partition] = set()
        if self.partitions.changes != before:  # events of two assignments may be mixed: those are read again
            without = {*taken.partitions, *taken.ends} - self.partitions.unchanged_since(before)
            self._unread |= taken.partitions & without & set(self.partitions)
        without |= self._unread
        batch = taken.batch(without, self._pull.end)
        begun = self._begun(batch) if batch is not None else None
        if taken.ends:
            ends = {partition: end for partition, end in taken.ends.items() if partition not in without}
            self.partitions.reach(ends, time.time_ns() // 1_000_000)
        return begun

    def passed(self, owner: str) -> list[TopicPartition]:
        """Return the positions to commit that no event advances, as `AssignedPartitions.passed`; no event may be in flight.

        Positions of a topic that was not seen a moment ago, or was recreated, are omitted.
        """
        positions = self.partitions.passed(owner)
        if not positions:
            return []
        ids = {(p.topic, self.partitions.mark((p.topic, p.partition)).topic_id) for p in positions}
        seen = {topic for topic, topic_id in ids if self._beginnings.seen(topic, topic_id)}
        return [p for p in positions if p.topic in seen and (p.topic, p.partition) not in self._unread]

    def stale(self, batch: Batch) -> bool:
        """Return whether a partition of this batch was reassigned, lost, or recreated since the fetch."""
        if not self.partitions.still(batch.epochs):
            return True
        return not self._beginnings.same({(p[0], self.partitions.mark(p).topic_id) for p in batch.epochs})

    def hear(self, wait: float) -> None:
        """Poll the group after it rejected this member. A `rewind` must follow: events are skipped."""
        before, deadline = self.partitions.changes, time.monotonic() + wait
        while self.partitions.changes == before and time.monotonic() < deadline:
            self._look_at_failures(self._source.skip(HEARD_MESSAGES, HEARD_SECONDS))

    def rewind(self, partitions: Iterable[Partition] | None = None) -> None:
        """Return to the committed offsets of all partitions or of these. Raises Evicted; Fatal if there are none."""
        ours = {*self.partitions, *self._unbegun}
        wanted = ours if partitions is None else ours & set(partitions)
        unsought, unbegun = set(), set(wanted)
        for beginning in self._positions([TopicPartition(*p) for p in sorted(wanted)]):
            place = beginning.position.topic, beginning.position.partition
            unbegun.discard(place)
            if place in self._unbegun:
                self._has_begun(beginning)
            else:
                self.partitions.rewind(beginning)
            if self._suspects is not None and self._member.pauses.has(place, "suspect"):
                self._suspects.add(place, beginning.position.offset)
            if not self._member.seek(beginning.position):
                unsought.add(place)
        self._undecodable -= wanted
        self._unread = (self._unread - wanted) | unsought
        self._without_beginning(unbegun)
        self.group = self._member.group()

    def rejoin(self) -> None:
        """Join the group as another member: all partitions are lost and assigned again by the group."""
        if self._renew is None:
            raise Fatal("the consumer is no member of its group any more", "start the scorer again")
        self._leave(self._consumer, [TopicPartition(*p) for p in (*self.partitions, *self._unbegun)], lost=True)
        self._closing = True  # what is assigned to the old consumer while it closes is not ours
        self._source.close()
        try:
            consumer = self._renew()
        finally:
            self._closing = False
        self._join(consumer)

    def pause(self, partitions: Iterable[Partition], reason: PauseReason) -> None:
        """Stop reading these partitions until this reason is removed."""
        self._member.pauses.pause(partitions, reason)

    def resume(self, partitions: Iterable[Partition], reason: PauseReason) -> None:
        """Remove a reason; partitions without another one are read again."""
        self._member.pauses.resume(partitions, reason)

    def look_again(self, now: float) -> None:
        """Log partitions without a leader, and read out-of-range partitions again whose group position was moved.

        A position that comes into range by itself is not used: records before it were never read. `now` is in monotonic
        seconds.
        """
        if now < self._look_at:
            return
        self._look_at = now + LOOK_SECONDS
        without = group_offsets.leaderless(self._consumer, self._topics)
        self.unreadable.leaders({p for p in without if p in self.partitions or p in self._unbegun})
        self._unread |= self._unbegun - without
        committed = self.partitions.committed()
        if moved := group_offsets.moved(self._consumer, {p: committed[p] for p in self.unreadable.outside}):
            self.follow(moved)

    def follow(self, partitions: Collection[Partition]) -> None:
        """Read these partitions from the group's new positions, also those that were out of range."""
        self.rewind(partitions)
        for partition in partitions:
            log.info("%s[%d]: the group was moved; reading again", *partition)
            self._in_range(partition)

    def elsewhere(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Return the committed positions of partitions of other members, as far as a broker reports them."""
        return group_offsets.committed_if_known(self._consumer, partitions)

    def lag(self) -> dict[Partition, int]:
        """Return the records behind the end of each assigned partition; without those of unknown end."""
        held = self._member.pauses.partitions - self.unreadable.leaderless
        found = group_offsets.partition_bounds(self._consumer, self.partitions, held)
        return {p: max(0, high - (self.partitions.next(p) or 0)) for p, (_, high) in found.items()}

    def close(self) -> None:
        """Leave the group, so that other members take over at once."""
        self._closing = True
        self._beginnings.close()
        if self._suspects is not None:
            self._suspects.close()
        if not self.partitions and not self._unbegun:  # a cooperative consumer of nothing would not leave (librdkafka 2.16)
            self._consumer.unsubscribe()
        self._source.close()
        self._consumer.close()

    def _take_suspects(self, suspects: SandboxedInputPartitions, limit: Callable[[int], int]) -> Batch | None:
        """Return events of sandboxed partitions on every second call: the group is polled in between."""
        for partition in self._undecodable:
            suspects.add(partition, self.partitions.next(partition) or 0)
        self._undecodable.clear()
        self._suspects_turn = not self._suspects_turn and bool(suspects)
        batch = suspects.take(limit, lambda p: self._member.pauses.only(p, "suspect"), 0.0) if self._suspects_turn else None
        if batch is not None:
            self.group = self._member.group()
            self._begun(batch)
        for partition in [p for p in suspects.cleared if p not in suspects]:
            self._clear(suspects, partition)
        return batch

    def _clear(self, suspects: SandboxedInputPartitions, partition: Partition) -> None:
        """Let the consumer itself read a partition that no longer needs the sandbox."""
        here = self.partitions.next(partition)
        if here is None or self._member.seek(TopicPartition(*partition, here)):
            suspects.cleared.discard(partition)
            self.partitions.suspect(partition, suspect=False)
            self.resume([partition], "suspect")
            log.info("%s[%d] is no longer read in the sandbox", *partition)

    def _begun(self, batch: Batch) -> Batch:
        batch.epochs = self.partitions.epochs(batch.reached)
        self.partitions.read(batch.reached)
        return batch

    def _look_at_failures(self, failures: Iterable[FetchFailure]) -> None:
        """Handle failures instead of events.

        A missing topic may be about to be recreated: `beginnings` waits for it. If a position is out of range, the topic may
        have been recreated, or
        the error may concern an earlier position: it is read again. Other failures are ignored, or raised.
        """
        outside: dict[Partition, int | None] = {}
        for partition, offset, error in failures:
            if error in OUT_OF_RANGE:
                outside[partition] = offset
            elif error in UNDECODABLE and self._suspects is not None:
                self._suspect(partition, error)
            elif error not in ABSENT:
                pass_over(partition[0], error)
        if not outside:
            return
        again = self._beginnings.look({p: mark for p, mark in self.partitions.marks().items() if p in outside})
        for partition, at in outside.items():
            here = self.partitions.next(partition)
            if here is not None and self.unreadable.is_doubtful(partition, at, here):
                again.add(partition)
        self._unread |= again
        self._pause_outside(outside.keys() - again)

    def _suspect(self, partition: Partition, error: KafkaError) -> None:
        """Read a partition in the sandbox whose next batch the client cannot read."""
        if partition in self.partitions and not self._member.pauses.has(partition, "suspect"):
            log.warning("%s[%d] is read in the sandbox: %s", *partition, error.str())
            self.pause([partition], "suspect")
            self._undecodable.add(partition)

    def _pause_outside(self, partitions: set[Partition]) -> None:
        """Pause partitions whose position is out of range, with an alarm; the others continue."""
        committed = self.partitions.committed()
        for partition in sorted(partitions & committed.keys() - set(self.unreadable.outside)):
            self.pause([partition], "out of range")
            why = group_offsets.out_of_range(
                self._consumer, TopicPartition(*partition), committed[partition], self._offsets_command
            )
            self.unreadable.out_of_range(partition, why)

    def _in_range(self, partition: Partition) -> None:
        self.resume([partition], "out of range")
        self.unreadable.in_range(partition)

    def _join(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._member = GroupMembership(consumer, sends_group=self._session.sends_group)
        self._source = open_fetch_source(consumer)
        revoked, lost = partial(self._leave, lost=False), partial(self._leave, lost=True)
        consumer.subscribe(self._topics, on_assign=self._on_assign, on_revoke=revoked, on_lost=lost)

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        if self._closing:  # it came too late to be ours, and a consumer that closes is told no committed offsets any more
            return
        dead = self._fence(partitions) if partitions else ()
        try:
            beginnings = self._positions(partitions)
        except Evicted as error:
            raise MemberLost(f"assigned and refused at once: {error}") from error
        self.joined = True
        self.partitions.assign(beginnings)
        unbegun = {(p.topic, p.partition) for p in partitions} - set(self.partitions)
        suspects = self._suspects.among(beginnings, dead) if self._suspects is not None else {}
        # Never a logical offset: the pause makes the client ask for it once more after 500 ms, and the answer would then undo
        # a seek (librdkafka 2.16). A fetch that begins before the pause is outdated by it, and is not decompressed.
        waiting = [TopicPartition(*place, FIRST_OFFSET) for place in sorted(unbegun)]
        self._source.forward(partitions)
        self._consumer.incremental_assign([b.position for b in beginnings] + waiting)
        self._without_beginning(unbegun)
        self._begin_suspects(suspects)
        log.info("assigned: %s", _in_ranges(partitions))

    def _begin_suspects(self, suspects: dict[Partition, int]) -> None:
        if self._suspects is None or not suspects:
            return
        self.pause(sorted(suspects), "suspect")
        for partition, offset in suspects.items():
            self._suspects.add(partition, offset)
            self.partitions.suspect(partition)
        log.info("%d partitions whose last owner died are read in the sandbox at first", len(suspects))

    def _leave(self, _: Consumer, partitions: list[TopicPartition], *, lost: bool) -> None:
        self._session.release(partitions, lost=lost)
        places = [(p.topic, p.partition) for p in partitions]
        self.partitions.leave(places)
        self.unreadable.forget(places)
        self._unread.difference_update(places)
        self._unbegun.difference_update(places)
        self._undecodable.difference_update(places)
        if self._suspects is not None:
            self._suspects.forget(places)
        self._member.pauses.forget(places)
        self._consumer.incremental_unassign(partitions)
        log.info("%s: %s", "lost" if lost else "revoked", _in_ranges(partitions))

    def _positions(self, partitions: Sequence[TopicPartition]) -> list[StartPosition]:
        """Return the positions to read from: the committed offset, else the one of `beginnings`.

        Partitions without a leader are omitted. Raises MemberLost if another client must read.
        """
        self._session.wait_for_commit()
        found = group_offsets.committed(self._consumer, partitions, self._waiting)
        beginnings = self._beginnings.of(self._consumer, list(map(self.partitions.remembered, found)))
        self._member.check_topics(beginnings)
        return beginnings

    def _has_begun(self, beginning: StartPosition) -> None:
        """Start reading a partition that has a leader now."""
        place = beginning.position.topic, beginning.position.partition
        self.partitions.assign([beginning])
        self._unbegun.discard(place)
        self.resume([place], "no leader")

    def _without_beginning(self, partitions: set[Partition]) -> None:
        """Do not read these partitions before they have a leader; what was known of them is forgotten."""
        if known := [p for p in partitions if p in self.partitions]:
            self.partitions.leave(known)
            for place in known:
                self._in_range(place)
        self._unbegun |= partitions
        self.pause(sorted(partitions), "no leader")


def _in_ranges(partitions: Iterable[TopicPartition]) -> str:
    return in_ranges((p.topic, p.partition) for p in partitions) or "nothing"
