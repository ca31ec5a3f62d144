"""A batch whose columns are arrays, as the native fetch returns them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scorer.decoding.batch import Batch, End, Headers, Place, partition_text
from scorer.native.byte_columns import ByteColumn
from scorer.native.fetch import MessageColumns
from scorer.native.librdkafka import librdkafka_plugin
from scorer.native.produce_records import RecordPiece, chosen, joined


class ColumnarBatch(Batch):
    """A batch that the native fetch has returned as arrays. It has at least one event, and its fetch returned no errors.

    The list attributes of `Batch` are created from these arrays at their first use.
    """

    def __init__(self, columns: MessageColumns, end: End) -> None:
        count = len(columns)
        self.columns = columns
        self.end = end
        self.unread = [] if columns.headers is None else columns.headers.unread()
        self.unreadable = {}
        self.carried = None
        self.epochs = {}
        last = np.full(len(columns.places), -1)
        last[columns.lanes] = np.arange(count)
        self.last = {columns.places[lane]: int(last[lane]) for lane in np.flatnonzero(last >= 0).tolist()}
        self.reached = {place: int(columns.offsets[index]) + 1 for place, index in self.last.items()}
        epochs = {place: int(columns.leader_epochs[index]) for place, index in self.last.items()}
        self.leader_epochs = {place: None if epoch < 0 else epoch for place, epoch in epochs.items()}

    def __len__(self) -> int:
        return len(self.columns)

    def __getattr__(self, name: str) -> Any:
        """Create the list `name`, an attribute of `Batch`, at its first use, and store it as an attribute of this batch."""
        if name not in LISTS:
            raise AttributeError(name)
        column = LISTS[name](self.columns)
        setattr(self, name, column)
        return column

    def times(self) -> NDArray[np.int64]:
        return self.columns.times

    def partition_numbers(self) -> NDArray[np.int32]:
        return np.array([partition for _, partition in self.columns.places], np.int32)[self.columns.lanes]

    def tombstones(self) -> list[int]:
        rows: list[int] = _absent(self.columns.values).tolist()
        return rows

    def key_texts(self) -> ByteColumn:
        return self.columns.keys

    def keyless(self) -> NDArray[np.intp]:
        return _absent(self.columns.keys)

    def position_texts(self, rows: NDArray[np.intp]) -> Sequence[bytes | None]:
        if (native := librdkafka_plugin()) is None:
            return super().position_texts(rows)
        lanes = chosen(list(map(partition_text, self.columns.places)), self.columns.lanes[rows])
        return joined(native, [lanes, RecordPiece(numbers=self.columns.offsets[rows])], len(rows))


def _absent(texts: ByteColumn) -> NDArray[np.intp]:
    return np.empty(0, np.intp) if texts.nulls is None else np.flatnonzero(texts.nulls)


def _places(columns: MessageColumns) -> list[Place]:
    return list(map(columns.places.__getitem__, columns.lanes.tolist()))


def _headers(columns: MessageColumns) -> list[Headers]:
    return [None] * len(columns) if columns.headers is None else columns.headers.listed()[0]


LISTS: Mapping[str, Callable[[MessageColumns], Any]] = {
    "topics": lambda columns: [topic for topic, _ in _places(columns)],
    "partitions": lambda columns: [partition for _, partition in _places(columns)],
    "places": _places,
    "offsets": lambda columns: columns.offsets.tolist(),
    "timestamps": lambda columns: columns.times.tolist(),
    "keys": lambda columns: columns.keys.listed,
    "values": lambda columns: columns.values,
    "headers": _headers,
}
