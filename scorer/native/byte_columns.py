"""Columns of byte strings in one buffer, which C reads and writes.

Python objects for the strings are created only on access.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
PADDING = bytes(32)
"""The zero bytes that must follow each text that C code scans (SCANNER_PADDING in scanner.h)."""
PLAIN = np.array([0x20 <= byte < 0x7F and byte not in b'"\\' for byte in range(256)])
"""Byte -> whether it needs no escape in a JSON string."""
Column = Sequence[bytes | None]
"""A byte string or None per row, as a `ByteColumn` or a list."""


class LazySequence(Sequence[T]):
    """A sequence that creates all its entries on the first access to an entry."""

    @cached_property
    def listed(self) -> list[T]:
        """All entries as a list, created on the first access."""
        return self._create()

    @abstractmethod
    def _create(self) -> list[T]:
        """Create all entries. This method is called at most once."""

    def __iter__(self) -> Iterator[T]:
        return iter(self.listed)

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> list[T]: ...
    def __getitem__(self, at: int | slice) -> T | list[T]:
        return self.listed[at]


class ByteColumn(LazySequence[bytes | None]):
    """A column of n byte strings in one buffer. String i is `text[starts[i]:ends[i]]`.

    Args:
        text: (size,) uint8, the buffer.
        starts: (n,) int64, the start position of each string.
        ends: (n,) int64, the end position of each string.
        nulls: (n,), nonzero for each entry that is None; None if no entry is None.
    """

    def __init__(
        self,
        text: NDArray[np.uint8],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        nulls: NDArray[Any] | None = None,
    ) -> None:
        self.text = text
        self.starts = starts
        self.ends = ends
        self.nulls = nulls if nulls is not None and nulls.any() else None

    @classmethod
    def split(cls, text: bytes, before: int, ends: NDArray[np.int64], between: int = 1) -> "ByteColumn":
        """Split a text into byte strings that end at these positions.

        The first string starts at `before`. Consecutive strings are separated by `between` bytes.
        """
        starts = np.empty_like(ends)
        starts[:1] = before
        starts[1:] = ends[:-1] + between
        return cls(np.frombuffer(text, np.uint8), starts, ends)

    def _create(self) -> list[bytes | None]:
        text = self.text.tobytes()
        strings: list[bytes | None] = [text[a:b] for a, b in zip(self.starts.tolist(), self.ends.tolist(), strict=True)]
        for row in [] if self.nulls is None else np.flatnonzero(self.nulls).tolist():
            strings[row] = None
        return strings

    def part(self, rows: NDArray[np.int64]) -> "ByteColumn":
        """Return a column of the entries at the indices `rows`, (n,), with the same buffer."""
        nulls = None if self.nulls is None else self.nulls[rows]
        return ByteColumn(self.text, self.starts[rows], self.ends[rows], nulls)

    @property
    def is_packed(self) -> bool:
        """Whether each string starts where the previous string ends."""
        return bool((self.starts[1:] == self.ends[:-1]).all())

    def packed(self) -> "ByteColumn":
        """Return a column with the same entries, in which each string starts where the previous string ends.

        PADDING follows the text of a new column. A column that is packed already is returned unchanged.
        """
        if self.is_packed:
            return self
        lengths = self.lengths()
        ends = np.cumsum(lengths)
        starts = ends - lengths
        size = int(lengths.sum())
        text = np.zeros(size + len(PADDING), np.uint8)
        text[:size] = self.text[np.arange(size) + np.repeat(self.starts - starts, lengths)]
        return ByteColumn(text, starts, ends, self.nulls)

    def take_rows(self, rows: NDArray[np.int64]) -> list[bytes | None]:
        """Return the entries at the indices `rows`, (n,), without creating objects for other entries."""
        text = self.text.data
        bounds = zip(self.starts[rows].tolist(), self.ends[rows].tolist(), strict=True)
        strings: list[bytes | None] = [bytes(text[a:b]) for a, b in bounds]
        for at in [] if self.nulls is None else np.flatnonzero(self.nulls[rows]).tolist():
            strings[at] = None
        return strings

    def all_begin(self, prefix: bytes) -> bool:
        """Return whether every string starts with a prefix."""
        if (self.lengths() < len(prefix)).any():
            return False
        first = self.text[self.starts[:, None] + np.arange(len(prefix))]
        return bool((first == np.frombuffer(prefix, np.uint8)).all())

    def lengths(self) -> NDArray[np.int64]:
        """Return the length of each string in bytes; 0 for None."""
        return self.ends - self.starts

    def largest(self) -> int:
        """Return the length of the longest string in bytes; 0 if there are no strings."""
        return int(self.lengths().max(initial=0))

    def any_empty(self) -> bool:
        """Return whether any entry is empty or None."""
        return not self.lengths().all()

    def __len__(self) -> int:
        return len(self.ends)


class AsciiColumn(LazySequence[str | int | None]):
    """A column of strings that need no escapes in JSON: printable ASCII without quotation marks and backslashes."""

    def __init__(self, texts: ByteColumn) -> None:
        self.texts = texts

    @classmethod
    def cut(cls, buffer: NDArray[np.uint8], begins: NDArray[np.int64], ends: NDArray[np.int64]) -> "AsciiColumn | None":
        """Copy the strings `buffer[begins[i]:ends[i]]`; return None if a string needs escapes in JSON."""
        lengths = ends - begins
        until = np.cumsum(lengths)
        starts = until - lengths
        text = buffer[np.arange(int(lengths.sum())) + np.repeat(begins - starts, lengths)]
        if not PLAIN[text].all():
            return None
        return cls(ByteColumn(text, starts, until))

    def _create(self) -> list[str | int | None]:
        text = self.texts.text.tobytes().decode("ascii")
        return [text[a:b] for a, b in zip(self.texts.starts.tolist(), self.texts.ends.tolist(), strict=True)]

    def __len__(self) -> int:
        return len(self.texts)


def part(column: Column, rows: NDArray[np.int64]) -> Column:
    """Return the entries of a column at the indices `rows`, (n,), as a column."""
    return column.part(rows) if isinstance(column, ByteColumn) else [column[row] for row in rows.tolist()]


def nulls(column: Column) -> list[int]:
    """Return the indices of the entries that are None."""
    if isinstance(column, ByteColumn):
        return [] if column.nulls is None else np.flatnonzero(column.nulls).tolist()
    return [row for row, text in enumerate(column) if text is None]


def is_null(column: Column) -> NDArray[np.bool_]:
    """Return whether each entry is None, (n,)."""
    if isinstance(column, ByteColumn):
        return np.zeros(len(column), np.bool_) if column.nulls is None else column.nulls.astype(np.bool_)
    return np.fromiter((text is None for text in column), np.bool_, len(column))


def take_rows(column: Column, rows: NDArray[np.int64]) -> list[bytes | None]:
    """Return the entries of a column at the indices `rows`, (n,), as a list."""
    return column.take_rows(rows) if isinstance(column, ByteColumn) else [column[row] for row in rows.tolist()]


def address(owner: NDArray[Any]) -> int:
    """Return the memory address of an array. The caller must keep the array alive while the address is used."""
    at: int = owner.__array_interface__["data"][0]
    return at
