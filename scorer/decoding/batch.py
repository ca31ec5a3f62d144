"""A batch of events as columns: what intake hands to the loop. No Kafka client in here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
Headers = list[tuple[str, str | bytes | None]] | None
Place = tuple[str, int]
End = Literal["empty", "events", "bytes"]
"""What a batch stopped at: nothing more was there, as many events as were asked for, or as many bytes as a batch may have."""


class UnreadableRange(NamedTuple):
    """Records that cannot be read, from the offset `first` on, and why."""

    first: int
    why: str


def position_text(place: Place, offset: int) -> bytes:
    """`topic/partition/offset`."""
    return b"%b%d" % (partition_text(place), offset)


def partition_text(place: Place) -> bytes:
    """What the positions of a partition begin with."""
    return b"%b/%d/" % (place[0].encode(), place[1])


@dataclass(slots=True)
class Batch:
    """Parallel lists, one entry an event, in the order of arrival (so in offset order within a partition).

    `timestamps` are Unix ms, 0 where the broker has none. `epochs` holds the assignment epoch of each partition at the time
    of the take; the batch may only be published while they are unchanged. `leader_epochs`: of each partition's last event.
    `unread` are the indices of events whose headers cannot be read: theirs are None. `unreadable` are entries that stand for a
    batch of records that cannot be read, whose last offset is the entry's. `carried`: headers that each event hands on to its
    score, if any. `places` are the events' topic-partitions; `last` is for each of those the index of its last event
    here, and `reached` the offset that follows it.
    """

    topics: list[str]
    partitions: list[int]
    offsets: list[int]
    keys: list[bytes | None]
    values: Sequence[bytes | None]
    timestamps: list[int]
    headers: list[Headers]
    end: End = "empty"
    unread: Sequence[int] = ()
    unreadable: Mapping[int, UnreadableRange] = field(default_factory=dict)
    leader_epochs: dict[Place, int | None] = field(default_factory=dict)
    carried: list[list[tuple[str, str | bytes | None]]] | None = None
    epochs: dict[Place, int] = field(default_factory=dict)
    places: list[Place] = field(init=False)
    last: dict[Place, int] = field(init=False)
    reached: dict[Place, int] = field(init=False)

    def __post_init__(self) -> None:
        self.places = list(zip(self.topics, self.partitions, strict=True))
        self.last = dict(zip(self.places, range(len(self.places)), strict=True))
        self.reached = {place: self.offsets[at] + 1 for place, at in self.last.items()}

    def __len__(self) -> int:
        return len(self.values)

    def times(self) -> NDArray[np.int64]:
        """The timestamps as an array."""
        return np.array(self.timestamps, np.int64)

    def tombstones(self) -> list[int]:
        """The indices of events without a value."""
        return [row for row, value in enumerate(self.values) if value is None]

    def key_texts(self) -> Sequence[bytes | None]:
        """The keys, in the form in which they are here."""
        return self.keys

    def keyless(self) -> NDArray[np.intp]:
        """The indices of events without a key."""
        return np.flatnonzero([key is None for key in self.keys])

    def position_texts(self, rows: NDArray[np.intp]) -> Sequence[bytes | None]:
        """The positions of these events, as `position_text` writes them."""
        return [position_text(self.places[row], self.offsets[row]) for row in rows.tolist()]

    def first_offsets(self) -> dict[Place, int]:
        """For each partition the offset of its first event here."""
        return dict(zip(reversed(self.places), reversed(self.offsets), strict=True))


def select_rows(column: Sequence[T], rows: list[int]) -> Sequence[T]:
    """Return the entries of these rows, which ascend: the column itself if they are all rows."""
    return column if len(rows) == len(column) else [column[row] for row in rows]
