"""One network on one device: the throughput of the device alone and of the product's loop, by batch bucket."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scorer.backends.cost_curve import measure_cost_curve
from scorer.backends.onnx.batch_buckets import CANDIDATES, select_sizes
from tests.benchmarks.gpu.drain import Drained, Ground, paced
from tests.benchmarks.gpu.networks import Network, pool
from tests.support.transport_memory import MemoryLog

SIZES = {False: CANDIDATES, True: (1, 8, 32)}  # by `quick`
SECONDS = {False: 2.0, True: 0.2}  # of each run of the loop
MAX_EVENTS = 400_000
MIN_BATCHES = 6
P99_BATCHES = 2.5  # at half load: 1.5 T(B), and the batch before it


def measure(network: Network, device: str, package: Path, *, quick: bool, until: float) -> dict[str, Any]:
    """Return the figures of the network of this package, for JSON; times are in ms.

    Sizes that have not started by `until` (monotonic seconds) are reported as not run.

    Raises BackendMissing, and ModelRefused if the device cannot run the network.
    """
    ground = Ground(package, network.event_format, package.parent / "cache", device=device, buckets=SIZES[quick])
    alone = _alone(ground, SIZES[quick])
    limit = max(size / seconds for size, seconds in alone.items())
    rows, skipped = [], []
    for size, seconds in alone.items():
        if time.monotonic() > until:
            skipped.append(size)
        else:
            rows.append(_row(ground, network, size, seconds, limit, SECONDS[quick]))
    return {
        "network": network.name,
        "device": device,
        "device_events_per_second": limit,
        "worthwhile_buckets": select_sizes(alone),
        "buckets": rows,
        "not_run": {"out of time": skipped, "slower than 2 s": [size for size in SIZES[quick] if size not in alone]},
    }


def _alone(ground: Ground, sizes: Sequence[int]) -> dict[int, float]:
    """Return the seconds of each bucket in the session of the loop, with the data already on the device."""
    bound: Any = ground.servable.loaded.model
    buckets = bound._bound._buckets
    return measure_cost_curve(sizes, lambda size: buckets[size].run(), rounds=10)


def _row(ground: Ground, network: Network, size: int, alone: float, limit: float, seconds: float) -> dict[str, Any]:
    first = ground.run(pool(network, MIN_BATCHES * size), MemoryLog(), size)
    count = _count(first.events_per_second * seconds, size)
    drained = ground.run(pool(network, count), MemoryLog(), size)
    rate = drained.events_per_second / 2
    half = _half(ground, network, size, rate, seconds)
    batch_ms = size / drained.events_per_second * 1_000
    return {
        "batch": size,
        "device_ms": alone * 1_000,
        "events": count,
        "events_per_second": drained.events_per_second,
        "share_of_device": drained.events_per_second / limit,
        "batch_ms": batch_ms,
        "half_load_events_per_second": rate,
        "half_load_p99_ms": half.p99 * 1_000,
        "half_load_p99_aim_ms": P99_BATCHES * batch_ms,
    }


def _half(ground: Ground, network: Network, size: int, rate: float, seconds: float) -> Drained:
    events = pool(network, _count(rate * seconds, size))
    return ground.run(events, MemoryLog(), size, paced(len(events), rate))


def _count(events: float, size: int) -> int:
    batches = max(MIN_BATCHES, int(min(events, MAX_EVENTS) / size))
    return batches * size
