"""Keys, headers, timestamps and partitions of records, from which fields outside the value are read."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeVar

import numpy as np
from confluent_kafka import Message
from numpy.typing import NDArray

from publisher.kafka.headers import headers_of
from scorer.decoding.batch import Batch, Headers
from scorer.decoding.columnar_batch import ColumnarBatch
from scorer.native import byte_columns
from scorer.native.byte_columns import ByteColumn

T = TypeVar("T")
Text = bytes | None
NO_PARTITION = -1


class RecordMetadata(Protocol):
    """The keys, headers, timestamps and partitions of B records.

    `keys`, `times`, `partitions` and `header` return one entry per record.
    """

    def keys(self) -> Sequence[Text]:
        """Return the keys; None for a record without a key."""

    def times(self) -> Sequence[int]:
        """Return the timestamps in Unix ms; 0 for a record without a timestamp."""

    def partitions(self) -> NDArray[np.int32]:
        """Return the partitions of the input topics; NO_PARTITION for a record that does not come from a topic."""

    def header(self, name: str) -> Sequence[Text]:
        """Return the value of the header `name` in each record; None for a record without it.

        If a record repeats the header, its last value is returned.
        """

    def mention(self, marks: Sequence[bytes]) -> bool:
        """Return False if no header name contains one of the strings `marks`; True if a name may contain one.

        The check takes only a few microseconds. It is approximate: it may return True although no name contains one of them.
        """

    def listed(self) -> "ListedMetadata":
        """Return the metadata as lists, which can be sent to another process."""


@dataclass(frozen=True, slots=True)
class ListedMetadata:
    """The metadata of B records as lists of B keys, timestamps (Unix ms), header lists and partitions.

    `every_partition` is empty if the partitions are unknown.
    """

    every_key: Sequence[Text]
    every_time: Sequence[int]
    every_header: Sequence[Headers]
    every_partition: Sequence[int] = ()

    @classmethod
    def from_messages(cls, messages: Sequence[Message]) -> "ListedMetadata":
        """Return the metadata of fetched records. Headers that cannot be read are left out."""
        times = [max(0, message.timestamp()[1]) for message in messages]
        partitions = [NO_PARTITION if (partition := message.partition()) is None else partition for message in messages]
        return cls([message.key() for message in messages], times, headers_of(messages)[0], partitions)

    @classmethod
    def empty(cls, count: int) -> "ListedMetadata":
        """Create the metadata of `count` records that have only a value."""
        return cls([None] * count, [0] * count, [None] * count)

    def select(self, rows: Sequence[int]) -> "ListedMetadata":
        """Return the metadata of the records at the indices `rows`."""
        partitions = [self.every_partition[row] for row in rows] if self.every_partition else ()
        keys = [self.every_key[row] for row in rows]
        return ListedMetadata(
            keys, [self.every_time[row] for row in rows], [self.every_header[row] for row in rows], partitions
        )

    def keys(self) -> Sequence[Text]:
        return self.every_key

    def times(self) -> Sequence[int]:
        return self.every_time

    def partitions(self) -> NDArray[np.int32]:
        return np.array(self.every_partition or [NO_PARTITION] * len(self.every_key), np.int32)

    def header(self, name: str) -> Sequence[Text]:
        return [_last_value(headers, name) for headers in self.every_header]

    def mention(self, marks: Sequence[bytes]) -> bool:
        return _any_mentions(self.every_header, marks)

    def listed(self) -> "ListedMetadata":
        return self


class BatchMetadata:
    """The metadata of the events at the indices `rows` of a batch. The metadata is read from the batch when it is needed."""

    def __init__(self, batch: Batch, rows: Sequence[int]) -> None:
        self._batch = batch
        self._rows = rows

    def keys(self) -> Sequence[Text]:
        keys = self._batch.key_texts()
        return keys if self._is_whole else byte_columns.part(keys, np.array(self._rows, np.int64))

    def times(self) -> Sequence[int]:
        return self._select(self._batch.timestamps)

    def partitions(self) -> NDArray[np.int32]:
        partitions = self._batch.partition_numbers()
        return partitions if self._is_whole else partitions[list(self._rows)]

    def header(self, name: str) -> Sequence[Text]:
        if self._columns is None:
            return [_last_value(headers, name) for headers in self._select(self._batch.headers)]
        column = self._columns.get(name)
        return [None] * len(self._rows) if column is None else self._select(column)

    def mention(self, marks: Sequence[bytes]) -> bool:
        if isinstance(self._batch, ColumnarBatch):
            headers = self._batch.columns.headers
            return headers is not None and headers.mention(marks)
        return _any_mentions(self._batch.headers, marks)

    def listed(self) -> ListedMetadata:
        headers = list(self._select(self._batch.headers))
        return ListedMetadata(list(self.keys()), list(self.times()), headers, self.partitions().tolist())

    @property
    def _is_whole(self) -> bool:
        return len(self._rows) == len(self._batch)

    @cached_property
    def _columns(self) -> dict[str, ByteColumn] | None:
        """The values of each header by name; None if the batch is not columnar, or if the header names of its events differ."""
        return self._batch.columns.header_columns() if isinstance(self._batch, ColumnarBatch) else None

    def _select(self, column: Sequence[T]) -> Sequence[T]:
        return column if self._is_whole else [column[row] for row in self._rows]


def _any_mentions(every_header: Sequence[Headers], marks: Sequence[bytes]) -> bool:
    names = {name for headers in every_header if headers for name, _ in headers}
    return any(mark in name.encode() for name in names for mark in marks)


def _last_value(headers: Headers, name: str) -> Text:
    last_value = next((value for other, value in reversed(headers or ()) if other == name), None)
    return last_value.encode() if isinstance(last_value, str) else last_value
