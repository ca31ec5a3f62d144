"""Takes events of a consumer as columns; fetch.c says who owns what."""

import ctypes
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from confluent_kafka import TopicPartition
from numpy.typing import NDArray

from scorer.native.byte_columns import PADDING, ByteColumn, address
from scorer.native.librdkafka import NUMBER, POINTER, LibrdkafkaPlugin

Headers = list[tuple[str, str | bytes | None]] | None  # as in scorer.decoding.batch, which imports this room
Place = tuple[str, int]


class CollectedSizes(ctypes.Structure):
    """As in fetch.c."""

    messages: int
    errors: int
    bytes: int
    largest: int
    key_bytes: int
    headers: int
    name_bytes: int
    header_bytes: int
    ends: int

    _fields_ = [(name, NUMBER) for name in __annotations__]


class _Columns(ctypes.Structure):
    _fields_ = [
        *((name, POINTER) for name in ("offsets", "times", "lanes", "codes", "leader_epochs")),
        *((name, POINTER) for name in ("values", "ends", "nulls", "keys", "key_ends", "key_nulls")),
        *((name, POINTER) for name in ("header_counts", "names", "name_ends", "header_values", "header_ends", "header_nulls")),
    ]


@dataclass(slots=True)
class MessageColumns:
    """Messages, an entry each. `codes` is 0 for an event, else its value says why there is none. `lanes` are indices into
    `places`. `headers` is None where no message has one."""

    places: list[Place]
    lanes: NDArray[np.int32]
    offsets: NDArray[np.int64]
    times: NDArray[np.int64]
    codes: NDArray[np.int32]
    leader_epochs: NDArray[np.int32]
    values: ByteColumn
    keys: ByteColumn
    headers: "HeaderColumns | None"

    def __len__(self) -> int:
        return len(self.offsets)

    def headers_at(self, rows: NDArray[np.int64]) -> list[Headers]:
        """The headers of some messages, (n,), as `publisher.kafka.headers.headers_of` gives them."""
        return [None] * len(rows) if self.headers is None else self.headers.some(rows)

    def header_columns(self) -> dict[str, ByteColumn] | None:
        """The values of headers by name, where all messages have the same; none where there is none."""
        return {} if self.headers is None else self.headers.by_name()


class NativeFetcher:
    """For one consumer, given by its handle. It is closed before the consumer is. `sizes` tell what is collected. Raises
    MemoryError."""

    def __init__(self, bus: LibrdkafkaPlugin, handle: int) -> None:
        self._library = bus.library
        self._taker = self._library.taker_new(handle)
        if not self._taker:
            raise MemoryError
        self._places: list[Place] = []
        self.sizes = CollectedSizes()

    def forward(self, partitions: list[TopicPartition]) -> None:
        """These are read here from now on. To be called before they are assigned."""
        for partition in partitions if self._taker else ():
            self._library.taker_forward(self._taker, partition.topic.encode(), partition.partition)

    def collect(self, most: int, seconds: float) -> int:
        """Collect up to `most` messages, the first within `seconds`, and return their number. The end of a partition is not
        counted: see `ends`. After `close` none come within that time."""
        if not self._taker:
            time.sleep(seconds)
            return 0
        came: int = self._library.taker_collect(self._taker, most, int(seconds * 1_000), ctypes.addressof(self.sizes))
        if came < 0:
            raise MemoryError
        return came

    def drop(self) -> None:
        """Let go of what is collected."""
        self._library.taker_drop(self._taker)
        self.ends()
        self.sizes = CollectedSizes()

    def ends(self) -> dict[Place, int]:
        """Return the partitions whose end was reached since the last call, each with the next offset to read there."""
        count, self.sizes.ends = self.sizes.ends, 0
        if not count:
            return {}
        lanes, offsets = np.empty(count, np.int32), np.empty(count, np.int64)
        self._learn(self._library.taker_ends(self._taker, address(lanes), address(offsets)))
        return {self._places[lane]: end for lane, end in zip(lanes.tolist(), offsets.tolist(), strict=True)}

    def first_time(self) -> int:
        """When the first collected event happened, in Unix ms; 0 where the broker has no time. Something is collected."""
        return max(0, int(self._library.taker_first_time(self._taker)))

    def columns(self) -> MessageColumns:
        """What is collected; it is no more from here on."""
        sizes, self.sizes = self.sizes, CollectedSizes(ends=self.sizes.ends)
        count = sizes.messages
        offsets, times = np.empty(count, np.int64), np.empty(count, np.int64)
        lanes, codes, leader_epochs = (np.empty(count, np.int32) for _ in range(3))
        values, keys = _Room(count, sizes.bytes), _Room(count, sizes.key_bytes)
        at = _Columns(
            *(address(column) for column in (offsets, times, lanes, codes, leader_epochs)),
            *values.addresses(),
            *keys.addresses(),
        )
        headers = _HeaderRoom(count, sizes, at) if sizes.headers else None
        self._learn(self._library.taker_copy(self._taker, ctypes.addressof(at)))
        np.maximum(times, 0, out=times)
        found = headers.columns() if headers else None
        return MessageColumns(self._places, lanes, offsets, times, codes, leader_epochs, values.texts(), keys.texts(), found)

    def close(self) -> None:
        """Let go of what is collected, and of the queue."""
        if self._taker:
            self._library.taker_free(self._taker)
            self._taker = None

    def _learn(self, known: int) -> None:
        """The names of lanes that are new."""
        if known < 0:
            raise MemoryError
        partition = ctypes.c_int32()
        for lane in range(len(self._places), known):
            topic = self._library.taker_lane(self._taker, lane, ctypes.addressof(partition))
            self._places.append((topic.decode(), partition.value))


class _Room:
    """Arrays for `count` strings of so many bytes together, with zeros behind them that a scanner may read."""

    def __init__(self, count: int, size: int) -> None:
        self._text = np.empty(size + len(PADDING), np.uint8)
        self._text[size:] = 0
        self._bounds = np.zeros(count + 1, np.int64)
        self._nulls = np.zeros(count, np.uint8)

    def addresses(self) -> tuple[int, int, int]:
        return address(self._text), address(self._bounds[1:]), address(self._nulls)

    def texts(self) -> ByteColumn:
        return ByteColumn(self._text, self._bounds[:-1], self._bounds[1:], self._nulls)


class _HeaderRoom:
    """Arrays for the headers of `count` messages, and where C finds them."""

    def __init__(self, count: int, sizes: CollectedSizes, at: _Columns) -> None:
        self._counts = np.empty(count, np.int64)
        self._names, self._values = _Room(sizes.headers, sizes.name_bytes), _Room(sizes.headers, sizes.header_bytes)
        at.header_counts = address(self._counts)
        at.names, at.name_ends, _ = self._names.addresses()
        at.header_values, at.header_ends, at.header_nulls = self._values.addresses()

    def columns(self) -> "HeaderColumns":
        return HeaderColumns(self._counts, self._names.texts(), self._values.texts())


class HeaderColumns:
    """The headers of all messages: `counts` how many each has, `names` and `values` those of all, one behind the other."""

    def __init__(self, counts: NDArray[np.int64], names: ByteColumn, values: ByteColumn) -> None:
        self._counts, self._names, self._values = counts, names, values

    def by_name(self) -> dict[str, ByteColumn] | None:
        """Where all messages have headers of the same names in the same order: their values, by name, of several the last."""
        count, each = len(self._counts), int(self._counts[0])
        if (self._counts != each).any():
            return None
        ends = self._names.ends.reshape(count, each)
        size = int(ends[0, -1])
        if (ends != ends[0] + size * np.arange(count)[:, None]).any():
            return None
        texts = self._names.text[: count * size].reshape(count, size)
        if (texts != texts[0]).any():
            return None
        try:
            names = [(name or b"").decode() for name in self._names[:each]]
        except UnicodeDecodeError:
            return None
        return {name: self._of(at, each) for at, name in enumerate(names)}

    def mention(self, marks: Sequence[bytes]) -> bool:
        """Whether one of these strings is in the names, which lie one behind the other."""
        names = self._names.text.data.tobytes()
        return any(mark in names for mark in marks)

    def _of(self, at: int, each: int) -> ByteColumn:
        values = self._values
        nulls = None if values.nulls is None else np.ascontiguousarray(values.nulls[at::each])
        starts, ends = np.ascontiguousarray(values.starts[at::each]), np.ascontiguousarray(values.ends[at::each])
        return ByteColumn(values.text, starts, ends, nulls)

    def listed(self) -> tuple[list[Headers], list[int]]:
        """The headers of each message, as `publisher.kafka.headers.headers_of` gives them, and the rows with a name that is not
        UTF-8."""
        found: list[Headers] = []
        unread: list[int] = []
        every: list[tuple[Any, Any]] = list(zip(self._names, self._values, strict=True))
        start = 0
        for row, count in enumerate(self._counts.tolist()):
            own, start = every[start : start + count], start + count
            try:
                found.append([(name.decode(), value) for name, value in own] or None)
            except UnicodeDecodeError:
                unread.append(row)
                found.append(None)
        return found, unread

    def some(self, rows: NDArray[np.int64]) -> list[Headers]:
        """The headers of some messages, (n,), None where a name is not UTF-8; the others are not made."""
        found: list[Headers] = []
        for end, count in zip(np.cumsum(self._counts)[rows].tolist(), self._counts[rows].tolist(), strict=True):
            own = np.arange(end - count, end)
            try:
                names = [(name or b"").decode() for name in self._names.some(own)]
                found.append(list(zip(names, self._values.some(own), strict=True)) or None)
            except UnicodeDecodeError:
                found.append(None)
        return found

    def unread(self) -> list[int]:
        """The rows with a name that is not UTF-8."""
        return self.listed()[1] if self._names.text.max(initial=0) >= 0x80 else []
