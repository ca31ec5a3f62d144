"""Join the scorers' answers with the shadow's answers to the same events, by source position. Pure.

The two sides of the join are the scorers' answers and the shadow's answers. The records of both sides arrive in the order of
each source partition, so a record waits only until the records of the opposite side have reached its event. Failures may arrive
after the scores of slightly later events: dead letters come from another topic, and the shadow writes the failures of a batch
last.
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

    A ticket is an integer that identifies one answer. The caller of the join assigns the tickets.

    Attributes:
        offsets: The offsets of the events, (n,).
        answered: The tickets of the scorers' answers, (n,).
        shadow: The tickets of the shadow's answers, (n,).
    """

    offsets: Offsets
    answered: Tickets
    shadow: Tickets


def concatenate(parts: Sequence[JoinedPairs]) -> JoinedPairs:
    """Concatenate several sets of pairs into one."""
    return JoinedPairs(*map(np.concatenate, zip(*parts, strict=True)))


class DroppedCounts(NamedTuple):
    """The numbers of records that were dropped without a partner.

    Attributes:
        unsampled: Answers to events that the shadow did not score.
        orphans: Shadow answers without a scorer's answer, for example to events before the window.
        crowded: Records that were dropped because too many records waited, or that arrived after their partner was dropped.
            This count depends on how fast each side is read.
    """

    unsampled: int
    orphans: int
    crowded: int


class PendingRecords:
    """Records of one side and one source partition that wait for a partner, in ascending order of their events' offsets."""

    def __init__(self) -> None:
        self.offsets: Offsets = np.empty(0, np.int64)
        self.records: Tickets = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self.records)

    def add(self, offsets: Offsets, records: Tickets) -> None:
        """Add records in any order of their offsets."""
        self.offsets = np.concatenate([self.offsets, offsets])
        self.records = np.concatenate([self.records, records])
        if (self.offsets[1:] < self.offsets[:-1]).any():
            order = np.argsort(self.offsets, kind="stable")
            self.offsets = self.offsets[order]
            self.records = self.records[order]

    def pop_matches(self, offsets: Offsets) -> tuple[NDArray[np.int64], Tickets]:
        """Remove the records whose offsets occur in `offsets`.

        Returns:
            Two arrays with one entry for each removed record. The first array has the lowest index at which `offsets` contains
            the record's offset. The second array has the record's ticket.
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
        """Remove the records up to an offset, inclusive, and return their number."""
        count = int(np.searchsorted(self.offsets, until, side="right"))
        if count:
            self.offsets = self.offsets[count:]
            self.records = self.records[count:]
        return count


@dataclass(slots=True)
class _PartitionJoin:
    """The state of the join for one source partition.

    `waiting`, `last_offsets` and `earlier_offsets` have one value for each JoinSide. All offsets are offsets of events; an
    offset is -1 before the first event.

    Attributes:
        waiting: The records that wait for a partner.
        last_offsets: The largest offset of each side so far, except the offsets of records that were added with `late`.
        earlier_offsets: `last_offsets` at the last call of `drop_unmatched`.
        closed: An offset up to which no scorer's answer waits. A scorer's answer to an event up to this offset is dropped when
            it is added, unless its shadow answer is already waiting.
    """

    waiting: tuple[PendingRecords, PendingRecords] = field(default_factory=lambda: (PendingRecords(), PendingRecords()))
    last_offsets: list[int] = field(default_factory=lambda: [-1, -1])
    earlier_offsets: list[int] = field(default_factory=lambda: [-1, -1])
    closed: int = -1


class MergeJoin:
    """A merge join of scorers' answers and shadow answers: records with the same source position become a pair.

    The caller passes n records as two arrays, (n,) each: the offsets of the answered events, and the tickets of the records. A
    ticket is an integer that identifies a record.
    """

    def __init__(self, most: int, late: int) -> None:
        """Create an empty join.

        Args:
            most: The number of records that may wait, on both sides of all partitions together.
            late: A scorer's answer without a partner is dropped when the shadow has passed the answered event by this many
                offsets.
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
        """The number of records that wait for a partner."""
        return sum(len(each) for lane in self._joins.values() for each in lane.waiting)

    def waiting_tickets(self) -> Tickets:
        """Return the tickets of all waiting records."""
        every = (each.records for lane in self._joins.values() for each in lane.waiting)
        return np.concatenate([np.empty(0, np.int64), *every])

    def count_waiting(self, side: JoinSide, partition: Partition) -> int:
        """Return how many records of one side of a source partition wait for a partner."""
        lane = self._joins.get(partition)
        return 0 if lane is None else len(lane.waiting[side])

    def add(
        self, side: JoinSide, partition: Partition, offsets: Offsets, records: Tickets, *, late: bool = False
    ) -> JoinedPairs:
        """Add records of a source partition, and return the pairs that they complete.

        Args:
            side: The side of all these records.
            partition: The partition of the records' events.
            offsets: The offsets of the events, (n,).
            records: The tickets of the records, (n,).
            late: Whether records of earlier events may still follow on this side. This is true for dead letters.
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
        """Drop the waiting records of the side opposite to `side` for which no partner can arrive any longer.

        A waiting record is dropped if the records of `side` had already passed its event at the previous call of this method.
        Before this call, the caller must have added all records of `side` that existed at the previous call, including
        failures.
        """
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
        """While more than `most` records wait, drop the older half of the largest set of waiting records."""
        while self.waiting > self._most:
            fullest = max((each for lane in self._joins.values() for each in lane.waiting), key=len)
            self._dropped["crowded"] += fullest.drop(int(fullest.offsets[(len(fullest) - 1) // 2]))
