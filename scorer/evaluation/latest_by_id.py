"""Store rows with ids as columns, and select the newest row of each id, independently of the order of reading. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.uint64]
Column = NDArray[Any]


def digest(id_: str) -> bytes:
    """Return the 128-bit BLAKE2b digest of an id. Two of ten million ids collide with a probability of 1e-25."""
    return blake2b(id_.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def hash_ids(ids: Iterable[str]) -> Ids:
    """Return the digest of each id as two 64-bit numbers, (n, 2)."""
    return from_digests(map(digest, ids))


def from_digests(digests: Iterable[bytes]) -> Ids:
    """Return each digest as two 64-bit numbers, (n, 2)."""
    return np.frombuffer(b"".join(digests), np.uint64).reshape(-1, 2)


@dataclass(frozen=True, slots=True)
class NewestRows:
    """The newest row of each id. The rows are in ascending order of `ids`.

    Attributes:
        ids: The digest of each row's id, as two 64-bit numbers, (n, 2).
        columns: The columns by name, (n,) or (n, k).
        replaced: The number of rows that are left out, because a newer row has the same id.
    """

    ids: Ids
    columns: dict[str, Column]
    replaced: int = 0

    def __len__(self) -> int:
        return len(self.ids)

    def contains(self, ids: Ids) -> NDArray[np.bool_]:
        """Return for each of m ids whether a row has the id, (m,)."""
        # Only the first 64 bits of the digests are compared, so an absent id may be found with a negligible probability.
        if not len(self):
            return np.zeros(len(ids), np.bool_)
        firsts = self.ids[:, 0]
        places = np.minimum(np.searchsorted(firsts, ids[:, 0]), len(firsts) - 1)
        return np.asarray(firsts[places] == ids[:, 0])

    def joined(self, other: "NewestRows") -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the row indices of the k ids that are also in `other`: the rows in this object, (k,), and in `other`, (k,)."""
        ids = np.concatenate([self.ids, other.ids])
        order = np.lexsort((ids[:, 1], ids[:, 0]))
        both = np.flatnonzero((ids[order[1:]] == ids[order[:-1]]).all(axis=1))
        return order[both], order[both + 1] - len(self)


class RowsById:
    """Rows with ids in the order of reading, from which `newest` selects one row per id."""

    # Within a partition, the row with the highest offset is the newest. If several partitions have rows of the id, the newest
    # of each are compared by their times.

    def __init__(self) -> None:
        self._ids: list[Ids] = []
        self._columns: list[dict[str, Column]] = []

    def __len__(self) -> int:
        return sum(map(len, self._ids))

    def add(self, ids: Ids, partition: int, offsets: Column, times: Column, **columns: Column) -> None:
        """Add n rows of one partition; `times` are Unix ms, and every column is (n,) or (n, k)."""
        place = {"partition": np.full(len(ids), partition, np.int32), "offset": offsets, "time": times}
        self._ids.append(ids)
        self._columns.append({**place, **columns})

    def newest(self) -> NewestRows:
        """Return the newest row of each id."""
        if not self._ids:
            return NewestRows(np.empty((0, 2), np.uint64), {})
        ids = np.concatenate(self._ids)
        columns = {name: _joined([part[name] for part in self._columns]) for name in self._columns[0]}
        high = ids[:, 0]
        low = ids[:, 1]
        order = np.lexsort((columns["offset"], columns["partition"], low, high))
        order = order[_last(ids[order], columns["partition"][order])]
        order = order[np.lexsort((columns["partition"][order], columns["time"][order], low[order], high[order]))]
        order = order[_last(ids[order])]
        return NewestRows(ids[order], {name: column[order] for name, column in columns.items()}, len(ids) - len(order))


def _last(*columns: Column) -> NDArray[np.bool_]:
    """Return n booleans: True for each row that differs from the next row, and for the last row."""
    changes = np.zeros(len(columns[0]), np.bool_)
    changes[-1:] = True
    for column in columns:
        apart = column[1:] != column[:-1]
        changes[:-1] |= apart.any(axis=1) if apart.ndim == 2 else apart
    return changes


def _joined(parts: Sequence[Column]) -> Column:
    """Concatenate parts; (n, k) parts are padded with NaN to the largest k."""
    if parts[0].ndim == 1:
        return np.concatenate(parts)
    widest = max(part.shape[1] for part in parts)
    return np.concatenate([np.pad(p, ((0, 0), (0, widest - p.shape[1])), constant_values=np.nan) for p in parts])
