"""Measures the time that a model takes for batches of several sizes."""

import time
from collections.abc import Callable, Iterable

LONGEST_SECONDS = 2.0  # a size that can be expected to take longer is left out, with all that are larger


def measure_cost_curve(
    sizes: Iterable[int],
    run: Callable[[int], object],
    *,
    rounds: int = 2,
    clock: Callable[[], float] = time.perf_counter,
    too_large: tuple[type[Exception], ...] = (),
) -> dict[int, float]:
    """Return seconds by size: the fastest of `rounds` runs after a warm-up.

    `sizes` ascend; the first is always run. A size whose first run raises one of `too_large`, and all larger ones, are
    omitted, unless it is the
    first.
    """
    curve: dict[int, float] = {}
    for size in sizes:
        if curve and (last := next(reversed(curve))) and curve[last] * size / last > LONGEST_SECONDS:
            break
        try:
            run(size)
        except too_large:
            if not curve:
                raise
            break
        taken = []
        for _ in range(rounds):
            began = clock()
            run(size)
            taken.append(clock() - began)
        curve[size] = min(taken)
    return curve
