"""Joins what the scorers answered with what the shadow answered, event by event, by source position. Pure.

Both sides come in the order of each source partition, so a record waits only for as long as the other side is behind. What
failed may stand a little behind later scores: dead letters in a topic of their own, the shadow's failures in a batch.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Generic, NamedTuple, TypeVar

from publisher.kafka.partitions import Partition

Record = TypeVar("Record")


class Side(IntEnum):
    ANSWERED = 0  # scores and dead letters
    SHADOW = 1

    @property
    def other(self) -> "Side":
        return Side(1 - self)


class Pair(NamedTuple, Generic[Record]):
    """Both answers to the event at `offset`."""

    offset: int
    answered: Record
    shadow: Record


class Dropped(NamedTuple):
    """Records without a partner. `unsampled`: the shadow did not score the event. `orphans`: the shadow did, and no answer was
    there, such as of events before the window. `crowded`: they waited while too many others did."""

    unsampled: int
    orphans: int
    crowded: int


@dataclass(slots=True)
class _Lane(Generic[Record]):
    """What waits of one source partition, by offset, for each side. Offsets, -1 before the first: `passed` is the last of each
    side, `seen` what that was when last settled, and scores up to `closed` wait no more."""

    waiting: tuple[dict[int, Record], dict[int, Record]] = field(default_factory=lambda: ({}, {}))
    passed: list[int] = field(default_factory=lambda: [-1, -1])
    seen: list[int] = field(default_factory=lambda: [-1, -1])
    closed: int = -1


class MergeJoin(Generic[Record]):
    """Takes batches of both sides, and gives the pairs. At most `most` records wait, all partitions together. A score waits
    until the shadow is `late` offsets past it."""

    def __init__(self, most: int, late: int) -> None:
        self._most, self._late = most, late
        self._lanes: dict[Partition, _Lane[Record]] = {}
        self._dropped: Counter[str] = Counter()
        self.waiting = 0

    @property
    def dropped(self) -> Dropped:
        return Dropped(*(self._dropped[name] for name in Dropped._fields))

    def held(self, side: Side, partition: Partition) -> int:
        """How many records of one side of a source partition wait."""
        lane = self._lanes.get(partition)
        return 0 if lane is None else len(lane.waiting[side])

    def add(self, side: Side, partition: Partition, offsets: Sequence[int], records: Sequence[Record]) -> list[Pair[Record]]:
        """The pairs that these records of a source partition complete."""
        lane = self._lanes.setdefault(partition, _Lane())
        mine, theirs = lane.waiting[side], lane.waiting[side.other]
        closed = lane.closed if side is Side.ANSWERED else -1
        pairs, before = [], len(mine) + len(theirs)
        for offset, record in zip(offsets, records, strict=True):
            other = theirs.pop(offset, None)
            if other is not None:
                pairs.append(Pair(offset, record, other) if side is Side.ANSWERED else Pair(offset, other, record))
            elif offset > closed:
                mine[offset] = record
            else:
                self._dropped["unsampled"] += 1
        self.waiting += len(mine) + len(theirs) - before
        lane.passed[side] = max(lane.passed[side], *offsets[-1:], -1)
        if side is Side.SHADOW:
            self._close(lane, lane.passed[side] - self._late)
        while self.waiting > self._most:
            self._make_room()
        return pairs

    def settle(self) -> None:
        """Give up the records that the other side had passed at the last call already. To be called every few seconds, in which
        what failed comes too."""
        for lane in self._lanes.values():
            self._close(lane, lane.seen[Side.SHADOW])
            self._count(_drop(lane.waiting[Side.SHADOW], lane.seen[Side.ANSWERED]), "orphans")
            lane.seen = list(lane.passed)

    def _close(self, lane: _Lane[Record], until: int) -> None:
        if until > lane.closed:
            lane.closed = until
            self._count(_drop(lane.waiting[Side.ANSWERED], until), "unsampled")

    def _make_room(self) -> None:
        """Give up the older half of the fullest."""
        fullest = max((waiting for lane in self._lanes.values() for waiting in lane.waiting), key=len)
        middle = sorted(fullest)[(len(fullest) - 1) // 2]
        for offset in [offset for offset in fullest if offset <= middle]:
            del fullest[offset]
            self._count(1, "crowded")

    def _count(self, records: int, why: str) -> None:
        self._dropped[why] += records
        self.waiting -= records


def _drop(waiting: dict[int, Record], until: int) -> int:
    """Remove the records up to an offset, inclusive; how many."""
    gone = []
    for offset in waiting:
        if offset > until:
            break
        gone.append(offset)
    for offset in gone:
        del waiting[offset]
    return len(gone)
