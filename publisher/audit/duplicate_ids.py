"""Count repeated event ids in bounded memory, exactly or from a sample of the ids.

A table holds a 64-bit hash of each id. When the table is full, only the ids with the lowest hashes are kept. The repetitions in
this sample of one in k ids, multiplied by k, estimate all repetitions (distinct sampling; Gibbons, VLDB 2001). Two ids with the
same hash count as a repetition: 0.0003 such pairs are expected in 100 million ids.
"""

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.int64]

TABLE_LIMIT = 4_194_304  # ids; 8 bytes each, 24 for a repeated id: 32 to 96 MiB
PENDING_LIMIT = 1_048_576  # hashes that are collected before they are merged, because each merge sorts the table
SPREAD = np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing (Knuth, TAOCP 3, 6.4): Python's hash(int) is the int


class RepeatedIds:
    """Counts repeated event ids: the occurrences of each id after its first occurrence.

    The count is exact if `sampled` is 1. Otherwise it is an estimate from one in `sampled` ids.
    """

    def __init__(self, limit: int = TABLE_LIMIT, pending_limit: int = PENDING_LIMIT) -> None:
        self.sampled = 1
        self._limit = limit
        self._pending_limit = pending_limit
        self._table = np.empty(0, np.uint64)
        self._repeated = np.empty(0, np.uint64)
        self._repetitions = np.empty(0, np.int64)
        self._pending: list[NDArray[np.uint64]] = []
        self._pending_count = 0

    def add(self, hashes: Hashes) -> None:
        """Add (n,) hashes of ids, one per occurrence."""
        self._pending.append(hashes.astype(np.uint64) * SPREAD)
        self._pending_count += len(hashes)
        if self._pending_count >= self._pending_limit:
            self._merge()

    def count(self) -> int:
        """Return the number of repetitions; an estimate if `sampled` is not 1."""
        self._merge()
        return int(self._repetitions.sum()) * self.sampled

    def _merge(self) -> None:
        """Merge the hashes added since the last merge into the table, and drop ids until at most `_limit` remain."""
        mentions = np.sort(np.concatenate([self._table, *self._pending]))
        self._pending = []
        self._pending_count = 0
        repeated = np.zeros(len(mentions), np.bool_)
        repeated[1:] = mentions[1:] == mentions[:-1]
        self._table = mentions[~repeated]
        ids, where = np.unique(np.concatenate([self._repeated, mentions[repeated]]), return_inverse=True)
        weights = np.concatenate([self._repetitions, np.ones(int(repeated.sum()), np.int64)])
        self._repeated = ids
        self._repetitions = np.bincount(where, weights, len(ids)).astype(np.int64)
        self._thin_out()
        while len(self._table) > self._limit:
            self.sampled *= 2
            self._thin_out()

    def _thin_out(self) -> None:
        """Keep one in `sampled` ids, those with the lowest hashes. Drop the others."""
        if self.sampled > 1:
            limit = np.uint64(2**64 // self.sampled)
            self._table = self._table[: np.searchsorted(self._table, limit)].copy()
            count = np.searchsorted(self._repeated, limit)
            self._repeated = self._repeated[:count]
            self._repetitions = self._repetitions[:count]
