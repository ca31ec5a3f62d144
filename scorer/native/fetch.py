"""Fetching of a consumer's messages as columns by the native library. fetch.c documents the ownership of the memory."""

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
    """The C structure of fetch.c with the number and the sizes of the collected messages."""

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
    """Fetched messages as columns with one entry per message. A message is an event, or an error of its partition.

    Attributes:
        places: the topics and partitions of the fetcher, including those without a message in these columns.
        lanes: the partition of each message, as an index into `places`.
        codes: 0 for an event; librdkafka's error code for an error.
        headers: the headers; None if no message has headers.
    """

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
        """Return the headers of the messages at the indices `rows`, (n,), in the form that `headers_of` returns."""
        return [None] * len(rows) if self.headers is None else self.headers.take_rows(rows)

    def header_columns(self) -> dict[str, ByteColumn] | None:
        """Return the values of each header by its name, one entry per message.

        Returns:
            The columns; an empty dictionary if no message has headers; None if the messages have different header names.
        """
        return {} if self.headers is None else self.headers.by_name()


class NativeFetcher:
    """The native fetcher of one consumer, which collects the messages of its partitions from one queue.

    The fetcher must be closed before the consumer is closed.

    Args:
        plugin: the native library, loaded as a plugin of librdkafka.
        handle: the librdkafka handle of the consumer.

    Attributes:
        sizes: the number and the sizes of the messages that are collected so far.

    Raises:
        MemoryError: Memory is exhausted. Every method may raise this error.
    """

    def __init__(self, plugin: LibrdkafkaPlugin, handle: int) -> None:
        self._library = plugin.library
        self._fetcher = self._library.fetcher_new(handle)
        if not self._fetcher:
            raise MemoryError
        self._places: list[Place] = []
        self.sizes = CollectedSizes()

    def forward(self, partitions: list[TopicPartition]) -> None:
        """Forward the messages of these partitions to the queue. Call this method before the partitions are assigned."""
        for partition in partitions if self._fetcher else ():
            self._library.fetcher_forward(self._fetcher, partition.topic.encode(), partition.partition)

    def collect(self, max_messages: int, seconds: float) -> int:
        """Collect up to `max_messages` messages from the queue, and return their number; 0 after `close`.

        The call waits up to `seconds`, but only for the first message. Reached ends of partitions are not counted; see `ends`.
        """
        if not self._fetcher:
            time.sleep(seconds)
            return 0
        count: int = self._library.fetcher_collect(
            self._fetcher, max_messages, int(seconds * 1_000), ctypes.addressof(self.sizes)
        )
        if count < 0:
            raise MemoryError
        return count

    def discard(self) -> None:
        """Discard the collected messages and partition ends."""
        self._library.fetcher_discard(self._fetcher)
        self.ends()
        self.sizes = CollectedSizes()

    def ends(self) -> dict[Place, int]:
        """Return the partitions whose end was reached since the last call, each with the next offset to read."""
        count = self.sizes.ends
        self.sizes.ends = 0
        if not count:
            return {}
        lanes = np.empty(count, np.int32)
        offsets = np.empty(count, np.int64)
        self._read_lanes(self._library.fetcher_ends(self._fetcher, address(lanes), address(offsets)))
        return {self._places[lane]: end for lane, end in zip(lanes.tolist(), offsets.tolist(), strict=True)}

    def first_timestamp_ms(self) -> int:
        """Return the timestamp of the first collected message in Unix ms; 0 if this message has no timestamp.

        At least one message must have been collected.
        """
        return max(0, int(self._library.fetcher_first_time(self._fetcher)))

    def columns(self) -> MessageColumns:
        """Return copies of the collected messages as columns, and release the messages."""
        sizes = self.sizes
        self.sizes = CollectedSizes(ends=self.sizes.ends)
        count = sizes.messages
        offsets = np.empty(count, np.int64)
        times = np.empty(count, np.int64)
        lanes, codes, leader_epochs = (np.empty(count, np.int32) for _ in range(3))
        values = _StringArrays(count, sizes.bytes)
        keys = _StringArrays(count, sizes.key_bytes)
        at = _Columns(
            *(address(column) for column in (offsets, times, lanes, codes, leader_epochs)),
            *values.addresses(),
            *keys.addresses(),
        )
        headers = _HeaderArrays(count, sizes, at) if sizes.headers else None
        self._read_lanes(self._library.fetcher_copy(self._fetcher, ctypes.addressof(at)))
        np.maximum(times, 0, out=times)
        header_columns = headers.columns() if headers else None
        return MessageColumns(
            self._places, lanes, offsets, times, codes, leader_epochs, values.texts(), keys.texts(), header_columns
        )

    def close(self) -> None:
        """Release the collected messages and the queue. The fetcher cannot be used again."""
        if self._fetcher:
            self._library.fetcher_free(self._fetcher)
            self._fetcher = None

    def _read_lanes(self, lane_count: int) -> None:
        """Append the new partitions (lanes) of the C fetcher to `_places`. Raises MemoryError if `lane_count` is negative.

        `lane_count` is the number of all partitions of the C fetcher.
        """
        if lane_count < 0:
            raise MemoryError
        partition = ctypes.c_int32()
        for lane in range(len(self._places), lane_count):
            topic = self._library.fetcher_lane(self._fetcher, lane, ctypes.addressof(partition))
            self._places.append((topic.decode(), partition.value))


class _StringArrays:
    """Arrays into which C code writes `count` strings with `size` bytes in total."""

    # The buffer ends with PADDING, the zero bytes that must follow each text that C code scans.

    def __init__(self, count: int, size: int) -> None:
        self._text = np.empty(size + len(PADDING), np.uint8)
        self._text[size:] = 0
        self._bounds = np.zeros(count + 1, np.int64)
        self._nulls = np.zeros(count, np.uint8)

    def addresses(self) -> tuple[int, int, int]:
        return address(self._text), address(self._bounds[1:]), address(self._nulls)

    def texts(self) -> ByteColumn:
        return ByteColumn(self._text, self._bounds[:-1], self._bounds[1:], self._nulls)


class _HeaderArrays:
    """Arrays into which C code writes the headers of `count` messages; `at` is the C structure with their addresses."""

    def __init__(self, count: int, sizes: CollectedSizes, at: _Columns) -> None:
        self._counts = np.empty(count, np.int64)
        self._names = _StringArrays(sizes.headers, sizes.name_bytes)
        self._values = _StringArrays(sizes.headers, sizes.header_bytes)
        at.header_counts = address(self._counts)
        at.names, at.name_ends, _ = self._names.addresses()
        at.header_values, at.header_ends, at.header_nulls = self._values.addresses()

    def columns(self) -> "HeaderColumns":
        return HeaderColumns(self._counts, self._names.texts(), self._values.texts())


class HeaderColumns:
    """The headers of B messages.

    Attributes:
        counts: the number of headers of each message.
        names: the names of all headers, message after message.
        values: the values of all headers, message after message.
    """

    def __init__(self, counts: NDArray[np.int64], names: ByteColumn, values: ByteColumn) -> None:
        self._counts = counts
        self._names = names
        self._values = values

    def by_name(self) -> dict[str, ByteColumn] | None:
        """Return the values of each header by its name, one entry per message; for a repeated header, the last value.

        Returns:
            The columns; None if the messages have different header names, or in a different order.
        """
        count = len(self._counts)
        each = int(self._counts[0])
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
        """Return whether one of these byte strings occurs in the header names."""
        # The concatenation of all names is searched, so a match may span two names.
        names = self._names.text.data.tobytes()
        return any(mark in names for mark in marks)

    def _of(self, at: int, each: int) -> ByteColumn:
        values = self._values
        nulls = None if values.nulls is None else np.ascontiguousarray(values.nulls[at::each])
        starts = np.ascontiguousarray(values.starts[at::each])
        ends = np.ascontiguousarray(values.ends[at::each])
        return ByteColumn(values.text, starts, ends, nulls)

    def listed(self) -> tuple[list[Headers], list[int]]:
        """Return the headers of each message (None if unreadable), and the indices of the unreadable messages.

        A message is unreadable if a header name is not UTF-8.
        """
        headers: list[Headers] = []
        unread: list[int] = []
        every: list[tuple[Any, Any]] = list(zip(self._names, self._values, strict=True))
        start = 0
        for row, count in enumerate(self._counts.tolist()):
            message_headers = every[start : start + count]
            start = start + count
            try:
                headers.append([(name.decode(), value) for name, value in message_headers] or None)
            except UnicodeDecodeError:
                unread.append(row)
                headers.append(None)
        return headers, unread

    def take_rows(self, rows: NDArray[np.int64]) -> list[Headers]:
        """Return the headers of the messages at the indices `rows`, (n,), without creating the headers of other messages.

        An entry is None if the message has no headers, or if a header name is not UTF-8.
        """
        headers: list[Headers] = []
        for end, count in zip(np.cumsum(self._counts)[rows].tolist(), self._counts[rows].tolist(), strict=True):
            entries = np.arange(end - count, end)
            try:
                names = [(name or b"").decode() for name in self._names.take_rows(entries)]
                headers.append(list(zip(names, self._values.take_rows(entries), strict=True)) or None)
            except UnicodeDecodeError:
                headers.append(None)
        return headers

    def unread(self) -> list[int]:
        """Return the indices of messages with a header name that is not UTF-8."""
        return self.listed()[1] if self._names.text.max(initial=0) >= 0x80 else []
