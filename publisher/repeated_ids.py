"""How many ids came more than once, in bounded memory: a table of 64-bit hashes, thinned out by hash when it is full.

Thinning keeps or drops an id with all its mentions, so that a sample of 1 in k ids estimates the count by multiplying with k
(distinct sampling; Gibbons, VLDB 2001). Two ids with one hash count as a repetition: at 100 million ids that is expected
0.0003 times.
"""

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.int64]

TABLE_LIMIT = 4_194_304  # 16 bytes each: 64 MiB
PENDING_LIMIT = 1_048_576  # merged into the table at once, which sorts it
SPREAD = np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing (Knuth, TAOCP 3, 6.4): hash(int) is no hash in Python


class RepeatedIds:
    """Counts mentions beyond the first of each id. `sampled` is k: 1 means the count is exact."""

    def __init__(self, limit: int = TABLE_LIMIT, pending_limit: int = PENDING_LIMIT) -> None:
        self.sampled = 1
        self._limit = limit
        self._pending_limit = pending_limit
        self._table = np.empty(0, np.uint64)
        self._mentions = np.empty(0, np.int64)
        self._pending: list[NDArray[np.uint64]] = []
        self._pending_count = 0

    def add(self, hashes: Hashes) -> None:
        """(n,) hashes of ids, one a mention."""
        self._pending.append(hashes.astype(np.uint64) * SPREAD)
        self._pending_count += len(hashes)
        if self._pending_count >= self._pending_limit:
            self._merge()

    def count(self) -> int:
        """Mentions beyond the first of each id; an estimate where `sampled` is not 1."""
        self._merge()
        return int((self._mentions - 1).sum()) * self.sampled

    def _merge(self) -> None:
        new = self._kept(np.concatenate([np.empty(0, np.uint64), *self._pending]))
        self._pending, self._pending_count = [], 0
        both = np.concatenate([self._table, new])
        weights = np.concatenate([self._mentions, np.ones(len(new), np.int64)])
        self._table, where = np.unique(both, return_inverse=True)
        self._mentions = np.bincount(where, weights, len(self._table)).astype(np.int64)
        while len(self._table) > self._limit:
            self.sampled *= 2
            kept = self._table < self._threshold()
            self._table, self._mentions = self._table[kept], self._mentions[kept]

    def _kept(self, hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
        return hashes if self.sampled == 1 else hashes[hashes < self._threshold()]

    def _threshold(self) -> np.uint64:
        return np.uint64(2**64 // self.sampled)
