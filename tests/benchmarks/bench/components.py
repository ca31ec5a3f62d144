"""The cost of decode, infer and encode: CPU microseconds per event of the calling thread, without Kafka.

The parts are those of a running scorer, made from a package and a configuration. `encode` is the scoring of a batch with a
decoder and a model that return stored results: ids, records, and the bytes of the score records. `score` is the sum of all.

    python -m tests.benchmarks.bench.components [--batches 1,8,64,512,4096] [--features 4,30,300,3000] [--rounds 9]
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from model_registry import package
from model_registry.channels.channel import Resolution
from publisher.runtime.context import Clock, Context
from scorer.decoding.batch import Batch
from scorer.models.loaded_model import loader
from scorer.models.servable import Servable, make
from scorer.settings import Settings, load
from scorer.worker.encode import TargetTopic
from scorer.worker.score_batch import BatchScorer
from tests.benchmarks.bench.workload import HELD_OUT, Workload, configuration, key

BATCH = 512
PARTITIONS = 4
RECORD_BYTES = 1_000_000
NOW_MS = 1_700_000_000_000
NOW = Context(Clock(lambda: NOW_MS))
Row = dict[str, Any]
YARDSTICK_ROWS = 64
MIN_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU microseconds: the median of the rounds, the lowest and the highest."""

    us: float
    lowest: float
    highest: float

    def to_dict(self) -> dict[str, float]:
        return {"us": round(self.us, 3), "lowest": round(self.lowest, 3), "highest": round(self.highest, 3)}


def cost(call: Callable[[], object], events: int, *, rounds: int, min_seconds: float = MIN_SECONDS) -> Cost:
    """Measure what `call` costs this thread for each of its `events`. Each round repeats it for at least `min_seconds`."""
    call()
    costs = []
    for _ in range(rounds):
        calls, began, spent = 0, time.thread_time(), 0.0
        while spent < min_seconds:
            call()
            calls += 1
            spent = time.thread_time() - began
        costs.append(spent / calls / events * 1e6)
    return Cost(statistics.median(costs), min(costs), max(costs))


def yardstick(rounds: int) -> Cost:
    """Measure a fixed piece of work, to compare the figures of two runs or machines as multiples of it.

    It resembles the work of the scorer: JSON, tuples, a matrix.
    """
    fields = {f"f{k}": k / 7 for k in range(30)}
    text = json.dumps({"id": 1, **fields})
    names = tuple(fields)

    def work() -> object:
        rows = []
        for _ in range(YARDSTICK_ROWS):
            row = json.loads(text)
            rows.append(tuple(row[name] for name in names))
        return np.array(rows, np.float32)

    return cost(work, YARDSTICK_ROWS, rounds=rounds)


class Parts:
    """A servable and the scoring around it, for one workload, in a folder."""

    def __init__(self, folder: Path, workload: Workload) -> None:
        self.workload = workload
        config = folder / f"scorer-{workload.features}.yaml"
        config.write_text(configuration("bench", "127.0.0.1:1", "exactly-once"))
        self.settings: Settings = load(config).settings
        package_folder = workload.package(folder / f"package-{workload.features}")
        content = package.read(package_folder, name="bench", version="1.0.0", digest="sha256:" + "0" * 64)
        ready = loader(self.settings)
        self.servable: Servable = make(content, Resolution(content.digest, "1.0.0", 1), ready, self.settings)
        target = TargetTopic(self.settings.output.topic, PARTITIONS, RECORD_BYTES)
        self.scoring = BatchScorer(self.settings, target, target)

    def batch(self, size: int) -> Batch:
        """Return a batch as intake makes it."""
        partitions = [number % PARTITIONS for number in range(size)]
        return Batch(
            topics=[self.settings.input.topics[0]] * size,
            partitions=partitions,
            offsets=[1_000_000 + number // PARTITIONS for number in range(size)],
            keys=[key(number) for number in range(size)],
            values=list(self.workload.events(size)),
            timestamps=[NOW_MS + number for number in range(size)],
            headers=[None] * size,
        )

    def costs(self, size: int, rounds: int) -> dict[str, Cost]:
        """Measure each component, and all together (`score`), at this batch size."""
        batch = self.batch(size)
        loaded = self.servable.loaded
        decoded = loaded.decoder.decode(batch.values)
        outputs, signature = loaded.model.run(decoded.tensors), loaded.model.signature
        decoder: Any = SimpleNamespace(decode=lambda _: decoded)
        model: Any = SimpleNamespace(signature=signature, run=lambda _: outputs)
        stubbed = replace(loaded, decoder=decoder, model=model)  # both return stored results
        calls: dict[str, Callable[[], object]] = {
            "decode": lambda: loaded.decoder.decode(batch.values),
            "infer": lambda: loaded.score(decoded.tensors),
            "encode": lambda: self.scoring.score(batch, replace(self.servable, loaded=stubbed), NOW),
            "score": lambda: self.scoring.score(batch, self.servable, NOW),
        }
        return {name: cost(call, size, rounds=rounds) for name, call in calls.items()}


def measure(batches: Sequence[int], features: Sequence[int], rounds: int) -> dict[str, Any]:
    """Measure costs by batch size at 30 features, by feature count at batches of 512, and of the held-out workload."""
    with tempfile.TemporaryDirectory(prefix="scorestream-bench-") as name:
        folder = Path(name)
        parts = Parts(folder, Workload())
        by_batch = [_row(parts, size, rounds) for size in batches]
        by_features = [_row(Parts(Path(tempfile.mkdtemp(dir=folder)), Workload(n)), BATCH, rounds) for n in features]
        held_out = _row(Parts(Path(tempfile.mkdtemp(dir=folder)), HELD_OUT), BATCH, rounds)
    unit = round(yardstick(rounds).us, 3)
    return {"yardstick_us": unit, "by_batch": by_batch, "by_features": by_features, "held_out": [held_out]}


def _row(parts: Parts, size: int, rounds: int) -> Row:
    costs = parts.costs(size, rounds)
    return {"batch": size, "features": parts.workload.features, **{name: cost.to_dict() for name, cost in costs.items()}}


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.bench.components")
    parser.add_argument("--batches", type=numbers, default=[1, 8, 64, 512, 4096])
    parser.add_argument("--features", type=numbers, default=[4, 30, 300, 3000])
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    print(json.dumps(measure(options.batches, options.features, options.rounds)))


if __name__ == "__main__":
    main()
