"""The scanner of JSON objects and arrays: events to rows of float32, ids, and the uncertain events.

`scanner.c` documents certainty and ownership. Borrowed arrays are kept alive here until it returns.
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
TEXT_BYTES = 200_000  # of a slice: it stays in a core's cache, and so do the ids that come out of it
PLAIN_NAME = re.compile(r"[ !#-\[\]-~]*")  # what a key can be compared with byte by byte
Id = str | int | None


class IdColumn(LazySequence[Id]):
    """The ids of a batch, created on demand. `text` has each id and a newline, `kinds` one byte per event."""

    def __init__(self, text: NDArray[np.uint8], kinds: bytes) -> None:
        self._text = text
        self._kinds = kinds

    def texts(self) -> ByteColumn | None:
        """The ids as text; None for an event without one."""
        if NO_ID in self._kinds or UNCERTAIN in self._kinds:
            return None
        return ByteColumn.split(self._text.tobytes(), 0, np.flatnonzero(self._text == NEWLINE))

    def absent(self) -> bool:
        """Whether no event has an id."""
        return self._kinds.count(NO_ID) == len(self._kinds)

    def _made(self) -> list[Id]:
        texts = self._text.tobytes().decode("ascii").split("\n")
        texts.pop()  # what follows the last newline
        plain = self._kinds.count(TEXT_ID) == len(texts)
        return list(texts) if plain else [_id(k, t) for k, t in zip(self._kinds, texts, strict=True)]

    def __len__(self) -> int:
        return len(self._kinds)


@dataclass(slots=True)
class ScanResult:
    """The result for B events. `rows` is (B, width) float32, `kinds` has a byte per event (see scanner.h), `ids` an entry.

    Rows and ids of uncertain events are undefined.
    """

    rows: NDArray[np.float32]
    kinds: bytes
    ids: IdColumn


@dataclass(frozen=True, slots=True)
class NumberField:
    """A field of numbers.

    `array`: its length, 0 for a scalar. `absent` replaces each number if the field is absent or null; None: the field is
    required.
    """

    name: str
    absent: float | None = None
    array: int = 0


class _Wanted(ctypes.Structure):
    _fields_ = [("array", ctypes.c_uint32), ("required", ctypes.c_uint32), ("absent", ctypes.c_float)]


class Scanner:
    """Scans events for a list of fields, whose numbers form a row.

    `id_name` None: there is no id. `bare`: an event is the array of the only field. Calls of several threads are serialized by
    the interpreter's
    lock. Raises ValueError for names that need escapes, MemoryError.
    """

    def __init__(
        self, library: ctypes.PyDLL, fields: Sequence[NumberField], id_name: str | None = None, *, bare: bool = False
    ) -> None:
        every = [*(field.name for field in fields), *([] if id_name is None else [id_name])]
        if not all(map(plain, every)) or len(set(every)) < len(every):
            raise ValueError(f"names that cannot be compared byte by byte: {every}")
        form = ARRAYS if bare else OBJECTS if id_name is None else OBJECTS_WITH_ID
        lengths = np.array([len(name) for name in every], np.uint32)
        wanted = (_Wanted * len(fields))(*(_Wanted(one.array, one.absent is None, one.absent or 0.0) for one in fields))
        self._scan = library.scanner_scan
        self._width = sum(field.array or 1 for field in fields)
        self._state: int | None = library.scanner_new(
            form, len(fields), "".join(every).encode(), address(lengths), ctypes.addressof(wanted)
        )
        if not self._state:
            raise MemoryError
        weakref.finalize(self, library.scanner_free, self._state)

    def scan(self, values: Sequence[bytes | None]) -> ScanResult:
        """Scan a batch slice by slice. None is uncertain."""
        count = len(values)
        lengths = (
            values.lengths() if isinstance(values, ByteColumn) else np.array([len(value or b"") for value in values], np.int64)
        )
        size = int(lengths.sum())
        rows, kinds, ids = (
            np.empty((count, self._width), np.float32),
            np.empty(count, np.uint8),
            np.empty(count + size, np.uint8),
        )
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
                self._state, text, address(lengths) + start * lengths.itemsize, some,
                address(rows) + start * rows.strides[0], address(kinds) + start, address(ids) + written,
            )  # fmt: skip
        told = kinds.tobytes()
        return ScanResult(rows, told, IdColumn(ids[:written], told))


def plain(name: str) -> bool:
    """Return whether a name needs no escapes in JSON, so that it can be compared byte by byte."""
    return PLAIN_NAME.fullmatch(name) is not None


def _id(kind: int, text: str) -> Id:
    return text if kind == TEXT_ID else int(text) if kind == INTEGER_ID else None
