"""The native index of keys. scorer/tables/key_index.py describes its contract, and key_index.c the ownership of its memory."""

import secrets
from collections.abc import Sequence
from typing import Any
from weakref import finalize

import numpy as np
from numpy.typing import NDArray

from scorer.native.byte_columns import ByteColumn, address
from scorer.native.load import native_library


class NativeKeyIndex:
    """An index of keys in C, without a Python object for each key.

    Keys are hashed with a secret seed, so that no producer can write keys with equal hashes on purpose.

    Raises:
        MemoryError: Memory is exhausted. Every method may raise this error.
        RuntimeError: The native library is not loaded.
    """

    def __init__(self) -> None:
        native = native_library()
        if native.library is None or native.unlocked is None:
            raise RuntimeError(native.status)
        self._library = native.library
        self._unlocked = native.unlocked
        self._index = self._library.key_index_new(secrets.randbits(64))
        if not self._index:
            raise MemoryError
        finalize(self, self._library.key_index_free, self._index).atexit = False  # a thread may still use it

    @property
    def capacity(self) -> int:
        """One more than the largest row number that was ever assigned."""
        return self._sizes()[1]

    @property
    def nbytes(self) -> int:
        """The memory of the index in bytes."""
        return self._sizes()[2]

    def __len__(self) -> int:
        return self._sizes()[0]

    def rows(self, keys: Sequence[bytes | None], spaces: int | NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the row number of each key, (n,); see `KeyIndex`."""
        arguments = _KeyArguments(keys, spaces)
        numbers = np.empty(len(keys), np.int64)
        self._library.key_index_rows(self._index, *arguments.text, *arguments.spaces, len(keys), address(numbers))
        return numbers

    def reserve(self, keys: Sequence[bytes | None]) -> None:
        """Make room for these keys without the GIL. Other threads may call `rows` at the same time."""
        size = int(keys.lengths().sum()) if isinstance(keys, ByteColumn) else sum(len(key or b"") for key in keys)
        self._check(self._unlocked.key_index_reserve(self._index, len(keys), size))

    def apply(
        self, keys: Sequence[bytes | None], removed: NDArray[np.bool_], spaces: int | NDArray[np.int32]
    ) -> NDArray[np.int64]:
        """Put or remove keys in their order; return their row numbers, (n,). See `KeyIndex`."""
        arguments = _KeyArguments(keys, spaces)
        numbers = np.empty(len(keys), np.int64)
        flags = np.ascontiguousarray(removed, np.uint8)
        self._check(
            self._library.key_index_apply(
                self._index, *arguments.text, address(flags), *arguments.spaces, len(keys), address(numbers)
            )
        )
        return numbers

    def remove_rows(self, rows: NDArray[np.int64]) -> None:
        """Remove the keys with these row numbers."""
        numbers = np.ascontiguousarray(rows, np.int64)
        self._check(self._library.key_index_remove_rows(self._index, address(numbers), len(numbers)))

    def _sizes(self) -> list[int]:
        sizes = np.empty(3, np.int64)
        self._library.key_index_sizes(self._index, address(sizes))
        listed: list[int] = sizes.tolist()
        return listed

    @staticmethod
    def _check(succeeded: bool) -> None:
        if not succeeded:
            raise MemoryError


class _KeyArguments:
    """A sequence of keys as arguments of C functions. The object keeps the arrays alive.

    Each key belongs to a space, a number. Equal keys in different spaces are different keys.

    Attributes:
        text: the addresses of four arrays: the bytes of all keys, the start offset of each key, the end offset of each key, and
            for each key whether it is None. The last address is 0 if no key is None.
        spaces: (0, the space) if all keys have the same space; otherwise (the address of an array with the space of each key,
            0).
    """

    def __init__(self, keys: Sequence[bytes | None], spaces: int | NDArray[np.int32]) -> None:
        column = keys if isinstance(keys, ByteColumn) else _as_column(keys)
        self._arrays: list[NDArray[Any]] = [column.text, np.ascontiguousarray(column.starts), np.ascontiguousarray(column.ends)]
        if column.nulls is not None:
            self._arrays.append(np.ascontiguousarray(column.nulls))
        self.text = ([address(array) for array in self._arrays] + [0])[:4]
        if isinstance(spaces, int):
            self.spaces = 0, spaces
        else:
            self._spaces = np.ascontiguousarray(spaces, np.int32)
            self.spaces = address(self._spaces), 0


def _as_column(keys: Sequence[bytes | None]) -> ByteColumn:
    present = [key or b"" for key in keys]
    lengths = np.fromiter(map(len, present), np.int64, len(present))
    ends = np.cumsum(lengths)
    nulls = np.fromiter((key is None for key in keys), np.uint8, len(present)) if None in keys else None
    return ByteColumn(np.frombuffer(b"".join(present) or bytes(1), np.uint8), ends - lengths, ends, nulls)
