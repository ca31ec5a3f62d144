"""One network on one device with a real broker: `scorer run`, exactly once, both audits, compared with direct calls.

First one or several workers drain full topics; then events flow at a steady rate while a version is promoted.
"""

import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Producer
from numpy.typing import NDArray

from tests.benchmarks.gpu.card import Card
from tests.benchmarks.gpu.directly import directly
from tests.benchmarks.gpu.networks import Network, pool
from tests.integration.scorer.rig import Rig, until
from tests.support import auditor
from tests.support.follower import Follower

PARTITIONS = 8
WORKERS = {False: (1, 2, 4), True: (1, 2)}  # by `quick`
SECONDS = {False: 10.0, True: 1.0}  # of each measurement
SIZES = {False: (32, 128, 512), True: (32,)}
MAX_BYTES = 1_500_000_000  # of events in a topic
MIN_EVENTS = 200
FIRST_MS = 50.0  # after the first append: the scores of the first batch, or of the first few
AROUND_MS = 1_000.0  # of a swap
ROOM = {"max_event_bytes": 10_000_000}


def on_broker(network: Network, device: str, servers: str, folder: Path, *, quick: bool) -> dict[str, Any]:
    """Return the figures, for JSON. Raises AssertionError if an event is lost or duplicated, or a scorer ends."""
    folder.mkdir()
    packages = [network.package(folder / f"{seed + 1}.0.0", seed) for seed in (0, 1)]
    limit = directly(network, device, packages[0] / "model.onnx", SIZES[quick], SECONDS[quick])
    events, max_events = pool(network, _count(limit * SECONDS[quick], network)), max(SIZES[quick])
    rows = [_drained(network, device, servers, packages, folder, events, workers, max_events) for workers in WORKERS[quick]]
    best = max(row["events_per_second"] for row in rows)
    return {
        "network": network.name,
        "device": device,
        "directly_events_per_second": round(limit, 1),
        "share_of_directly": round(best / limit, 3),
        "drained": rows,
        "paced": _paced(
            network, device, servers, packages, folder, rows[0]["events_per_second"] / 2, 2 * SECONDS[quick], max_events
        ),
    }


def _count(events: float, network: Network) -> int:
    size = len(network.event(np.random.default_rng(1)))
    return max(MIN_EVENTS, int(min(events, MAX_BYTES / size)))


def _rig(
    network: Network, device: str, servers: str, packages: Sequence[Path], folder: Path, name: str, max_events: int
) -> Rig:
    """Return a rig with batches of up to `max_events`, both versions in a registry and the first in production."""
    place = folder / name
    place.mkdir()
    settings = {"format": network.event_format, "id": "header:ce_id", **ROOM}
    model, batching = {"device": device, "load_seconds": 600}, {"max_events": max_events}
    rig = Rig(servers, place, f"{network.name}-{device}-{name}", input=settings, model=model, batching=batching)
    for package in packages:
        rig.push(package, package.name)
    rig.promote("1.0.0")
    rig.create(PARTITIONS)
    rig.alter(rig.scores_topic, "message.timestamp.type", "LogAppendTime")
    return rig


def _drained(
    network: Network,
    device: str,
    servers: str,
    packages: Sequence[Path],
    folder: Path,
    events: Sequence[bytes],
    workers: int,
    max_events: int,
) -> dict[str, Any]:
    """Drain a full topic with `workers` workers; return the figures."""
    rig = _rig(network, device, servers, packages, folder, f"drain-{workers}", max_events)
    try:
        load = Load(rig)
        for event in events:
            load.send(event)
        load.close()
        with Card() as card:
            scorer = rig.start(workers=workers)
            until(lambda: rig.answered() >= len(events), f"{len(events)} answers")
        rig.assert_clean(events=len(events))
        stamps = [message.timestamp()[1] for message in auditor.read(servers, rig.scores_topic)]
        assert len(stamps) == len(events), rig.dead()[:1]
        assert scorer.stop() == 0, scorer.said
    finally:
        rig.close()
    return {"workers": workers, "events": len(events), "events_per_second": round(rate_of(stamps), 1), **card.figures()}


def rate_of(stamps: Sequence[float]) -> float:
    """Return the events per second after the first batch, from the append times (Unix ms) of the scores.

    The first batch does not count: its scores are appended together, so that its duration is unknown.
    """
    times = np.sort(np.array(stamps, np.float64))
    first = times[times <= times[0] + FIRST_MS]
    assert len(first) < len(times), "all events were one batch: too few to measure a rate"
    return float((len(times) - len(first)) / (times[-1] - first[-1]) * 1_000)


def _paced(
    network: Network,
    device: str,
    servers: str,
    packages: Sequence[Path],
    folder: Path,
    rate: float,
    seconds: float,
    max_events: int,
) -> dict[str, Any]:
    """Send events at a steady rate; promote another version after half of the time, while both are on the device."""
    rig = _rig(network, device, servers, packages, folder, "paced", max_events)
    try:
        load, arrivals = Load(rig), Arrivals(rig)
        promotion = threading.Thread(target=rig.promote, args=("2.0.0",))
        events = pool(network, max(MIN_EVENTS, int(rate * seconds)))
        with Card() as card:
            scorer = rig.start().ready()
            began = time.time()
            for number, event in enumerate(events):
                while (wait := began + number / rate - time.time()) > 0:
                    time.sleep(min(wait, 0.001))
                load.send(event, due=began + number / rate)
                if number == len(events) // 2:
                    alone = card.figures()
                    promotion.start()
            load.close()
            promotion.join()
            until(lambda: rig.answered() >= len(events), f"{len(events)} answers")
        until(lambda: len(arrivals.rows) >= len(events), "all arrivals")
        arrivals.close()
        rig.assert_clean(events=len(events))
        assert scorer.stop() == 0, scorer.said
    finally:
        rig.close()
    return {"rate": round(rate, 1), **_latency(arrivals, np.array(load.due)), **_memory(alone, card.figures())}


def _latency(arrivals: "Arrivals", due: NDArray[np.float64]) -> dict[str, Any]:
    """Return in ms the percentiles before the promotion, and the longest time without a score within a second of the swap."""
    ids, times, versions = (np.array(column) for column in zip(*arrivals.rows, strict=True))
    late = (times - due[ids.astype(np.int64)]) * 1_000
    first_half = late[ids < len(due) // 2]
    flipped = times[versions == "2.0.0"].min() if "2.0.0" in versions else float("nan")
    around = np.sort(times[np.abs(times - flipped) * 1_000 <= AROUND_MS])
    p50, p99 = np.percentile(first_half, (50, 99)).tolist()
    pause = float(np.diff(around).max()) * 1_000 if len(around) > 1 else None
    return {"p50_ms": round(p50, 1), "p99_ms": round(p99, 1), "swap_pause_ms": None if pause is None else round(pause, 1)}


def _memory(alone: dict[str, Any], both: dict[str, Any]) -> dict[str, Any]:
    return {"gpu_mib": alone["gpu_mib"], "gpu_mib_with_two_versions": both["gpu_mib"]} if alone and both else {}


class Load:
    """Sends events to a rig, numbered by their id header; `due` has the Unix time at which each was due, or 0."""

    def __init__(self, rig: Rig) -> None:
        self._producer = Producer({"bootstrap.servers": rig.bootstrap_servers, "linger.ms": 1, "log_level": 0})
        self._topic = rig.events_topic
        self._sent = 0
        self.due: list[float] = []

    def send(self, event: bytes, due: float = 0.0) -> None:
        number = self._sent
        while True:
            try:
                self._producer.produce(self._topic, event, b"k%d" % (number % 100), headers=[("ce_id", b"%d" % number)])
                break
            except BufferError:
                self._producer.poll(0.05)
        self._producer.poll(0)
        self._sent += 1
        self.due.append(due)

    def close(self) -> None:
        assert self._producer.flush(120) == 0


class Arrivals:
    """Reads scores with read_committed in its own thread until `close`; `rows` has (id, Unix time, version) of each."""

    def __init__(self, rig: Rig) -> None:
        self.rows: list[tuple[int, float, str]] = []
        self._follower = Follower(rig.bootstrap_servers, rig.scores_topic, grows=False)
        self._closed = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._closed:
            for message in self._follower.take(0.01):
                record = json.loads(message.value() or b"")
                self.rows.append((int(record["id"]), time.time(), record["version"]))

    def close(self) -> None:
        self._closed = True
        self._thread.join()
        self._follower.close()
