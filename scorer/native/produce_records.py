"""Batches of records that produce.c assembles from columns and produces to Kafka in one call."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from confluent_kafka import Producer
from numpy.typing import NDArray

from publisher.transactions.session import PackedRecordBatch, Record
from scorer.native.byte_columns import ByteColumn, LazySequence, address
from scorer.native.librdkafka import NUMBER, POINTER, LibrdkafkaPlugin

DIGITS = 20  # the maximum number of characters of an int64


@dataclass(slots=True)
class RecordPiece:
    """One part of the value of each of n records: a text, or the decimal digits of a number.

    Attributes:
        texts: the texts; None if the part is a number.
        which: (n,) int32, for each record the index of its text in `texts`; None if `texts` has one text per record.
        numbers: (n,) int64, the number of each record; None if the part is a text.
    """

    texts: ByteColumn | None = None
    which: NDArray[np.int32] | None = None
    numbers: NDArray[np.int64] | None = None

    def largest(self) -> int:
        """Return the largest size in bytes that this part has in a record."""
        return DIGITS if self.texts is None else self.texts.largest()

    def total(self, count: int) -> int:
        """Return the size of this part in `count` records together, in bytes. For numbers, the maximum size is returned."""
        if self.texts is None:
            return DIGITS * count
        lengths = self.texts.lengths()
        if self.which is None:
            return int(lengths.sum())
        return int(np.bincount(self.which, minlength=len(lengths)) @ lengths)

    def mean(self) -> float:
        """Return the mean size of this part in bytes. For numbers, the maximum size is returned."""
        if self.texts is None:
            return DIGITS
        count = len(self.texts if self.which is None else self.which)
        return self.total(count) / count

    def listed(self, count: int) -> list[bytes]:
        """Return this part of each of `count` records, as bytes."""
        if self.texts is None:
            assert self.numbers is not None
            return [b"%d" % number for number in self.numbers.tolist()]
        texts = [text or b"" for text in self.texts]
        return texts if self.which is None else [texts[index] for index in self.which.tolist()[:count]]

    def c(self) -> tuple[int | None, ...]:
        """Return the addresses of the arrays in the order of the fields of the C structure `piece` in produce.c."""
        if self.texts is None:
            assert self.numbers is not None
            return None, None, None, None, address(self.numbers)
        which = None if self.which is None else address(self.which)
        return address(self.texts.text), address(self.texts.starts), address(self.texts.ends), which, None


def constant(text: bytes, count: int) -> RecordPiece:
    """Return a piece with the same text in each of `count` records."""
    return chosen([text], np.zeros(count, np.int32))


def chosen(texts: Sequence[bytes], which: NDArray[np.int32]) -> RecordPiece:
    """Return a piece in which record i has the text `texts[which[i]]`."""
    bounds = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(text) for text in texts], out=bounds[1:])
    return RecordPiece(ByteColumn(np.frombuffer(b"".join(texts) or b"\0", np.uint8), bounds[:-1], bounds[1:]), which)


class _Piece(ctypes.Structure):
    _fields_ = [(name, POINTER) for name in ("text", "starts", "ends", "which", "numbers")]


class _Records(ctypes.Structure):
    _fields_ = [
        ("count", NUMBER),
        ("pieces", NUMBER),
        *((name, POINTER) for name in ("piece", "partitions", "times", "keys", "key_ends", "key_nulls")),
    ]


def _c(pieces: Sequence[RecordPiece]) -> "ctypes.Array[_Piece]":
    return (_Piece * len(pieces))(*(_Piece(*piece.c()) for piece in pieces))


def joined(plugin: LibrdkafkaPlugin, pieces: Sequence[RecordPiece], count: int) -> ByteColumn:
    """Concatenate the pieces of each of `count` records, and return the results as a column."""
    size = sum(piece.total(count) for piece in pieces)  # not `count` times the largest text, which may be a long array
    c_pieces = _c(pieces)
    text = np.empty(size + 1, np.uint8)
    bounds = np.zeros(count + 1, np.int64)
    records = _Records(count, len(pieces), ctypes.addressof(c_pieces))
    plugin.library.records_values(ctypes.addressof(records), address(text), address(bounds[1:]))
    return ByteColumn(text[: bounds[-1]], bounds[:-1], bounds[1:])


def texts_of(pieces: Sequence[RecordPiece], count: int) -> list[bytes]:
    """Concatenate the pieces of each of `count` records in Python, with the same result as `joined`."""
    return list(map(b"".join, zip(*(piece.listed(count) for piece in pieces), strict=True)))


class ColumnarRecords(LazySequence[Record], PackedRecordBatch):
    """A batch of n records for one topic as columns. The records have no headers.

    The batch is also a sequence of records as tuples, which are created on the first access to a record.

    Args:
        plugin: the native library, loaded as a plugin of librdkafka.
        topic: the topic.
        pieces: the parts of the records' values, in order.
        partitions: (n,) int32, the partition of each record.
        times: (n,) int64, the timestamp of each record in Unix ms.
        keys: the key of each record.

    Attributes:
        largest_record: an upper bound of the size of a record's key plus value in bytes.
    """

    def __init__(
        self,
        plugin: LibrdkafkaPlugin,
        topic: str,
        pieces: Sequence[RecordPiece],
        partitions: NDArray[np.int32],
        times: NDArray[np.int64],
        keys: ByteColumn,
    ) -> None:
        self._plugin = plugin
        self._topic = topic
        self._pieces = pieces
        self._partitions = partitions
        self._times = times
        self._keys = keys
        nulls = np.zeros(len(keys), np.uint8) if keys.nulls is None else keys.nulls
        self._borrowed = nulls, _c(pieces)  # kept alive because C reads them
        at = address(partitions), address(times), address(keys.text), address(keys.ends), address(nulls)
        self._c = _Records(len(keys), len(pieces), ctypes.addressof(self._borrowed[1]), *at)
        self._largest = sum(piece.largest() for piece in pieces)
        self.largest_record = self._largest + keys.largest()

    def write(self, producer: Producer, first: int) -> int:
        """Produce the records from the index `first` on. The producer must have been created with the plugin.

        Returns:
            The index of the first record that the producer rejects, or the number of records if it accepts all of them. To get
            the error of a rejected record, produce the record separately.
        """
        value = np.empty(self._largest + 1, np.uint8)
        handle = getattr(producer, "handle", 0)
        topic = self._topic.encode()
        next_row: int = self._plugin.library.records_write(ctypes.addressof(self._c), handle, topic, first, address(value))
        return next_row

    def mean_bytes(self) -> float:
        """Return the mean size of key plus value of a record in bytes. The size of numbers is overestimated."""
        return sum(piece.mean() for piece in self._pieces) + float(self._keys.lengths().mean())

    def largest_share(self) -> float:
        """Return which share of all records (at most 1.0) is in the partition with the most records."""
        return float(np.bincount(self._partitions).max() / len(self))

    def __len__(self) -> int:
        return len(self._keys)

    def _create(self) -> list[Record]:
        rows = zip(
            joined(self._plugin, self._pieces, len(self)),
            self._keys,
            self._partitions.tolist(),
            self._times.tolist(),
            strict=True,
        )
        return [(self._topic, value, key, partition, time, None) for value, key, partition, time in rows]
