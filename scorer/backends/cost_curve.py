"""What a model takes for batches of several sizes, measured: T(B)."""

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
    """Seconds by size: the quickest of `rounds` runs, after one that is not. `sizes` ascend; the first is always run. A size at
    whose first run one of `too_large` is raised is left out, with all that are larger, unless it is the first."""
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
