"""The sample of events in the feature log: a share of the keys, selected by a hash. Pure, so that all scorers agree."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scorer.decoding.batch import Batch
from scorer.native.xxhash import xxh64

SEED = 0x7363_6F72_6566_6561
"""A seed that nothing else uses, so that the sample does not depend on which keys a canary or a shadow scores."""


@dataclass(frozen=True, slots=True)
class KeySample:
    """The selection of a share of the keys. A key is selected if its 64-bit hash is lower than `below`."""

    below: int

    @classmethod
    def of(cls, share: float) -> "KeySample | None":
        """Create the sample of this share of the keys, in (0, 1]; None for a share of 1, which selects all keys."""
        return None if share >= 1 else cls(int(share * 2**64))

    def select(self, batch: Batch) -> NDArray[np.bool_]:
        """Return whether each event is in the sample, (B,). An event without a key is selected by its position."""
        hashes = xxh64(batch.key_texts(), SEED)
        if len(rows := batch.keyless()):
            hashes[rows] = xxh64(batch.position_texts(rows), SEED)
        return hashes < np.uint64(self.below)
