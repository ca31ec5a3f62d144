"""XXH64 hashes of many strings. If the native library is loaded, one call of hash.c hashes a whole ByteColumn."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh64_intdigest

from scorer.native.byte_columns import ByteColumn, address
from scorer.native.load import native_library


def xxh64(texts: Sequence[bytes | None], seed: int) -> NDArray[np.uint64]:
    """Return the hash of each string as (n,) uint64, with the 64-bit `seed`. None is hashed as an empty string."""
    library = native_library().library
    if library is None or not isinstance(texts, ByteColumn):
        return np.fromiter((xxh64_intdigest(text or b"", seed) for text in texts), np.uint64, len(texts))
    hashes = np.empty(len(texts), np.uint64)
    library.texts_hash(address(texts.text), address(texts.starts), address(texts.ends), len(texts), seed, address(hashes))
    return hashes
