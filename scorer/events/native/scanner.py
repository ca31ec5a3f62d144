"""The scanner of JSON objects, for Python: events in, rows of float32 and ids out, and which events are not certain.

`scanner.c` says what is certain and who owns what. The arrays that it borrows are held here by a name until it has returned.
"""

import ctypes
import re
import weakref
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

UNCERTAIN, NO_ID, TEXT_ID, INTEGER_ID = range(4)
PADDING = bytes(32)
TEXT_BYTES = 200_000  # of a slice: it stays in a core's cache, and so do the ids that come out of it
PLAIN_NAME = re.compile(r"[ !#-\[\]-~]*")  # what a key can be compared with byte by byte
Id = str | int | None


@dataclass(slots=True)
class Scanned:
    """What became of B events. `rows` is (B, width) float32, `kinds` has a byte an event (see scanner.h), `ids` an entry each.

    Rows and ids of uncertain events hold anything.
    """

    rows: NDArray[np.float32]
    kinds: bytes
    ids: list[Id]


class Scanner:
    """Scans events for one list of fields.

    `absent` has for each name what stands for a missing number, None where it is required. `id_name` None: there is no id.
    Calls from several threads come one after the other: the library keeps the interpreter's lock. Raises ValueError for names
    that are not plain, MemoryError.
    """

    def __init__(
        self, library: ctypes.PyDLL, names: Sequence[str], absent: Sequence[float | None], id_name: str | None
    ) -> None:
        every = [*names, *([] if id_name is None else [id_name])]
        if not all(map(plain, every)) or len(set(every)) < len(every):
            raise ValueError(f"names that cannot be compared byte by byte: {every}")
        lengths = np.array([len(name) for name in every], np.uint32)
        required = np.array([value is None for value in absent], np.uint8)
        values = np.array([0.0 if value is None else value for value in absent], np.float32)
        self._scan = library.scanner_scan
        self._width, self._with_id = len(names), id_name is not None
        self._state: int | None = library.scanner_new(
            len(names), self._with_id, "".join(every).encode(), _at(lengths), _at(required), _at(values)
        )
        if not self._state:
            raise MemoryError
        weakref.finalize(self, library.scanner_free, self._state)

    def scan(self, values: Sequence[bytes]) -> Scanned:
        """Scan a batch, a slice at a time."""
        count = len(values)
        rows = np.empty((count, self._width), np.float32)
        lengths = array("q", map(len, values))
        step = max(1, count * TEXT_BYTES // max(1, sum(lengths)))
        if step >= count:
            return Scanned(rows, *self._slice(values, lengths.buffer_info()[0], _at(rows)))
        kinds: list[bytes] = []
        ids: list[Id] = []
        for start in range(0, count, step):
            lengths_at = lengths.buffer_info()[0] + start * lengths.itemsize
            of_part, ids_of_part = self._slice(values[start : start + step], lengths_at, _at(rows) + start * rows.strides[0])
            kinds.append(of_part)
            ids += ids_of_part
        return Scanned(rows, b"".join(kinds), ids)

    def _slice(self, values: Sequence[bytes], lengths_at: int, rows_at: int) -> tuple[bytes, list[Id]]:
        """The kinds and the ids of one slice, whose lengths and rows are in the caller's arrays."""
        count = len(values)
        text = b"".join([*values, PADDING])
        out = np.empty(2 * count + len(text), np.uint8)  # the kinds, then the ids
        at = _at(out)
        written = self._scan(self._state, text, lengths_at, count, rows_at, at, at + count)
        told = out[: count + written].tobytes()
        kinds = told[:count]
        if not self._with_id:
            return kinds, [None] * count
        ids: list[Any] = told[count:].decode("ascii").split("\n")
        ids.pop()  # what follows the last newline
        if kinds.count(TEXT_ID) < count:
            ids = [_id(kind, text) for kind, text in zip(kinds, ids, strict=True)]
        return kinds, ids


def plain(name: str) -> bool:
    """Whether a name stands in a JSON text as it is, so that it can be compared byte by byte."""
    return PLAIN_NAME.fullmatch(name) is not None


def _id(kind: int, text: str) -> Id:
    return text if kind == TEXT_ID else int(text) if kind == INTEGER_ID else None


def _at(owner: NDArray[Any]) -> int:
    """Where an array's memory begins. The caller keeps the array."""
    address: int = owner.__array_interface__["data"][0]
    return address
