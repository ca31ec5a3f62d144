"""Sum paired differences by groups of keys, called cells. Pure.

Each pair belongs to one of CELLS cells, by the hash of the event's key. Events with the same key are similar, so a variance
that is estimated from single events would be too small. Different cells are independent of each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh64_intdigest

from publisher.kafka.partitions import Partition

CELLS = 2_000
GRAIN = 2.0**-16
"""Differences are rounded to multiples of GRAIN. Sums are then exact: the same pairs give the same bits in any order."""
COLUMNS = ("sums", "squares", "counts")

Column = NDArray[np.float64]


def cell_of(key_hash: int | None, partition: Partition, offset: int) -> int:
    """Return the cell of an event, from the XXH64 of its key or, if it has no key, from its source position."""
    if key_hash is None:
        key_hash = xxh64_intdigest(b"%b/%d/%d" % (partition[0].encode(), partition[1], offset))
    return key_hash % CELLS


def _zeros() -> Column:
    return np.zeros(CELLS)


@dataclass(frozen=True, eq=False, slots=True)
class Cells:
    """The sums of the differences of pairs, for each cell.

    A cell is a group of event keys. A pair is the answers of both versions to one event. Each attribute is an array of shape
    (CELLS,), with one entry per cell.

    Attributes:
        sums: The sum of the differences of the cell's pairs.
        squares: The sum of the squared differences.
        counts: The number of pairs.
    """

    sums: Column = field(default_factory=_zeros)
    squares: Column = field(default_factory=_zeros)
    counts: Column = field(default_factory=_zeros)

    def added(self, cells: Sequence[int] | NDArray[np.intp], differences: Sequence[float] | Column) -> Self:
        """Return these sums with n further pairs added.

        Args:
            cells: The cell of each pair, (n,).
            differences: The difference of each pair, (n,), finite and from -1 to 1.
        """
        places = np.asarray(cells, np.intp)
        rounded = np.round(np.asarray(differences, np.float64) / GRAIN) * GRAIN
        more = (np.bincount(places, weights, CELLS) for weights in (rounded, np.square(rounded), None))
        return type(self)(*(current + new for current, new in zip(self._columns(), more, strict=True)))

    def merged(self, other: "Cells") -> Self:
        """Return these sums with the pairs of `other` added."""
        return type(self)(*(current + more for current, more in zip(self._columns(), other._columns(), strict=True)))

    @property
    def pairs(self) -> int:
        """The number of pairs."""
        return int(self.counts.sum())

    @property
    def active(self) -> int:
        """The number of cells that have a pair."""
        return int(np.count_nonzero(self.counts))

    def _columns(self) -> tuple[Column, Column, Column]:
        return self.sums, self.squares, self.counts
