"""Join the scorers' answers with the shadow's answers to the same events, by source position. Pure.

Both sides arrive in the order of each source partition, so a record waits only while the other side is behind. Failures may
follow slightly later scores: dead letters come from another topic, and a batch of the shadow has its failures last.
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
"""A number for each record, by which the caller finds it."""


class JoinSide(IntEnum):
    """The two sides of the join."""

    ANSWERED = 0  # scores and dead letters
    SHADOW = 1

    @property
    def other(self) -> "JoinSide":
        """The opposite side."""
        return JoinSide(1 - self)


class JoinedPairs(NamedTuple):
    """Both answers to the events at these offsets."""

    offsets: Offsets
    answered: Tickets
    shadow: Tickets


def concatenate(parts: Sequence[JoinedPairs]) -> JoinedPairs:
    """Concatenate several sets of pairs."""
    return JoinedPairs(*map(np.concatenate, zip(*parts, strict=True)))


class DroppedCounts(NamedTuple):
    """The numbers of records without a partner.

    Attributes:
        unsampled: Answers to events that the shadow did not score.
        orphans: Shadow answers without a scorer's answer, for example to events before the window.
        crowded: Records that were dropped while too many others waited, or that arrived after their partner was dropped. The
            count depends on the pace of reading.
    """

    unsampled: int
    orphans: int
    crowded: int


class PendingRecords:
    """Waiting records in ascending order of their offsets."""

    def __init__(self) -> None:
        self.offsets: Offsets = np.empty(0, np.int64)
        self.records: Tickets = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self.records)

    def add(self, offsets: Offsets, records: Tickets) -> None:
        """Add records in any order."""
        self.offsets = np.concatenate([self.offsets, offsets])
        self.records = np.concatenate([self.records, records])
        if (self.offsets[1:] < self.offsets[:-1]).any():
            order = np.argsort(self.offsets, kind="stable")
            self.offsets = self.offsets[order]
            self.records = self.records[order]

    def matched(self, offsets: Offsets) -> tuple[NDArray[np.int64], Tickets]:
        """Remove the records that match `offsets`, and return their indices in `offsets`, each once, and the records."""
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
        """Remove the records up to an offset, inclusive, and return their number."""
        count = int(np.searchsorted(self.offsets, until, side="right"))
        if count:
            self.offsets = self.offsets[count:]
            self.records = self.records[count:]
        return count


@dataclass(slots=True)
class _PartitionJoin:
    """The state of the join for one source partition; a pair of values has one for each side, and offsets start at -1.

    Attributes:
        waiting: The records that wait for a partner.
        passed: The offset of the last record, without late records.
        seen: `passed` at the last call of `settle`.
        closed: The offset up to which scores no longer wait.
    """

    waiting: tuple[PendingRecords, PendingRecords] = field(default_factory=lambda: (PendingRecords(), PendingRecords()))
    passed: list[int] = field(default_factory=lambda: [-1, -1])
    seen: list[int] = field(default_factory=lambda: [-1, -1])
    closed: int = -1


class MergeJoin:
    """A merge join of two streams of offsets and tickets, (n,) each, into pairs."""

    def __init__(self, most: int, late: int) -> None:
        """Create an empty join.

        Args:
            most: The number of records that may wait, in all partitions together.
            late: The number of offsets by which the shadow must pass a score before the score is dropped.
        """
        self.late = late
        self._most = most
        self._lanes: dict[Partition, _PartitionJoin] = {}
        self._dropped: Counter[str] = Counter()

    @property
    def dropped(self) -> DroppedCounts:
        """The numbers of records without a partner."""
        return DroppedCounts(*(self._dropped[name] for name in DroppedCounts._fields))

    @property
    def waiting(self) -> int:
        """The number of waiting records."""
        return sum(len(each) for lane in self._lanes.values() for each in lane.waiting)

    def tickets(self) -> Tickets:
        """Return the tickets of all waiting records."""
        every = (each.records for lane in self._lanes.values() for each in lane.waiting)
        return np.concatenate([np.empty(0, np.int64), *every])

    def held(self, side: JoinSide, partition: Partition) -> int:
        """Return how many records of one side of a source partition wait."""
        lane = self._lanes.get(partition)
        return 0 if lane is None else len(lane.waiting[side])

    def add(
        self, side: JoinSide, partition: Partition, offsets: Offsets, records: Tickets, *, late: bool = False
    ) -> JoinedPairs:
        """Add records of a source partition, and return the pairs that they complete.

        Args:
            side: The side of all these records.
            partition: The partition of their events.
            offsets: The offsets of their events, (n,).
            records: Their tickets, (n,).
            late: Whether they come from another topic, so that records of earlier events may still follow.
        """
        lane = self._lanes.setdefault(partition, _PartitionJoin())
        rows, partners = lane.waiting[side.other].matched(offsets)
        alone = np.ones(len(offsets), np.bool_)
        alone[rows] = False
        closed = alone & (offsets <= lane.closed)
        if side is JoinSide.SHADOW:  # the partner of a passed event may have been dropped while it waited
            closed &= offsets <= lane.passed[JoinSide.ANSWERED]
        self._dropped["unsampled" if side is JoinSide.ANSWERED else "crowded"] += int(closed.sum())
        alone &= ~closed
        lane.waiting[side].add(offsets[alone], records[alone])
        if not late:
            lane.passed[side] = max(lane.passed[side], int(offsets.max(initial=-1)))
        if side is JoinSide.SHADOW:
            self._close(lane, lane.passed[side] - self.late)
        self._make_room()
        joined = offsets[rows]
        matches = records[rows]
        if side is JoinSide.ANSWERED:
            return JoinedPairs(joined, matches, partners)
        return JoinedPairs(joined, partners, matches)

    def settle(self, side: JoinSide) -> None:
        """Drop the other side's records that this side had passed at the last call.

        Between two calls, every record of this side that existed at the first call must be added, failures included.
        """
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
        """Drop the older half of the largest set of waiting records while too many wait."""
        while self.waiting > self._most:
            fullest = max((each for lane in self._lanes.values() for each in lane.waiting), key=len)
            self._dropped["crowded"] += fullest.drop(int(fullest.offsets[(len(fullest) - 1) // 2]))
