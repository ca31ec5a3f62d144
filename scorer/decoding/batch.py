"""Batches of events as columns, which the consumer passes to the worker. This module does not depend on a Kafka client."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
Headers = list[tuple[str, str | bytes | None]] | None
Place = tuple[str, int]
End = Literal["empty", "events", "bytes"]
"""Why the fetch of a batch ended: no further event was available, or the limit of events or of bytes was reached."""


class UnreadableRange(NamedTuple):
    """The first offset of a range of unreadable records, and the reason. For the last offset, see `Batch.unreadable`."""

    first: int
    reason: str


def position_text(place: Place, offset: int) -> bytes:
    """Format the position `topic/partition/offset`."""
    return b"%b%d" % (partition_text(place), offset)


def partition_text(place: Place) -> bytes:
    """Format the prefix `topic/partition/`, which all positions of a partition share."""
    return b"%b/%d/" % (place[0].encode(), place[1])


@dataclass(slots=True)
class Batch:
    """The events of a batch as parallel lists, one entry per event, in order of arrival (offset order within a partition).

    Attributes:
        timestamps: the timestamp of each event in Unix ms; 0 for an event without a timestamp.
        end: why the fetch of the batch ended.
        unread: the indices of events whose headers cannot be read. `headers` is None for these events.
        unreadable: the ranges of offsets whose records cannot be read. The key is the index of the entry that represents the
            range in the batch. This entry is not an event, and its offset is the last offset of the range.
        leader_epochs: the leader epoch of the last event of each partition.
        carried: for each event, the headers that are copied to its score; None if no headers are copied.
        epochs: the assignment epoch of each partition at the time of the fetch. Every assignment of a partition starts a new
            epoch. The scores of the batch may be published only while these epochs are current.
        places: the topic and partition of each event.
        last: the index of the last event of each partition.
        reached: the offset after the last event of each partition.
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
        self.reached = {place: self.offsets[index] + 1 for place, index in self.last.items()}

    def __len__(self) -> int:
        return len(self.values)

    def times(self) -> NDArray[np.int64]:
        """Return the timestamps as an array, in Unix ms."""
        return np.array(self.timestamps, np.int64)

    def partition_numbers(self) -> NDArray[np.int32]:
        """Return the partition of each event as an array."""
        return np.array(self.partitions, np.int32)

    def tombstones(self) -> list[int]:
        """Return the indices of events without a value."""
        return [row for row, value in enumerate(self.values) if value is None]

    def key_texts(self) -> Sequence[bytes | None]:
        """Return the key of each event, as a native column if the batch is columnar, otherwise as a list."""
        return self.keys

    def keyless(self) -> NDArray[np.intp]:
        """Return the indices of events without a key."""
        return np.flatnonzero([key is None for key in self.keys])

    def position_texts(self, rows: NDArray[np.intp]) -> Sequence[bytes | None]:
        """Return the position of each event at the indices `rows`, in the format of `position_text`."""
        return [position_text(self.places[row], self.offsets[row]) for row in rows.tolist()]

    def first_offsets(self) -> dict[Place, int]:
        """Return the offset of the first event of each partition."""
        return dict(zip(reversed(self.places), reversed(self.offsets), strict=True))


def select_rows(column: Sequence[T], rows: list[int]) -> Sequence[T]:
    """Return the entries of a column at the indices `rows` (ascending). If these are all indices, return the column itself."""
    return column if len(rows) == len(column) else [column[row] for row in rows]
