"""Select batch sizes with separate buffers and graphs (buckets), and split batches into them. Pure.

On a GPU a batch of 5 costs as much as one of 8, and each new shape needs memory, a graph or an engine: batches are padded.
"""

from collections.abc import Mapping, Sequence

CANDIDATES = (1, 8, 32, 128, 512, 2_048)
WORTH = 1.1  # a bucket is kept if the next larger bucket takes at least so many times as long
ENOUGH = 0.97  # share of the best throughput; buckets beyond the first that reaches it only take memory


def choose(curve: Mapping[int, float]) -> tuple[int, ...]:
    """Return the useful bucket sizes, ascending and not empty, from measured seconds by size.

    The largest bucket is the smallest size with nearly the best throughput. A smaller size is a bucket if it is clearly faster
    than the next larger bucket.
    """
    best = max(size / seconds for size, seconds in curve.items())
    largest = min(size for size, seconds in curve.items() if size / seconds >= ENOUGH * best)
    buckets = [largest]
    for size in sorted((size for size in curve if size < largest), reverse=True):
        if curve[buckets[-1]] >= WORTH * curve[size]:
            buckets.append(size)
    return tuple(reversed(buckets))


def pieces(rows: int, buckets: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return (start, stop, bucket) of each run: whole largest buckets, then the remainder in the smallest that fits.

    `buckets` ascend.
    """
    largest = buckets[-1]
    runs = [(start, start + largest, largest) for start in range(0, rows - largest + 1, largest)]
    whole = len(runs) * largest
    if whole < rows:
        runs.append((whole, rows, next(size for size in buckets if size >= rows - whole)))
    return runs
