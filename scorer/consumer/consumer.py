"""The consumer of a scorer: fetches events, and determines the position of each partition.

One thread owns the consumer. Positions come only from committed offsets: at an assignment, and after every recovery. The table
in partition_table.py decides which partitions are read, dropped or paused. This module calls the client, and never publishes.
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
from publisher.runtime.context import Context
from publisher.transactions.session import Session
from scorer.consumer import group_offsets
from scorer.consumer.assignment import AssignedPartitions
from scorer.consumer.batch_fetcher import BatchFetcher
from scorer.consumer.fence_dead_owners import DeadOwners
from scorer.consumer.group_membership import GroupMembership, check_failure
from scorer.consumer.partition_table import (
    Doubted,
    Event,
    Held,
    Hold,
    LeftRange,
    PartitionTable,
    PauseChange,
    Released,
    SandboxUse,
    Signal,
    Stage,
)
from scorer.consumer.sandboxed_partitions import SandboxedInputPartitions
from scorer.consumer.start_offsets import StartPosition, StartPositions
from scorer.decoding.batch import Batch
from scorer.fetch.native_source import open_fetch_source
from scorer.fetch.source import FetchFailure

log = logging.getLogger(__name__)

FIRST_OFFSET = 0  # the position of a paused partition without a leader
SKIPPED_MESSAGES = 1_000  # the most messages that one poll of `poll_group` skips
SKIP_SECONDS = 0.05  # the longest wait of one poll of `poll_group`
BESIDE_SUSPECTS_SECONDS = 0.01  # the wait for an event while the sandbox reads
CHECK_SECONDS = 10.0  # between two checks of the partitions' leaders, and of the group's positions of out-of-range partitions


class EventConsumer:
    """The group member of a scorer: fetches events, tracks positions, and pauses partitions that must not be read.

    Args:
        consumer: the client, which is not subscribed yet.
        topics: the input topics.
        start_positions: the source of the start position of each partition.
        session: the publishing session that commits the offsets. Its pending commits are completed before committed offsets
            are read, and before partitions are released.
        fence: a function that ends the open transactions of dead owners, and returns these owners. A dead owner is a scorer
            that died while it owned one of the given partitions. The function is called at an assignment, before positions
            are read.
        context: the clock, and a check that is called repeatedly while no broker answers. The check may raise Aborted.
        renew: a function that closes a client which is no longer a member, and returns a new client.
        offsets_command: the command with which an operator moves the group's positions, for error messages.
        suspects: the reader of partitions whose records may crash this process. It reads them in a sandbox process. None to use
            no sandbox.

    Attributes:
        partitions: the positions of the assigned partitions.
        joined: whether the group has completed an assignment for this consumer. The assignment may be empty.
        group: the group metadata as of the last fetch. It is sent with the offsets of the fetched batch.
    """

    def __init__(
        self,
        consumer: Consumer,
        topics: Sequence[str],
        start_positions: StartPositions,
        session: Session,
        *,
        fence: Callable[[Sequence[TopicPartition]], DeadOwners] = lambda _: DeadOwners(),
        context: Context | None = None,
        renew: Callable[[], Consumer] | None = None,
        offsets_command: str = "scorer offsets CONFIG",
        suspects: SandboxedInputPartitions | None = None,
    ) -> None:
        self.partitions = AssignedPartitions()
        self.joined = False
        self._closing = False
        self._topics = list(topics)
        self._start_positions = start_positions
        self._session = session
        self._fence = fence
        self._context = context or Context()
        self._renew = renew
        self._offsets_command = offsets_command
        self._table = PartitionTable()
        self._suspects = suspects
        self._suspects_turn = False
        self._check_at = 0.0
        self._pull = BatchFetcher()
        self.group: Any = None
        self._join(consumer)

    def take(self, wait: float, limit: Callable[[int], int], until: float = 0.0) -> Batch | None:
        """Return a batch of the available events; None if no event arrived.

        Args:
            wait: how long to wait for the first event, in seconds.
            limit: a function from the timestamp of the first event, in Unix ms, to the maximum number of events.
            until: the time until which to wait for further events, in monotonic seconds.
        """
        before = self.partitions.changes  # a partition that is assigned from here on must be claimed before its events count
        self._apply(self._start_positions.recreated(self.partitions.metadata_by_partition()), Signal.INVALIDATED)
        if self._table.due:
            self.rewind(self._table.due)
        if self._suspects is not None and (batch := self._take_suspects(self._suspects, limit)) is not None:
            return batch
        if self._suspects:
            wait = min(wait, BESIDE_SUSPECTS_SECONDS)
        taken = self._pull.take(self._source, wait, limit, until)
        self.group = self._member.group()
        self._handle_failures(taken.failures)
        dropped: set[Partition] = set()
        if self.partitions.changes != before:  # events of two assignments may be mixed: these partitions are read again
            dropped = {*taken.partitions, *taken.ends} - self.partitions.unchanged_since(before)
            self._apply(taken.partitions & dropped, Signal.INVALIDATED)
        dropped |= self._table.due
        batch = taken.batch(dropped, self._pull.end)
        if batch is not None:
            self._record_fetch(batch)
        if taken.ends:
            ends = {partition: end for partition, end in taken.ends.items() if partition not in dropped}
            self.partitions.advance_to_end(ends, self._context.clock.now_ms())
        return batch

    def positions_without_events(self, owner: str) -> list[TopicPartition]:
        """Return the positions that skip offsets without events; see `AssignedPartitions.positions_without_events`.

        Call this only while no event is in flight.
        """
        # A position is omitted if its partition must be rewound first, or if no recent poll has confirmed the topic's id.
        positions = self.partitions.positions_without_events(owner)
        if not positions:
            return []
        ids = {(p.topic, self.partitions.metadata((p.topic, p.partition)).topic_id) for p in positions}
        current = {topic for topic, topic_id in ids if self._start_positions.is_current(topic, topic_id)}
        return [p for p in positions if p.topic in current and (p.topic, p.partition) not in self._table.due]

    def is_stale(self, batch: Batch) -> bool:
        """Return whether a partition of this batch was reassigned, lost or recreated since the fetch."""
        if not self.partitions.are_current(batch.epochs):
            return True
        return not self._start_positions.are_current({(p[0], self.partitions.metadata(p).topic_id) for p in batch.epochs})

    def poll_group(self, wait: float) -> None:
        """Poll the group for up to `wait` seconds or until the assignment changes. Events that arrive meanwhile are dropped.

        The caller must call `rewind` or `rejoin` before it takes the next batch.
        """
        before = self.partitions.changes
        deadline = time.monotonic() + wait
        while self.partitions.changes == before and time.monotonic() < deadline:
            self._handle_failures(self._source.skip(SKIPPED_MESSAGES, SKIP_SECONDS))

    def rewind(self, partitions: Iterable[Partition] | None = None) -> None:
        """Continue at the committed offsets of these partitions, or of all partitions if None.

        Raises:
            Evicted: The group rejects this member.
            MemberLost: This client cannot continue. A new client must join the group in its place.
            Fatal: A partition has no start offset.
        """
        wanted = set(self._table)
        if partitions is not None:
            wanted.intersection_update(partitions)
        without_start = set(wanted)
        for start in self._read_positions([TopicPartition(*p) for p in sorted(wanted)]):
            partition = start.position.topic, start.position.partition
            without_start.discard(partition)
            if partition in self.partitions:
                self.partitions.rewind(start)
            else:
                self.partitions.assign([start])
            self._apply([partition], Signal.REWOUND)
            state = self._table.state(partition)
            if self._suspects is not None and state is not None and state.sandbox is SandboxUse.ACTIVE:
                self._suspects.add(partition, start.position.offset)
            if not self._member.seek(start.position):
                self._apply([partition], Signal.INVALIDATED)
        if started := [p for p in without_start if p in self.partitions]:
            self.partitions.remove(started)
        self._apply(without_start, Signal.START_UNKNOWN)
        self.group = self._member.group()

    def rejoin(self) -> None:
        """Replace the client and join the group as a new member. It owns no partition until the group assigns some."""
        if self._renew is None:
            raise Fatal("the consumer is no longer a member of its group", "start the scorer again")
        self._leave(self._consumer, [TopicPartition(*p) for p in self._table], lost=True)
        self._closing = True  # partitions that are assigned to the old client while it closes do not belong to this scorer
        self._source.close()
        try:
            consumer = self._renew()
        finally:
            self._closing = False
        self._join(consumer)

    def pause(self, partitions: Iterable[Partition], reason: Hold) -> None:
        """Stop fetching these partitions until `resume` is called with the same reason."""
        self._apply(partitions, Held(reason))

    def resume(self, partitions: Iterable[Partition], reason: Hold) -> None:
        """Remove this reason for a pause. Partitions without another reason are fetched again."""
        self._apply(partitions, Released(reason))

    def unavailable_reasons(self) -> dict[Partition, str]:
        """Return the reason (a sentence) for each assigned partition that has no leader or whose position is not in the log."""
        return self._table.unavailable_reasons()

    def check_unreadable(self, now: float) -> None:
        """Check the partitions that cannot be read, and resume those that can be read again.

        `now` is in monotonic seconds. For CHECK_SECONDS after a check, the method does nothing.
        """
        # A partition whose position is out of range is resumed if an operator has moved the group's committed offset. Otherwise
        # it stays paused, even if its log has grown past the position in the meantime, because the records before the position
        # were never read.
        if now < self._check_at:
            return
        self._check_at = now + CHECK_SECONDS
        self._check_leaders()
        committed = self.partitions.committed()
        if moved := group_offsets.moved(self._consumer, {p: committed[p] for p in self._table.out_of_range()}):
            for partition in moved:
                log.info("%s[%d]: an operator moved the committed offset of the group; reading from the new offset", *partition)
            self.follow(moved)

    def _check_leaders(self) -> None:
        leaderless = group_offsets.leaderless(self._consumer, self._topics)
        before = self._table.leaderless()
        self._apply([p for p in self._table if p not in leaderless], Signal.LEADER_FOUND)
        self._apply(leaderless, Signal.LEADER_LOST)
        after = self._table.leaderless()
        if before - after:
            log.info("partitions that have a leader again: %s", in_ranges(before - after))
        if after - before:
            log.error(
                "no broker leads %s: these partitions are not read for now, the other partitions are still read",
                in_ranges(after - before),
            )

    def follow(self, partitions: Collection[Partition]) -> None:
        """Read these partitions at their committed offsets, which have changed. Resume partitions that were out of range."""
        self.rewind(partitions)
        self._apply(partitions, Signal.MOVED)

    def committed_offsets(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Return the group's committed offsets, also for partitions of other members; an empty dict if the request fails."""
        return group_offsets.committed_if_known(self._consumer, partitions)

    def lag(self) -> dict[Partition, int]:
        """Return, for each partition, the number of offsets from the next offset to read to the end of the log.

        Partitions whose end is unknown are omitted.
        """
        paused = self._table.paused() - self._table.leaderless()
        bounds = group_offsets.partition_bounds(self._consumer, self.partitions, paused)
        return {p: max(0, high - (self.partitions.next(p) or 0)) for p, (_, high) in bounds.items()}

    def close(self) -> None:
        """Close the client and leave the group, so that other members take over the partitions at once."""
        self._closing = True
        self._start_positions.close()
        if self._suspects is not None:
            self._suspects.close()
        if not self._table:  # else a consumer without partitions does not leave (librdkafka 2.16)
            self._consumer.unsubscribe()
        self._source.close()
        self._consumer.close()

    def _take_suspects(self, suspects: SandboxedInputPartitions, limit: Callable[[int], int]) -> Batch | None:
        """Return a batch that the sandbox process has read; None if no batch is available.

        While the sandbox reads partitions, every second call returns None, so that other partitions are also read.
        """
        # On the other calls the caller polls the group and fetches events of the other partitions.
        if self._table.sandbox_due:
            for partition in self._table.sandbox_due:
                suspects.add(partition, self.partitions.next(partition) or 0)
            self._apply([*self._table.sandbox_due], Signal.SANDBOX_STARTED)
        self._suspects_turn = not self._suspects_turn and bool(suspects)
        batch = suspects.take(limit, self._may_sandbox_read, 0.0) if self._suspects_turn else None
        if batch is not None:
            self.group = self._member.group()
            self._record_fetch(batch)
        for partition in [p for p in suspects.cleared if p not in suspects]:
            self._end_sandboxed_reads(suspects, partition)
        return batch

    def _may_sandbox_read(self, partition: Partition) -> bool:
        state = self._table.state(partition)
        return state is not None and state.pause_reasons == {"suspect"}

    def _end_sandboxed_reads(self, suspects: SandboxedInputPartitions, partition: Partition) -> None:
        """Let the client read a partition from its next offset on, in place of the sandbox."""
        # If the client rejects the seek to this offset, nothing changes, and a later call retries.
        position = self.partitions.next(partition)
        if position is None or self._member.seek(TopicPartition(*partition, position)):
            suspects.cleared.discard(partition)
            self.partitions.set_sandboxed(partition, sandboxed=False)
            self._apply([partition], Signal.SANDBOX_PASSED)
            log.info("%s[%d] is no longer read in the sandbox", *partition)

    def _record_fetch(self, batch: Batch) -> None:
        batch.epochs = self.partitions.epochs(batch.reached)
        self.partitions.read(batch.reached)

    def _handle_failures(self, failures: Iterable[FetchFailure]) -> None:
        """Handle the failures that the client returned instead of events."""
        # - The position is out of range: the partition is paused, or rewound if its topic was recreated or the error may
        # concern an earlier position.
        # - The client cannot decode a batch: the sandbox process reads the partition.
        # - The topic is missing: ignored, because `start_positions` waits until the topic is recreated.
        # - Any other failure is passed to `check_failure`.
        outside: dict[Partition, int | None] = {}
        for partition, offset, error in failures:
            if error in OUT_OF_RANGE:
                outside[partition] = offset
            elif error in UNDECODABLE and self._suspects is not None:
                self._suspect(partition, error)
            elif error not in ABSENT:
                check_failure(partition[0], error)
        if not outside:
            return
        to_rewind = self._start_positions.recreated_or_absent(
            {p: mark for p, mark in self.partitions.metadata_by_partition().items() if p in outside}
        )
        for partition, offset in outside.items():
            position = self.partitions.next(partition)
            state = self._table.state(partition)
            if position is None or state is None:
                continue
            if state.is_doubtful(offset, position):
                to_rewind.add(partition)
            if offset is None or offset < 0:
                self._apply([partition], Doubted(position))
        self._apply(to_rewind, Signal.INVALIDATED)
        self._pause_outside(outside.keys() - to_rewind)

    def _suspect(self, partition: Partition, error: KafkaError) -> None:
        """Let the sandbox process read a partition, because this process cannot decode its next record batch."""
        state = self._table.state(partition)
        if state is not None and state.has_position and state.sandbox is SandboxUse.UNUSED:
            log.warning("%s[%d] cannot be decoded by this process; a sandbox process reads it: %s", *partition, error.str())
            self._apply([partition], Signal.UNDECODABLE)

    def _pause_outside(self, partitions: set[Partition]) -> None:
        """Pause these partitions, whose position is not in the log, and log an error. The other partitions are still read."""
        committed = self.partitions.committed()
        for partition in sorted(partitions & committed.keys() - self._table.out_of_range()):
            reason = group_offsets.describe_out_of_range(
                self._consumer, TopicPartition(*partition), committed[partition], self._offsets_command
            )
            self._apply([partition], LeftRange(reason))
            log.error("%s; the other partitions are still read", reason)

    def _apply(self, partitions: Iterable[Partition], event: Event) -> None:
        self._call_client(self._table.apply(partitions, event))

    def _call_client(self, change: PauseChange) -> None:
        if change.pause:
            self._consumer.pause([TopicPartition(*p) for p in change.pause])
        if change.resume:
            self._consumer.resume([TopicPartition(*p) for p in change.resume])

    def _join(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._member = GroupMembership(consumer, sends_group=self._session.sends_group)
        self._source = open_fetch_source(consumer)
        consumer.subscribe(
            self._topics,
            on_assign=self._on_assign,
            on_revoke=partial(self._leave, lost=False),
            on_lost=partial(self._leave, lost=True),
        )

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        if self._closing:  # the client leaves the group, and can no longer read committed offsets
            return
        dead = self._fence(partitions) if partitions else DeadOwners()
        try:
            starts = self._read_positions(partitions)
        except Evicted as error:
            raise MemberLost(f"the group rejected this member right after an assignment: {error}") from error
        self.joined = True
        member = self._consumer.memberid() or ""
        self.partitions.member = member
        self.partitions.assign(starts)
        with_start = [(start.position.topic, start.position.partition) for start in starts]
        without_start = {(p.topic, p.partition) for p in partitions}.difference(with_start)
        suspects = self._suspects.suspects_among(starts, dead, member) if self._suspects is not None else {}
        # Only absolute offsets: after a pause the client resolves a logical offset again 500 ms later, and the answer would
        # undo a seek (librdkafka 2.16). The pause outdates a fetch that started before it: its records are not decompressed.
        leaderless = [TopicPartition(*partition, FIRST_OFFSET) for partition in sorted(without_start)]
        self._source.forward(partitions)
        self._consumer.incremental_assign([start.position for start in starts] + leaderless)
        self._call_client(self._table.assign(with_start, Stage.FETCHING))
        self._call_client(self._table.assign(sorted(without_start), Stage.NO_LEADER))
        self._sandbox(suspects)
        log.info("assigned: %s", _in_ranges(partitions))

    def _sandbox(self, suspects: dict[Partition, int]) -> None:
        if self._suspects is None or not suspects:
            return
        self._apply(sorted(suspects), Signal.SUSPECTED)
        for partition, offset in suspects.items():
            self._suspects.add(partition, offset)
            self.partitions.set_sandboxed(partition)
        log.info("%d partitions of scorers that died are first read in a sandbox process", len(suspects))

    def _leave(self, _: Consumer, partitions: list[TopicPartition], *, lost: bool) -> None:
        self._session.release(partitions, lost=lost)
        keys = [(p.topic, p.partition) for p in partitions]
        self.partitions.remove(keys)
        if self._suspects is not None:
            self._suspects.forget(keys)
        self._call_client(self._table.remove(keys))
        self._consumer.incremental_unassign(partitions)
        log.info("%s: %s", "lost" if lost else "revoked", _in_ranges(partitions))

    def _read_positions(self, partitions: Sequence[TopicPartition]) -> list[StartPosition]:
        """Return the position from which to read each partition: the committed offset if it is valid, else a start offset.

        Omit partitions that have neither a valid committed offset nor a leader. Raise MemberLost if a new client must join the
        group in place of this client.
        """
        self._session.wait_for_commit()
        committed = group_offsets.committed(self._consumer, partitions, self._context)
        starts = self._start_positions.determine(self._consumer, list(map(self.partitions.position_or_recorded, committed)))
        self._member.check_topics(starts)
        return starts


def _in_ranges(partitions: Iterable[TopicPartition]) -> str:
    return in_ranges((p.topic, p.partition) for p in partitions) or "nothing"
