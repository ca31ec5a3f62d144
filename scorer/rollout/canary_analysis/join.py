"""Joins what the scorers answered with what the shadow answered, event by event, by source position. Pure.

Both sides come in the order of each source partition, so a record waits only for as long as the other side is behind. What
failed may stand a little behind later scores: dead letters in a topic of their own, the shadow's failures in a batch.
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
"""A number for each record, by which somebody else has it."""


class JoinSide(IntEnum):
    ANSWERED = 0  # scores and dead letters
    SHADOW = 1

    @property
    def other(self) -> "JoinSide":
        return JoinSide(1 - self)


class JoinedPairs(NamedTuple):
    """Both answers to the events at these offsets."""

    offsets: Offsets
    answered: Tickets
    shadow: Tickets


def concatenate(every: Sequence[JoinedPairs]) -> JoinedPairs:
    """One behind the other."""
    return JoinedPairs(*map(np.concatenate, zip(*every, strict=True)))


class DroppedCounts(NamedTuple):
    """Records without a partner. `unsampled`: the shadow did not score the event. `orphans`: the shadow did, and no answer was
    there, such as of events before the window. `crowded`: they waited while too many others did, or came after a partner
    that was dropped; which records these are depends on the pace of reading."""

    unsampled: int
    orphans: int
    crowded: int


class PendingRecords:
    """Records by rising offset."""

    def __init__(self) -> None:
        self.offsets: Offsets = np.empty(0, np.int64)
        self.records: Tickets = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self.records)

    def add(self, offsets: Offsets, records: Tickets) -> None:
        """In any order."""
        self.offsets, self.records = np.concatenate([self.offsets, offsets]), np.concatenate([self.records, records])
        if (self.offsets[1:] < self.offsets[:-1]).any():
            order = np.argsort(self.offsets, kind="stable")
            self.offsets, self.records = self.offsets[order], self.records[order]

    def matched(self, offsets: Offsets) -> tuple[NDArray[np.int64], Tickets]:
        """The places in `offsets` of those that wait here, each once, and their records, which are taken away."""
        places = np.searchsorted(self.offsets, offsets)
        there = np.flatnonzero(places < len(self.offsets))
        there = there[self.offsets[places[there]] == offsets[there]]
        mine, first = np.unique(places[there], return_index=True)
        found = self.records[mine]
        if len(mine):
            keep = np.ones(len(self), np.bool_)
            keep[mine] = False
            self.offsets, self.records = self.offsets[keep], self.records[keep]
        return there[first], found

    def drop(self, until: int) -> int:
        """Remove the records up to an offset, inclusive; how many."""
        count = int(np.searchsorted(self.offsets, until, side="right"))
        if count:
            self.offsets, self.records = self.offsets[count:], self.records[count:]
        return count


@dataclass(slots=True)
class _PartitionJoin:
    """What waits of one source partition, for each side. Offsets, -1 before the first: `passed` is the last of each side, late
    records left out, `seen` what that was when the side was last settled, and scores up to `closed` wait no more."""

    waiting: tuple[PendingRecords, PendingRecords] = field(default_factory=lambda: (PendingRecords(), PendingRecords()))
    passed: list[int] = field(default_factory=lambda: [-1, -1])
    seen: list[int] = field(default_factory=lambda: [-1, -1])
    closed: int = -1


class MergeJoin:
    """Takes batches of both sides, as offsets and tickets, (n,) each, and gives the pairs. At most `most` records wait, all
    partitions together. A score waits until the shadow is `late` offsets past it."""

    def __init__(self, most: int, late: int) -> None:
        self.late = late
        self._most = most
        self._lanes: dict[Partition, _PartitionJoin] = {}
        self._dropped: Counter[str] = Counter()

    @property
    def dropped(self) -> DroppedCounts:
        return DroppedCounts(*(self._dropped[name] for name in DroppedCounts._fields))

    @property
    def waiting(self) -> int:
        return sum(len(each) for lane in self._lanes.values() for each in lane.waiting)

    def tickets(self) -> Tickets:
        """Those of all records that wait."""
        every = (each.records for lane in self._lanes.values() for each in lane.waiting)
        return np.concatenate([np.empty(0, np.int64), *every])

    def held(self, side: JoinSide, partition: Partition) -> int:
        """How many records of one side of a source partition wait."""
        lane = self._lanes.get(partition)
        return 0 if lane is None else len(lane.waiting[side])

    def add(
        self, side: JoinSide, partition: Partition, offsets: Offsets, records: Tickets, *, late: bool = False
    ) -> JoinedPairs:
        """Take in records of a source partition, and return the pairs that they complete.

        Args:
            side: the side of all these records.
            partition: the partition of their events.
            offsets: the offsets of their events, (n,).
            records: their tickets, (n,).
            late: whether they are of another topic, so that records of earlier events may still come.
        """
        lane = self._lanes.setdefault(partition, _PartitionJoin())
        rows, theirs = lane.waiting[side.other].matched(offsets)
        alone = np.ones(len(offsets), np.bool_)
        alone[rows] = False
        closed = alone & (offsets <= lane.closed)
        if side is JoinSide.SHADOW:  # an answer that was passed may have been dropped as it waited for this one
            closed &= offsets <= lane.passed[JoinSide.ANSWERED]
        self._dropped["unsampled" if side is JoinSide.ANSWERED else "crowded"] += int(closed.sum())
        alone &= ~closed
        lane.waiting[side].add(offsets[alone], records[alone])
        if not late:
            lane.passed[side] = max(lane.passed[side], int(offsets.max(initial=-1)))
        if side is JoinSide.SHADOW:
            self._close(lane, lane.passed[side] - self.late)
        self._make_room()
        found, mine = offsets[rows], records[rows]
        return JoinedPairs(found, mine, theirs) if side is JoinSide.ANSWERED else JoinedPairs(found, theirs, mine)

    def settle(self, side: JoinSide) -> None:
        """Drop the other side's records that this side had passed at the last call. Everything that this side had by then must
        be taken in between two calls, what failed too."""
        for lane in self._lanes.values():
            if side is JoinSide.SHADOW:
                self._close(lane, lane.seen[side])
            else:
                self._dropped["orphans"] += lane.waiting[JoinSide.SHADOW].drop(lane.seen[side])
            lane.seen[side] = lane.passed[side]

    def _close(self, lane: _PartitionJoin, until: int) -> None:
        if until > lane.closed:
            lane.closed = until
            self._dropped["unsampled"] += lane.waiting[JoinSide.ANSWERED].drop(until)

    def _make_room(self) -> None:
        """Give up the older half of the fullest, while too many wait."""
        while self.waiting > self._most:
            fullest = max((each for lane in self._lanes.values() for each in lane.waiting), key=len)
            self._dropped["crowded"] += fullest.drop(int(fullest.offsets[(len(fullest) - 1) // 2]))
