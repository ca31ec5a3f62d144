"""Whose keys a canary answers, and which a shadow samples: a pure function of the key, the candidate's digest and the share.
Every scorer agrees on it.

A key stays in its arm for as long as the share does, and raising the share only adds keys. Another candidate gets other keys.
"""

from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh64_intdigest

from scorer.decoding.batch import Batch, Place, position_text
from scorer.native.xxhash import xxh64

BUCKETS = 10_000
SEED_DIGITS = 16  # hexadecimal, of the digest: its first 8 bytes, big-endian


@dataclass(frozen=True, slots=True)
class TrafficSplit:
    """The canary, or the sample, owns the buckets below `below`, of BUCKETS; `seed` is 64 bits."""

    seed: int
    below: int

    @classmethod
    def of(cls, digest: str, percent: int) -> "TrafficSplit":
        """Of a candidate by its manifest's digest (`sha256:...`), with so many percent of the keys."""
        return cls(int(digest.partition(":")[2][:SEED_DIGITS], 16), BUCKETS * percent // 100)

    @classmethod
    def sample(cls, digest: str, percent: int) -> "TrafficSplit":
        """What a shadow scores of what a candidate answers, or would: other keys than the canary's, as if at random."""
        return cls.of(f"sha256:{sha256(f'shadow:{digest}'.encode()).hexdigest()}", percent)

    def canary(self, batch: Batch) -> NDArray[np.bool_]:
        """(B,) booleans: whether each event is the canary's, or sampled. One without a key goes by its position."""
        hashes = xxh64(batch.key_texts(), self.seed)
        if len(rows := batch.keyless()):
            hashes[rows] = xxh64(batch.position_texts(rows), self.seed)
        return hashes % np.uint64(BUCKETS) < self.below

    def bucket(self, key: bytes | None, place: Place, offset: int) -> int:
        """The bucket of one event."""
        return xxh64_intdigest(position_text(place, offset) if key is None else key, self.seed) % BUCKETS
