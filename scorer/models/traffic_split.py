"""The traffic split: the keys that a canary answers, and the keys that a shadow samples. Pure, so that every scorer agrees.

The arm depends on the key, the digest of the candidate and the share. A key stays in its arm while the share is unchanged, and
a larger share only adds keys. Another candidate gets other keys.
"""

from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh64_intdigest

from scorer.decoding.batch import Batch, Place, position_text
from scorer.native.xxhash import xxh64

BUCKETS = 10_000
SEED_DIGITS = 16  # hexadecimal digits of the digest: its first 8 bytes, big-endian


@dataclass(frozen=True, slots=True)
class TrafficSplit:
    """The split of keys into buckets: the canary, or the sample, owns the buckets lower than `below` of BUCKETS.

    `seed` is a 64-bit hash seed.
    """

    seed: int
    below: int

    @classmethod
    def of(cls, digest: str, percent: int) -> "TrafficSplit":
        """Create the split of a candidate by its manifest digest (`sha256:...`), with this percentage of the keys."""
        return cls(int(digest.partition(":")[2][:SEED_DIGITS], 16), BUCKETS * percent // 100)

    @classmethod
    def sample(cls, digest: str, percent: int) -> "TrafficSplit":
        """Create the sample of a shadow, which is independent of the canary's keys."""
        return cls.of(f"sha256:{sha256(f'shadow:{digest}'.encode()).hexdigest()}", percent)

    def canary(self, batch: Batch) -> NDArray[np.bool_]:
        """Return (B,) booleans: whether the canary, or the sample, has each event. Events without a key use their position."""
        hashes = xxh64(batch.key_texts(), self.seed)
        if len(rows := batch.keyless()):
            hashes[rows] = xxh64(batch.position_texts(rows), self.seed)
        return hashes % np.uint64(BUCKETS) < self.below

    def bucket(self, key: bytes | None, place: Place, offset: int) -> int:
        """Return the bucket of one event."""
        return xxh64_intdigest(position_text(place, offset) if key is None else key, self.seed) % BUCKETS
