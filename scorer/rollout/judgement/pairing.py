"""Joins what the scorers answered with what the shadow answered, event by event, by source position. Pure.

Both sides come in the order of each source partition, so a record waits only for as long as the other side is behind. What
failed may stand a little behind later scores: dead letters in a topic of their own, the shadow's failures in a batch.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import compress
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from publisher.kafka.partitions import Partition

Record = TypeVar("Record")
Offsets = NDArray[np.int64]


class Side(IntEnum):
    ANSWERED = 0  # scores and dead letters
    SHADOW = 1

    @property
    def other(self) -> "Side":
        return Side(1 - self)


class Pairs(NamedTuple, Generic[Record]):
    """Both answers to the events at these offsets."""

    offsets: list[int]
    answered: list[Record]
    shadow: list[Record]


class Dropped(NamedTuple):
    """Records without a partner. `unsampled`: the shadow did not score the event. `orphans`: the shadow did, and no answer was
    there, such as of events before the window. `crowded`: they waited while too many others did."""

    unsampled: int
    orphans: int
    crowded: int


class Waiting(Generic[Record]):
    """Records by rising offset."""

    def __init__(self) -> None:
        self.offsets: Offsets = np.empty(0, np.int64)
        self.records: list[Record] = []

    def __len__(self) -> int:
        return len(self.records)

    def add(self, offsets: Offsets, records: Sequence[Record]) -> None:
        """In any order."""
        every = np.concatenate([self.offsets, offsets])
        self.records.extend(records)
        if (every[1:] < every[:-1]).any():
            order = np.argsort(every, kind="stable")
            every, self.records = every[order], [self.records[at] for at in order.tolist()]
        self.offsets = every

    def matched(self, offsets: Offsets) -> tuple[list[int], list[Record]]:
        """The places in `offsets` of those that wait here, each once, and their records, which are taken away."""
        places = np.searchsorted(self.offsets, offsets)
        there = np.flatnonzero(places < len(self.offsets))
        there = there[self.offsets[places[there]] == offsets[there]]
        mine, first = np.unique(places[there], return_index=True)
        if not len(mine):
            return [], []
        found = [self.records[at] for at in mine.tolist()]
        keep = np.ones(len(self), np.bool_)
        keep[mine] = False
        self.offsets, self.records = self.offsets[keep], list(compress(self.records, keep.tolist()))
        return there[first].tolist(), found

    def drop(self, until: int) -> int:
        """Remove the records up to an offset, inclusive; how many."""
        count = int(np.searchsorted(self.offsets, until, side="right"))
        if count:
            self.offsets = self.offsets[count:]
            del self.records[:count]
        return count


@dataclass(slots=True)
class _Lane(Generic[Record]):
    """What waits of one source partition, for each side. Offsets, -1 before the first: `passed` is the last of each side,
    `seen` what that was when last settled, and scores up to `closed` wait no more."""

    waiting: tuple[Waiting[Record], Waiting[Record]] = field(default_factory=lambda: (Waiting(), Waiting()))
    passed: list[int] = field(default_factory=lambda: [-1, -1])
    seen: list[int] = field(default_factory=lambda: [-1, -1])
    closed: int = -1


class MergeJoin(Generic[Record]):
    """Takes batches of both sides, and gives the pairs. At most `most` records wait, all partitions together. A score waits
    until the shadow is `late` offsets past it."""

    def __init__(self, most: int, late: int) -> None:
        self.late = late
        self._most = most
        self._lanes: dict[Partition, _Lane[Record]] = {}
        self._dropped: Counter[str] = Counter()

    @property
    def dropped(self) -> Dropped:
        return Dropped(*(self._dropped[name] for name in Dropped._fields))

    @property
    def waiting(self) -> int:
        return sum(len(each) for lane in self._lanes.values() for each in lane.waiting)

    def held(self, side: Side, partition: Partition) -> int:
        """How many records of one side of a source partition wait."""
        lane = self._lanes.get(partition)
        return 0 if lane is None else len(lane.waiting[side])

    def add(self, side: Side, partition: Partition, offsets: Sequence[int], records: Sequence[Record]) -> Pairs[Record]:
        """The pairs that these records of a source partition complete."""
        lane = self._lanes.setdefault(partition, _Lane())
        places = np.asarray(offsets, np.int64)
        rows, theirs = lane.waiting[side.other].matched(places)
        mine = [records[row] for row in rows]
        alone = np.ones(len(places), np.bool_)
        alone[rows] = False
        if side is Side.ANSWERED:
            alone &= places > lane.closed
            self._dropped["unsampled"] += len(places) - len(rows) - int(alone.sum())
        lane.waiting[side].add(places[alone], list(compress(records, alone.tolist())))
        lane.passed[side] = max(lane.passed[side], int(places.max(initial=-1)))
        if side is Side.SHADOW:
            self._close(lane, lane.passed[side] - self.late)
        self._make_room()
        found = places[rows].tolist()
        return Pairs(found, mine, theirs) if side is Side.ANSWERED else Pairs(found, theirs, mine)

    def settle(self) -> None:
        """Give up the records that the other side had passed at the last call already. To be called every few seconds, in which
        what failed comes too."""
        for lane in self._lanes.values():
            self._close(lane, lane.seen[Side.SHADOW])
            self._dropped["orphans"] += lane.waiting[Side.SHADOW].drop(lane.seen[Side.ANSWERED])
            lane.seen = list(lane.passed)

    def _close(self, lane: _Lane[Record], until: int) -> None:
        if until > lane.closed:
            lane.closed = until
            self._dropped["unsampled"] += lane.waiting[Side.ANSWERED].drop(until)

    def _make_room(self) -> None:
        """Give up the older half of the fullest, while too many wait."""
        while self.waiting > self._most:
            fullest = max((each for lane in self._lanes.values() for each in lane.waiting), key=len)
            self._dropped["crowded"] += fullest.drop(int(fullest.offsets[(len(fullest) - 1) // 2]))
