"""Selection of buckets, and division of batches into them. Pure functions.

A bucket is a batch size with its own buffers, and on a GPU its own CUDA graph. Each batch is padded to the size of a bucket.
"""

# On a GPU a batch of 5 takes as long as a batch of 8, and each new batch size needs memory, a graph or an engine.

from collections.abc import Mapping, Sequence

CANDIDATES = (1, 8, 32, 128, 512, 2_048)
WORTH = 1.1  # a size becomes a bucket if the next larger bucket takes at least 1.1 times as long
ENOUGH = 0.97  # the largest bucket is the smallest size with this share of the best throughput: larger ones only take memory


def select_sizes(curve: Mapping[int, float]) -> tuple[int, ...]:
    """Select the bucket sizes that save enough time to justify their memory. The result is ascending and not empty.

    `curve` maps each measured batch size to the seconds of a batch.
    """
    # The largest bucket is the smallest size with nearly the best throughput. A smaller size is selected if its batches are
    # clearly faster than those of the next larger bucket.
    best = max(size / seconds for size, seconds in curve.items())
    largest = min(size for size, seconds in curve.items() if size / seconds >= ENOUGH * best)
    buckets = [largest]
    for size in sorted((size for size in curve if size < largest), reverse=True):
        if curve[buckets[-1]] >= WORTH * curve[size]:
            buckets.append(size)
    return tuple(reversed(buckets))


def pieces(rows: int, buckets: Sequence[int]) -> list[tuple[int, int, int]]:
    """Divide a batch into runs of the model: full runs of the largest bucket, then one run for the remaining rows.

    Args:
        rows: the number of rows of the batch.
        buckets: the bucket sizes, ascending.

    Returns:
        (start row, stop row, bucket size) of each run.
    """
    # The last run uses the smallest bucket that has room for the remaining rows.
    largest = buckets[-1]
    runs = [(start, start + largest, largest) for start in range(0, rows - largest + 1, largest)]
    whole = len(runs) * largest
    if whole < rows:
        runs.append((whole, rows, next(size for size in buckets if size >= rows - whole)))
    return runs
