"""A set of offsets as bits: one bit an offset, in chunks that exist only where something is set.

For offsets that come nearly in order and nearly without gaps, as a partition's do; adding and counting are numpy calls.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Offsets = NDArray[np.int64]

CHUNK_SHIFT = 16  # 65,536 offsets in 8 KiB: a chunk fits the first-level cache
CHUNK_BITS = 1 << CHUNK_SHIFT
WITHIN = CHUNK_BITS - 1
EVERYTHING = 2**63 - 1


class Bitmap:
    """A set of offsets >= 0. Memory: 1 bit an offset of every chunk of 65,536 that was touched."""

    def __init__(self) -> None:
        self._chunks: dict[int, NDArray[np.uint8]] = {}

    def add(self, offsets: Offsets) -> NDArray[np.bool_]:
        """Put (n,) offsets in; (n,) booleans come back: True where the offset was not in yet, at its first mention."""
        fresh = np.empty(len(offsets), np.bool_)
        for number, where in _by_chunk(offsets):
            chunk = self._chunks.get(number)
            if chunk is None:
                chunk = self._chunks[number] = np.zeros(CHUNK_BITS // 8, np.uint8)
            byte, bit = _address(offsets[where])
            fresh[where] = chunk[byte] & bit == 0
            np.bitwise_or.at(chunk, byte, bit)
        return fresh & _first_mentions(offsets)

    def minus(self, other: "Bitmap") -> "Bitmap":
        """A new set: what is in this one and not in `other`."""
        result = Bitmap()
        for number, chunk in self._chunks.items():
            theirs = other._chunks.get(number)
            left = chunk.copy() if theirs is None else chunk & ~theirs
            if left.any():
                result._chunks[number] = left
        return result

    def unite(self, other: "Bitmap") -> None:
        """Put in what is in `other`."""
        for number, chunk in other._chunks.items():
            mine = self._chunks.get(number)
            self._chunks[number] = chunk.copy() if mine is None else mine | chunk

    def count(self, start: int = 0, stop: int = EVERYTHING) -> int:
        """How many offsets in [start, stop) are in."""
        total = 0
        for number, chunk in self._chunks.items():
            low, high = _cut(number, start, stop)
            if low == 0 and high == CHUNK_BITS:
                total += int(np.bitwise_count(chunk).sum(dtype=np.int64))
            elif low < high:
                total += int(np.count_nonzero(np.unpackbits(chunk, bitorder="little")[low:high]))
        return total

    def first(self, limit: int, start: int = 0, stop: int = EVERYTHING) -> list[int]:
        """The lowest offsets in [start, stop) that are in, at most `limit`, ascending."""
        found: list[int] = []
        for number in sorted(self._chunks):
            low, high = _cut(number, start, stop)
            if low < high and len(found) < limit:
                inside = np.flatnonzero(np.unpackbits(self._chunks[number], bitorder="little")[low:high])
                base = (number << CHUNK_SHIFT) + low
                found += [base + int(at) for at in inside[: limit - len(found)]]
        return found


def _by_chunk(offsets: Offsets) -> Iterator[tuple[int, slice | NDArray[np.bool_]]]:
    """Each chunk that the offsets touch, with where they are."""
    numbers = offsets >> CHUNK_SHIFT
    if len(numbers) and numbers.min() == numbers.max():
        yield int(numbers[0]), slice(None)
        return
    for number in np.unique(numbers).tolist():
        yield number, numbers == number


def _address(offsets: Offsets) -> tuple[Offsets, NDArray[np.uint8]]:
    """(n,) offsets -> index of the byte in their chunk, mask of the bit in the byte."""
    inside = offsets & WITHIN
    return inside >> 3, np.left_shift(np.uint8(1), (inside & 7).astype(np.uint8))


def _first_mentions(offsets: Offsets) -> NDArray[np.bool_]:
    """(n,) booleans: False where the same offset stands earlier in the array."""
    if bool(np.all(offsets[1:] > offsets[:-1])):
        return np.ones(len(offsets), np.bool_)
    first = np.zeros(len(offsets), np.bool_)
    first[np.unique(offsets, return_index=True)[1]] = True
    return first


def _cut(number: int, start: int, stop: int) -> tuple[int, int]:
    """The part of chunk `number` that lies in [start, stop), as bit positions; empty where low >= high."""
    base = number << CHUNK_SHIFT
    return max(0, start - base), min(CHUNK_BITS, stop - base)
