"""What a model takes for batches of several sizes, measured: T(B)."""

import time
from collections.abc import Callable, Iterable

LONGEST_SECONDS = 2.0  # a size that can be expected to take longer is left out, with all that are larger


def measured(
    sizes: Iterable[int], run: Callable[[int], object], *, rounds: int = 2, clock: Callable[[], float] = time.perf_counter
) -> dict[int, float]:
    """Seconds by size: the quickest of `rounds` runs, after one that is not. `sizes` ascend; the first is always run."""
    curve: dict[int, float] = {}
    for size in sizes:
        if curve and (last := next(reversed(curve))) and curve[last] * size / last > LONGEST_SECONDS:
            break
        run(size)
        taken = []
        for _ in range(rounds):
            began = clock()
            run(size)
            taken.append(clock() - began)
        curve[size] = min(taken)
    return curve
