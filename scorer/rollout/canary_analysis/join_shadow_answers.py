"""Join the scorers' answers with the shadow's answers to the same events, by source position. Pure.

Both kinds of answers arrive in the order of each source partition, so an answer waits only until the other kind has reached its
event. Failures may arrive after the scores of slightly later events: dead letters come from another topic, and the shadow
writes the failures of a batch last.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from publisher.kafka.partitions import Partition

Offsets = NDArray[np.int64]
Tickets = NDArray[np.int64]
"""Integers that identify records; the caller assigns one to each record."""


class JoinSide(IntEnum):
    """One of the two sides of the join: ANSWERED for the scorers' answers, or SHADOW for the shadow's answers."""

    ANSWERED = 0  # scores and dead letters
    SHADOW = 1

    @property
    def other(self) -> "JoinSide":
        """The opposite side."""
        return JoinSide(1 - self)


class JoinedPairs(NamedTuple):
    """Pairs of answers to events of one source partition, as three arrays with one entry per pair.

    Attributes:
        offsets: The offsets of the events, (n,).
        answered: The numbers (tickets) of the scorers' answers, (n,).
        shadow: The numbers (tickets) of the shadow's answers, (n,).
    """

    offsets: Offsets
    answered: Tickets
    shadow: Tickets


def concatenate(parts: Sequence[JoinedPairs]) -> JoinedPairs:
    """Concatenate several sets of pairs into one."""
    return JoinedPairs(*map(np.concatenate, zip(*parts, strict=True)))


class DroppedCounts(NamedTuple):
    """The numbers of answers that were dropped without a partner, the other side's answer to the same event.

    Attributes:
        unsampled: Answers to events that the shadow did not score.
        orphans: Shadow answers without a scorer's answer, for example if the scorer answered before the start of reading.
        crowded: Answers that were dropped because too many answers waited, or that arrived after their partner was dropped.
    """

    # `crowded` depends on how fast each side is read.

    unsampled: int
    orphans: int
    crowded: int


class PendingRecords:
    """The answers that wait for a partner (the other side's answer), ordered by the offsets of their events.

    All of them are answers to events of one source partition, and from one side: the scorers or the shadow.
    """

    def __init__(self) -> None:
        self.offsets: Offsets = np.empty(0, np.int64)
        self.records: Tickets = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self.records)

    def add(self, offsets: Offsets, records: Tickets) -> None:
        """Add answers that wait for a partner, in any order."""
        self.offsets = np.concatenate([self.offsets, offsets])
        self.records = np.concatenate([self.records, records])
        if (self.offsets[1:] < self.offsets[:-1]).any():
            order = np.argsort(self.offsets, kind="stable")
            self.offsets = self.offsets[order]
            self.records = self.records[order]

    def pop_matches(self, offsets: Offsets) -> tuple[NDArray[np.int64], Tickets]:
        """Remove the answers to the events at these offsets.

        Returns:
            Two arrays with one entry for each removed answer: its index in `offsets`, and its number (ticket).
        """
        places = np.searchsorted(self.offsets, offsets)
        hits = np.flatnonzero(places < len(self.offsets))
        hits = hits[self.offsets[places[hits]] == offsets[hits]]
        waiting, first = np.unique(places[hits], return_index=True)
        records = self.records[waiting]
        if len(waiting):
            keep = np.ones(len(self), np.bool_)
            keep[waiting] = False
            self.offsets = self.offsets[keep]
            self.records = self.records[keep]
        return hits[first], records

    def drop(self, until: int) -> int:
        """Remove the answers to events up to an offset, inclusive, and return their number."""
        count = int(np.searchsorted(self.offsets, until, side="right"))
        if count:
            self.offsets = self.offsets[count:]
            self.records = self.records[count:]
        return count


@dataclass(slots=True)
class _PartitionJoin:
    """The state of the join for one source partition. Offsets are those of events; -1 before the first event.

    Attributes:
        waiting: The answers that wait for a partner, for each JoinSide.
        last_offsets: The largest offset of the answers added so far, for each JoinSide. Dead letters do not count, because
            answers to earlier events may follow them.
        earlier_offsets: The value of `last_offsets` when `drop_unmatched` was last called for the side.
        closed: Scorers' answers without a partner are dropped up to this offset (inclusive).
    """

    waiting: tuple[PendingRecords, PendingRecords] = field(default_factory=lambda: (PendingRecords(), PendingRecords()))
    last_offsets: list[int] = field(default_factory=lambda: [-1, -1])
    earlier_offsets: list[int] = field(default_factory=lambda: [-1, -1])
    closed: int = -1


class MergeJoin:
    """Joins the scorers' answers and the shadow's answers to the same events into pairs.

    The join does not store the answers. The caller assigns a number (ticket) to each answer, and passes two arrays: the offsets
    of the answered events, (n,), and the tickets of the answers, (n,).
    """

    def __init__(self, most: int, late: int) -> None:
        """Create an empty join.

        Args:
            most: The number of answers that may wait, on both sides of all partitions together.
            late: A scorer's answer without a partner is dropped if the shadow answers an event at least `late` offsets later.
        """
        self.late = late
        self._most = most
        self._joins: dict[Partition, _PartitionJoin] = {}
        self._dropped: Counter[str] = Counter()

    @property
    def dropped(self) -> DroppedCounts:
        """The numbers of records that were dropped without a partner."""
        return DroppedCounts(*(self._dropped[name] for name in DroppedCounts._fields))

    @property
    def waiting(self) -> int:
        """The number of answers that wait for a partner."""
        return sum(len(each) for lane in self._joins.values() for each in lane.waiting)

    def waiting_tickets(self) -> Tickets:
        """Return the numbers (tickets) of all answers that wait for a partner."""
        every = (each.records for lane in self._joins.values() for each in lane.waiting)
        return np.concatenate([np.empty(0, np.int64), *every])

    def count_waiting(self, side: JoinSide, partition: Partition) -> int:
        """Return how many scorers' or shadow answers of a source partition wait for a partner."""
        lane = self._joins.get(partition)
        return 0 if lane is None else len(lane.waiting[side])

    def add(
        self, side: JoinSide, partition: Partition, offsets: Offsets, records: Tickets, *, late: bool = False
    ) -> JoinedPairs:
        """Add answers of a source partition, and return the pairs that they complete.

        Args:
            side: Whether these are scorers' or shadow answers.
            partition: The partition of the events.
            offsets: The offsets of the events, (n,).
            records: The numbers (tickets) of the answers, (n,).
            late: Whether answers to earlier events may still follow, as for dead letters.
        """
        lane = self._joins.setdefault(partition, _PartitionJoin())
        rows, partners = lane.waiting[side.other].pop_matches(offsets)
        alone = np.ones(len(offsets), np.bool_)
        alone[rows] = False
        closed = alone & (offsets <= lane.closed)
        if side is JoinSide.SHADOW:  # if the scorers have passed the event, their answer may have been dropped while it waited
            closed &= offsets <= lane.last_offsets[JoinSide.ANSWERED]
        self._dropped["unsampled" if side is JoinSide.ANSWERED else "crowded"] += int(closed.sum())
        alone &= ~closed
        lane.waiting[side].add(offsets[alone], records[alone])
        if not late:
            lane.last_offsets[side] = max(lane.last_offsets[side], int(offsets.max(initial=-1)))
        if side is JoinSide.SHADOW:
            self._close(lane, lane.last_offsets[side] - self.late)
        self._make_room()
        joined = offsets[rows]
        matches = records[rows]
        if side is JoinSide.ANSWERED:
            return JoinedPairs(joined, matches, partners)
        return JoinedPairs(joined, partners, matches)

    def drop_unmatched(self, side: JoinSide) -> None:
        """Drop the waiting answers that can no longer get a partner from `side`.

        Before the call, the caller must have added all answers of `side` that existed at the previous call.
        """
        # An answer is dropped if `side` had already passed its event at the previous call.
        for lane in self._joins.values():
            if side is JoinSide.SHADOW:
                self._close(lane, lane.earlier_offsets[side])
            else:
                self._dropped["orphans"] += lane.waiting[JoinSide.SHADOW].drop(lane.earlier_offsets[side])
            lane.earlier_offsets[side] = lane.last_offsets[side]

    def _close(self, lane: _PartitionJoin, until: int) -> None:
        if until > lane.closed:
            lane.closed = until
            self._dropped["unsampled"] += lane.waiting[JoinSide.ANSWERED].drop(until)

    def _make_room(self) -> None:
        """While too many answers wait, drop the older half of the largest set of waiting answers."""
        while self.waiting > self._most:
            fullest = max((each for lane in self._joins.values() for each in lane.waiting), key=len)
            self._dropped["crowded"] += fullest.drop(int(fullest.offsets[(len(fullest) - 1) // 2]))
