"""Batch sizes with their own buffers and graphs: their selection, and the split and padding of a batch. Pure.

On a GPU a batch of 5 costs as much as one of 8, and each new shape needs memory, a graph or an engine: batches are padded.
"""

from collections.abc import Mapping, Sequence

CANDIDATES = (1, 8, 32, 128, 512, 2_048)
WORTH = 1.1  # a bucket is kept where the next larger one takes at least so many times as long
ENOUGH = 0.97  # of the best throughput: what is larger than a bucket that reaches it only takes memory


def choose(curve: Mapping[int, float]) -> tuple[int, ...]:
    """Return the useful bucket sizes, ascending and not empty, from measured seconds by size.

    The largest bucket is the smallest size with nearly the best throughput; of the others those that are clearly faster than
    the next.
    """
    best = max(size / seconds for size, seconds in curve.items())
    largest = min(size for size, seconds in curve.items() if size / seconds >= ENOUGH * best)
    kept = [largest]
    for size in sorted((size for size in curve if size < largest), reverse=True):
        if curve[kept[-1]] >= WORTH * curve[size]:
            kept.append(size)
    return tuple(reversed(kept))


def pieces(rows: int, buckets: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return (start, stop, bucket) of each run: whole largest buckets, then the remainder in the smallest that fits.

    `buckets` ascend.
    """
    largest = buckets[-1]
    cut = [(start, start + largest, largest) for start in range(0, rows - largest + 1, largest)]
    begun = len(cut) * largest
    if begun < rows:
        cut.append((begun, rows, next(size for size in buckets if size >= rows - begun)))
    return cut
