"""Measure the time that a model takes for batches of several sizes."""

import time
from collections.abc import Callable, Iterable

LONGEST_SECONDS = 2.0  # sizes that are expected to take longer are omitted


def measure_cost_curve(
    sizes: Iterable[int],
    run: Callable[[int], object],
    *,
    rounds: int = 2,
    clock: Callable[[], float] = time.perf_counter,
    too_large: tuple[type[Exception], ...] = (),
) -> dict[int, float]:
    """Return the seconds by size: the fastest of several runs after a warm-up.

    Args:
        sizes: the batch sizes, ascending. The first is always run.
        run: runs a batch of a size.
        rounds: the number of measured runs.
        clock: returns seconds.
        too_large: the errors of a size that does not fit. That size and all larger sizes are omitted, except the first size.
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
        durations = []
        for _ in range(rounds):
            began = clock()
            run(size)
            durations.append(clock() - began)
        curve[size] = min(durations)
    return curve
