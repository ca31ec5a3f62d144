"""The traffic split: the keys that a canary answers, and the keys that a shadow samples. Pure, so that all scorers agree.

If a candidate's share grows, the candidate keeps its keys and gets additional keys. Another candidate gets different keys,
because the keys depend on the candidate's digest.
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
    """The selection of a share of the keys: the keys of a canary, or the keys of a shadow's sample.

    A key is selected if its hash, with the 64-bit `seed`, falls into one of the first `below` of BUCKETS buckets.
    """

    seed: int
    below: int

    @classmethod
    def of(cls, digest: str, percent: int) -> "TrafficSplit":
        """Create the split that selects `percent` of the keys for the candidate with this manifest digest (`sha256:...`)."""
        return cls(int(digest.partition(":")[2][:SEED_DIGITS], 16), BUCKETS * percent // 100)

    @classmethod
    def sample(cls, digest: str, percent: int) -> "TrafficSplit":
        """Create the split for a shadow's sample of `percent` of the keys. The sample is independent of the canary's keys."""
        return cls.of(f"sha256:{sha256(f'shadow:{digest}'.encode()).hexdigest()}", percent)

    def canary(self, batch: Batch) -> NDArray[np.bool_]:
        """Return whether each event is selected (belongs to the canary or to the sample), (B,).

        An event without a key is hashed by its position.
        """
        hashes = xxh64(batch.key_texts(), self.seed)
        if len(rows := batch.keyless()):
            hashes[rows] = xxh64(batch.position_texts(rows), self.seed)
        return hashes % np.uint64(BUCKETS) < self.below

    def bucket(self, key: bytes | None, place: Place, offset: int) -> int:
        """Return the bucket of one event, from the hash of its key, or of its position if it has no key."""
        return xxh64_intdigest(position_text(place, offset) if key is None else key, self.seed) % BUCKETS
