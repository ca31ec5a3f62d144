"""The index of a table: from the key of a row to its row number.

This module depends on `scorer.native` only. It stores no values; `row_store.py` stores them by row number.

A key is unique within its *space*. With `scope: partition`, each partition is a space. With `scope: all`, the whole table is
space 0.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from scorer.native.key_index import NativeKeyIndex
from scorer.native.load import native_library

Keys = Sequence[bytes | None]
RowNumbers = NDArray[np.int64]
Spaces = int | NDArray[np.int32]
"""One space for all keys, or (n,) the space of each key."""

NO_ROW = -1
PYTHON_ENTRY_BYTES = 165
"""Memory of an entry of the index in Python without the bytes of its key, measured with CPython 3.11: the objects of the key
and of the row number, a dict entry at its average fill, and two entries of lists."""


class KeyIndex(Protocol):
    """An index from (space, key) to a row number. Calls must not overlap.

    A space is a set of keys in which each key is unique: one partition of the table's topic, or the whole table. Row numbers
    are small: the number of a removed row is used again for a later key.
    """

    @property
    def capacity(self) -> int:
        """One more than the largest row number that was ever assigned."""

    @property
    def nbytes(self) -> int:
        """The memory of the index in bytes."""

    def __len__(self) -> int:
        """Return the number of keys."""

    def rows(self, keys: Keys, spaces: Spaces) -> RowNumbers:
        """Return the row number of each key, (n,); NO_ROW for a key that is not in the index and for None."""

    def reserve(self, keys: Keys) -> None:
        """Make room for these keys, so that the next call of `apply` is short.

        Another thread may call `rows` at the same time. No other method may run at the same time.
        """

    def apply(self, keys: Keys, removed: NDArray[np.bool_], spaces: Spaces) -> RowNumbers:
        """Put or remove keys, one after another in the order of the arguments.

        A key that is put and already in the index keeps its row number.

        Args:
            keys: the keys, (n,).
            removed: (n,) whether each key is removed instead of put.
            spaces: the space of the keys.

        Returns:
            (n,) the row number of each key that is put, and the former row number of each key that is removed; NO_ROW for None,
            and for a removed key that was not in the index. If a number occurs several times, the last entry with this number
            decides: the row exists after the call if the key of this entry is put.
        """

    def remove_rows(self, rows: RowNumbers) -> None:
        """Remove the keys with these row numbers, each of which must be in use and occur once."""


class PythonKeyIndex:
    """An index that consists of a dict for each space, for a build without the native library; see `KeyIndex`."""

    def __init__(self) -> None:
        self._spaces: defaultdict[int, dict[bytes, int]] = defaultdict(dict)
        self._keys: list[bytes] = []  # by row number
        self._space_of_row: list[int] = []
        self._free: list[int] = []
        self._key_bytes = 0

    @property
    def capacity(self) -> int:
        return len(self._keys)

    @property
    def nbytes(self) -> int:
        return len(self._keys) * PYTHON_ENTRY_BYTES + self._key_bytes

    def __len__(self) -> int:
        return len(self._keys) - len(self._free)

    def rows(self, keys: Keys, spaces: Spaces) -> RowNumbers:
        """Return the row number of each key; see `KeyIndex`."""
        if isinstance(spaces, int):
            get = self._spaces[spaces].get
            return np.fromiter((get(key, NO_ROW) for key in keys), np.int64, len(keys))  # type: ignore[arg-type]
        pairs = zip(keys, spaces.tolist(), strict=True)
        numbers = (self._spaces[space].get(key, NO_ROW) for key, space in pairs)  # type: ignore[arg-type]
        return np.fromiter(numbers, np.int64, len(keys))

    def reserve(self, keys: Keys) -> None:
        """Do nothing: a dict grows by itself."""

    def apply(self, keys: Keys, removed: NDArray[np.bool_], spaces: Spaces) -> RowNumbers:
        """Put or remove keys; see `KeyIndex`."""
        numbers = np.empty(len(keys), np.int64)
        listed_spaces = [spaces] * len(keys) if isinstance(spaces, int) else spaces.tolist()
        for at, (key, is_removed, space) in enumerate(zip(keys, removed.tolist(), listed_spaces, strict=True)):
            if key is None:
                numbers[at] = NO_ROW
            elif is_removed:
                row = numbers[at] = self._spaces[space].get(key, NO_ROW)
                if row != NO_ROW:
                    self._remove(row)
            else:
                numbers[at] = self._put(key, space)
        return numbers

    def remove_rows(self, rows: RowNumbers) -> None:
        """Remove the keys with these row numbers; see `KeyIndex`."""
        for row in rows.tolist():
            self._remove(row)

    def _put(self, key: bytes, space: int) -> int:
        rows = self._spaces[space]
        row = rows.get(key)
        if row is not None:
            return row
        if self._free:
            row = self._free.pop()
            self._keys[row] = key
            self._space_of_row[row] = space
        else:
            row = len(self._keys)
            self._keys.append(key)
            self._space_of_row.append(space)
        rows[key] = row
        self._key_bytes += len(key)
        return row

    def _remove(self, row: int) -> None:
        key = self._keys[row]
        del self._spaces[self._space_of_row[row]][key]
        self._keys[row] = b""
        self._free.append(row)
        self._key_bytes -= len(key)


def create_key_index() -> KeyIndex:
    """Return an empty index: the native one if the native library is loaded."""
    return PythonKeyIndex() if native_library().library is None else NativeKeyIndex()
