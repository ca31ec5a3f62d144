"""A set of offsets without a Python object per offset: a compressed bitmap (pyroaring)."""

from array import array
from itertools import islice, takewhile

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap64

Offsets = NDArray[np.int64]

EVERYTHING = 2**63 - 1  # larger than every offset


class Bitmap:
    """A set of offsets >= 0. Memory: a few bytes for a range without gaps, at most 1 bit per offset with many gaps."""

    def __init__(self, offsets: BitMap64 | None = None) -> None:
        self._offsets = BitMap64() if offsets is None else offsets

    def add(self, offsets: Offsets) -> NDArray[np.bool_]:
        """Add (n,) offsets. Return (n,) booleans, which are True at the first occurrence of each new offset."""
        bitmap = BitMap64(array("Q", offsets.tobytes()))  # an iterator over numpy's integers takes three times as long
        repeated = bitmap & self._offsets
        self._offsets |= bitmap
        if len(bitmap) == len(offsets) and not repeated:
            return np.ones(len(offsets), np.bool_)
        first = np.zeros(len(offsets), np.bool_)
        first[np.unique(offsets, return_index=True)[1]] = True
        return first & ~np.isin(offsets, np.array(repeated, np.int64))

    def add_range(self, start: int, stop: int) -> None:
        """Add all offsets in [start, stop)."""
        self._offsets.add_range(start, stop)

    def minus(self, other: "Bitmap") -> "Bitmap":
        return Bitmap(self._offsets - other._offsets)

    def unite(self, other: "Bitmap") -> None:
        self._offsets |= other._offsets

    def count(self, start: int = 0, stop: int = EVERYTHING) -> int:
        """Return the number of contained offsets in [start, stop)."""
        return self._offsets.range_cardinality(start, stop) if start < stop else 0

    def first(self, limit: int, start: int = 0, stop: int = EVERYTHING) -> list[int]:
        """Return up to `limit` of the lowest contained offsets in [start, stop), ascending."""
        return list(islice(takewhile(stop.__gt__, self._offsets.iter_equal_or_larger(start)), limit))
