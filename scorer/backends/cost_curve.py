"""Measurement of how long a model takes for batches of several sizes."""

import time
from collections.abc import Callable, Iterable

LONGEST_SECONDS = 2.0  # a batch size is not measured if it is expected to take longer


def measure_cost_curve(
    sizes: Iterable[int],
    run: Callable[[int], object],
    *,
    rounds: int = 2,
    clock: Callable[[], float] = time.perf_counter,
    too_large: tuple[type[Exception], ...] = (),
) -> dict[int, float]:
    """Measure how long a batch of each size takes: the shortest of several runs after a warm-up run.

    Args:
        sizes: the batch sizes, ascending.
        run: runs one batch of a size.
        rounds: the number of measured runs per size.
        clock: returns seconds.
        too_large: the errors that `run` raises if a batch does not fit in the memory of the device. If this happens for the
            first size, the error is raised. If it happens for a larger size, the measurement ends before this size.

    Returns:
        Seconds by size. Sizes that do not fit the device, or that are expected to exceed LONGEST_SECONDS, are omitted. The
        first size is never omitted.
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
