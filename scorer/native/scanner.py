"""Scanning of JSON objects and arrays by scanner.c, which returns rows of float32 and ids.

An event that the scanner may not have read correctly is marked as uncertain, and another decoder must read it. `scanner.c`
documents which events are uncertain, and the ownership of memory. This module keeps the arrays that C uses alive until a call
returns.
"""

import ctypes
import re
import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scorer.native.byte_columns import PADDING, ByteColumn, LazySequence, address

UNCERTAIN, NO_ID, TEXT_ID, INTEGER_ID = range(4)
OBJECTS, OBJECTS_WITH_ID, ARRAYS = range(3)
NEWLINE = 10
TEXT_BYTES = 200_000  # the size of a slice in bytes: the slice and its ids fit the cache of a CPU core
PLAIN_NAME = re.compile(r"[ !#-\[\]-~]*")  # names that need no escapes in JSON
Id = str | int | None


class IdColumn(LazySequence[Id]):
    """The ids of the events of a batch. They are created as Python objects on the first access.

    Args:
        text: the id of each event, followed by a newline.
        kinds: one byte per event: TEXT_ID, INTEGER_ID, NO_ID or UNCERTAIN.
    """

    def __init__(self, text: NDArray[np.uint8], kinds: bytes) -> None:
        self._text = text
        self._kinds = kinds

    def texts(self) -> ByteColumn | None:
        """Return all ids as text; None if any event has no id or is uncertain."""
        if NO_ID in self._kinds or UNCERTAIN in self._kinds:
            return None
        return ByteColumn.split(self._text.tobytes(), 0, np.flatnonzero(self._text == NEWLINE))

    def column(self) -> ByteColumn:
        """Return each id as text; None for an event that has no id or is uncertain."""
        texts = ByteColumn.split(self._text.tobytes(), 0, np.flatnonzero(self._text == NEWLINE))
        kinds = np.frombuffer(self._kinds, np.uint8)
        return ByteColumn(texts.text, texts.starts, texts.ends, (kinds == NO_ID) | (kinds == UNCERTAIN))

    def absent(self) -> bool:
        """Return whether no event has an id."""
        return self._kinds.count(NO_ID) == len(self._kinds)

    def _create(self) -> list[Id]:
        texts = self._text.tobytes().decode("ascii").split("\n")
        texts.pop()  # the empty text after the last newline
        plain = self._kinds.count(TEXT_ID) == len(texts)
        return list(texts) if plain else [_id(k, t) for k, t in zip(self._kinds, texts, strict=True)]

    def __len__(self) -> int:
        return len(self._kinds)


@dataclass(slots=True)
class ScanResult:
    """The result of scanning B events. The row and the id of an event are undefined if its kind is UNCERTAIN.

    Attributes:
        rows: (B, width) float32, the numbers of each event.
        kinds: one byte per event: the kind of the event's id (see scanner.h), or UNCERTAIN if the scanner may have read the
            event incorrectly.
        ids: the id of each event.
    """

    rows: NDArray[np.float32]
    kinds: bytes
    ids: IdColumn


@dataclass(frozen=True, slots=True)
class NumberField:
    """A field of the scanned events: a number, or an array of numbers.

    Attributes:
        name: the name of the field in the event.
        absent: the value of each number if the field is absent or null; None if the field is required.
        array: the length of the array; 0 for a single number.
    """

    name: str
    absent: float | None = None
    array: int = 0


class _FieldSpec(ctypes.Structure):
    _fields_ = [("array", ctypes.c_uint32), ("required", ctypes.c_uint32), ("absent", ctypes.c_float)]


class Scanner:
    """Scanner of events with a given list of fields. The numbers of the fields form the row of an event.

    Several threads may call a scanner, because each call holds the GIL.

    Args:
        library: the native library.
        fields: the fields, in the order of a row.
        id_name: the name of the field with the id; None if events have no id.
        bare: whether each event is a JSON array without field names. This array is the only field.

    Raises:
        ValueError: Two names are equal, or a name has a quote, a backslash or a character that is not printable ASCII.
        MemoryError: Memory is exhausted.
    """

    def __init__(
        self, library: ctypes.PyDLL, fields: Sequence[NumberField], id_name: str | None = None, *, bare: bool = False
    ) -> None:
        every = [*(field.name for field in fields), *([] if id_name is None else [id_name])]
        if not all(map(plain, every)) or len(set(every)) < len(every):
            raise ValueError(f"field names must be distinct, of printable ASCII without quotes and backslashes: {every}")
        form = ARRAYS if bare else OBJECTS if id_name is None else OBJECTS_WITH_ID
        lengths = np.array([len(name) for name in every], np.uint32)
        specs = (_FieldSpec * len(fields))(*(_FieldSpec(one.array, one.absent is None, one.absent or 0.0) for one in fields))
        self._scan = library.scanner_scan
        self._width = sum(field.array or 1 for field in fields)
        self._state: int | None = library.scanner_new(
            form, len(fields), "".join(every).encode(), address(lengths), ctypes.addressof(specs)
        )
        if not self._state:
            raise MemoryError
        weakref.finalize(self, library.scanner_free, self._state)

    def scan(self, values: Sequence[bytes | None]) -> ScanResult:
        """Scan a batch of events. An event whose value is None is marked as uncertain."""
        # The batch is scanned in slices that fit in the CPU's cache. The native function reads the events of a slice one after
        # another, so that a column with gaps, such as the rows of a table after updates, is copied first.
        count = len(values)
        if isinstance(values, ByteColumn):
            values = values.packed()
        lengths = (
            values.lengths() if isinstance(values, ByteColumn) else np.array([len(value or b"") for value in values], np.int64)
        )
        size = int(lengths.sum())
        rows = np.empty((count, self._width), np.float32)
        kinds = np.empty(count, np.uint8)
        ids = np.empty(count + size, np.uint8)
        step = max(1, count * TEXT_BYTES // max(1, size))
        written = 0
        for start in range(0, count, step):
            some = min(step, count - start)
            text: int | bytes
            if isinstance(values, ByteColumn):
                text = address(values.text) + int(values.starts[start])
            else:
                text = b"".join([*(value or b"" for value in values[start : start + some]), PADDING])
            written += self._scan(
                self._state,
                text,
                address(lengths) + start * lengths.itemsize,
                some,
                address(rows) + start * rows.strides[0],
                address(kinds) + start,
                address(ids) + written,
            )
        kind_bytes = kinds.tobytes()
        return ScanResult(rows, kind_bytes, IdColumn(ids[:written], kind_bytes))


def plain(name: str) -> bool:
    """Return whether a name needs no escapes in JSON, so that it can be compared byte by byte with names in events."""
    return PLAIN_NAME.fullmatch(name) is not None


def _id(kind: int, text: str) -> Id:
    return text if kind == TEXT_ID else int(text) if kind == INTEGER_ID else None
