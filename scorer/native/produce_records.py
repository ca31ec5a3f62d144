"""Records that are put together from columns, and handed to a producer in one call; produce.c has the other half.

They are a sequence of plain records too: as such they are made where somebody asks, and then kept.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from confluent_kafka import Producer
from numpy.typing import NDArray

from publisher.transactions.protocol import PackedRecordBatch, Record
from scorer.native.byte_columns import ByteColumn, LazySequence, address
from scorer.native.librdkafka import NUMBER, POINTER, LibrdkafkaPlugin

DIGITS = 20  # of an int64, with its sign


@dataclass(slots=True)
class RecordPiece:
    """A piece of each record's value: of `texts` the one of that record, or the one that `which` (int32) says; where there are
    none the digits of `numbers` (int64)."""

    texts: ByteColumn | None = None
    which: NDArray[np.int32] | None = None
    numbers: NDArray[np.int64] | None = None

    def largest(self) -> int:
        """How many bytes it has at most."""
        return DIGITS if self.texts is None else self.texts.largest()

    def mean(self) -> float:
        """How many bytes it has on average, or at most."""
        if self.texts is None:
            return DIGITS
        lengths = self.texts.lengths()
        if self.which is None:
            return float(lengths.mean())
        return float(np.bincount(self.which, minlength=len(lengths)) @ lengths / len(self.which))

    def c(self) -> tuple[int | None, ...]:
        """As produce.c takes it."""
        if self.texts is None:
            assert self.numbers is not None
            return None, None, None, None, address(self.numbers)
        which = None if self.which is None else address(self.which)
        return address(self.texts.text), address(self.texts.starts), address(self.texts.ends), which, None


def constant(text: bytes, count: int) -> RecordPiece:
    """The same in each of `count` records."""
    return chosen([text], np.zeros(count, np.int32))


def chosen(texts: Sequence[bytes], which: NDArray[np.int32]) -> RecordPiece:
    """In each record the text that `which` says."""
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


def joined(bus: LibrdkafkaPlugin, pieces: Sequence[RecordPiece], count: int) -> ByteColumn:
    """`count` texts: the pieces of each, one behind the other."""
    size, kept = count * sum(piece.largest() for piece in pieces), _c(pieces)
    text, bounds = np.empty(size + 1, np.uint8), np.zeros(count + 1, np.int64)
    records = _Records(count, len(pieces), ctypes.addressof(kept))
    bus.library.records_values(ctypes.addressof(records), address(text), address(bounds[1:]))
    return ByteColumn(text[: bounds[-1]], bounds[:-1], bounds[1:])


class ColumnarRecords(LazySequence[Record], PackedRecordBatch):
    """Records without headers, to one topic. `partitions` is int32, `times` int64 in Unix ms; `keys` has an entry each."""

    def __init__(
        self,
        bus: LibrdkafkaPlugin,
        topic: str,
        pieces: Sequence[RecordPiece],
        partitions: NDArray[np.int32],
        times: NDArray[np.int64],
        keys: ByteColumn,
    ) -> None:
        self._bus = bus
        self._topic = topic
        self._pieces, self._partitions, self._times, self._keys = pieces, partitions, times, keys
        nulls = np.zeros(len(keys), np.uint8) if keys.nulls is None else keys.nulls
        self._kept = nulls, _c(pieces)
        at = address(partitions), address(times), address(keys.text), address(keys.ends), address(nulls)
        self._c = _Records(len(keys), len(pieces), ctypes.addressof(self._kept[1]), *at)
        self._largest = sum(piece.largest() for piece in pieces)
        self.largest_record = self._largest + keys.largest()
        """No key and value have more bytes together."""

    def write(self, producer: Producer, first: int) -> int:
        """Hand the records from `first` on to a producer that has its handle. The number of the first that it does not take,
        which has to be handed over by itself to learn why: their count, where it takes all."""
        value = np.empty(self._largest + 1, np.uint8)
        handle, topic = getattr(producer, "handle", 0), self._topic.encode()
        reached: int = self._bus.library.records_write(ctypes.addressof(self._c), handle, topic, first, address(value))
        return reached

    def mean_bytes(self) -> float:
        """How many bytes a key and a value have together on average, a little more at most."""
        return sum(piece.mean() for piece in self._pieces) + float(self._keys.lengths().mean())

    def largest_share(self) -> float:
        """The share of them that the partition with the most gets."""
        return float(np.bincount(self._partitions).max() / len(self))

    def __len__(self) -> int:
        return len(self._keys)

    def _made(self) -> list[Record]:
        rows = zip(
            joined(self._bus, self._pieces, len(self)), self._keys, self._partitions.tolist(), self._times.tolist(), strict=True
        )
        return [(self._topic, value, key, partition, time, None) for value, key, partition, time in rows]
