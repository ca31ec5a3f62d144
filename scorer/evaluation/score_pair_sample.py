"""Sample pairs of scores (of two versions) by the positions of their events, independently of the order of reading. Pure."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from publisher.kafka.partitions import Partition

MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
"""The multipliers of splitmix64 (Steele, Lea and Flood, Fast splittable pseudorandom number generators, 2014)."""
Pairs = NDArray[np.float64]


class PairSample:
    """A sample of at most `most` pairs of scores. A pair has the scores of two versions for the same event."""

    # A pair is in the sample if the hash of its event's position is not above a bound, which is halved when there are too many
    # pairs.

    def __init__(self, most: int) -> None:
        self._most = most
        self._bound = (1 << 64) - 1
        self._hashes: list[NDArray[np.uint64]] = []
        self._parts: list[Pairs] = []

    def add(self, partition: Partition, offsets: Sequence[int] | NDArray[np.int64], pairs: Pairs) -> None:
        """Add the pairs (2, n) of the n events at these offsets of a partition; pairs that are not finite are ignored."""
        hashes = _hashes(partition, np.asarray(offsets).astype(np.uint64))
        chosen = np.isfinite(pairs).all(axis=0) & (hashes <= np.uint64(self._bound))
        self._hashes.append(hashes[chosen])
        self._parts.append(pairs[:, chosen])
        while sum(map(len, self._hashes)) > self._most:
            self._bound //= 2
            hashes = np.concatenate(self._hashes)
            numbers = np.concatenate(self._parts, axis=1)
            below = hashes <= np.uint64(self._bound)
            self._hashes = [hashes[below]]
            self._parts = [numbers[:, below]]

    def pairs(self) -> Pairs:
        """Return the sampled pairs in arbitrary order, (2, m)."""
        return np.concatenate(self._parts, axis=1) if self._parts else np.empty((2, 0))


def _hashes(partition: Partition, offsets: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the splitmix64 hashes of the positions, with a different seed per partition."""
    seed = int.from_bytes(repr(partition).encode()[-8:], "big")
    mixed = (offsets + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
    for shift, factor in zip((30, 27), MIX, strict=True):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))
