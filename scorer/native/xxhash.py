"""XXH64 of many strings, in one call of hash.c if they are in one buffer and the native part is loaded."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh64_intdigest

from scorer.native.byte_columns import ByteColumn, address
from scorer.native.load import native_library


def xxh64(texts: Sequence[bytes | None], seed: int) -> NDArray[np.uint64]:
    """Return (n,) uint64: the hash of each string with a 64-bit seed; None counts as empty."""
    library = native_library().library
    if library is None or not isinstance(texts, ByteColumn):
        return np.fromiter((xxh64_intdigest(text or b"", seed) for text in texts), np.uint64, len(texts))
    hashes = np.empty(len(texts), np.uint64)
    library.texts_hash(address(texts.text), address(texts.starts), address(texts.ends), len(texts), seed, address(hashes))
    return hashes
