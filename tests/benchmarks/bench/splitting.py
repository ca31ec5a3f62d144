"""The cost of a canary of the same model for the scoring thread: CPU microseconds per event, with and without it in turn.

The parts are those of a running scorer, and batches are columns as the native part makes them. Without Kafka, the measurement
finds differences that are smaller than the variation of drains on a busy machine.

    python -m tests.benchmarks.bench.splitting [--batch 2000] [--rounds 101]
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from model_registry import package
from model_registry.channels.channel import Resolution
from model_registry.channels.roles import CANARY
from publisher.runtime.context import Clock, Context
from scorer.decoding.columnar_batch import ColumnarBatch
from scorer.models.servable import CanaryArm, Servable, make
from scorer.models.traffic_split import TrafficSplit
from scorer.native.byte_columns import PADDING, ByteColumn
from scorer.native.fetch import MessageColumns
from scorer.worker.canary_routing import ArmAssigner
from tests.benchmarks.bench.components import NOW_MS, PARTITIONS, Parts
from tests.benchmarks.bench.workload import Workload, key

BATCH = 2_000  # events, about the size of a batch of a drain
PERCENT = 5
DIGEST = "sha256:" + "c1" * 32


class Splitting:
    """A champion and a canary of the same model, and one batch for both."""

    def __init__(self, folder: Path, events: int) -> None:
        self._parts = Parts(folder, Workload())
        self._events = events
        candidate = self._candidate(folder / "candidate")
        self._canary = CanaryArm(
            DIGEST, PERCENT, TrafficSplit.of(DIGEST, PERCENT), candidate, alike=candidate.decodes_like(self._parts.servable)
        )
        quarantine: Any = SimpleNamespace(allows_candidate=lambda: True)
        self._assigning = ArmAssigner(quarantine)
        self._values = list(Workload().events(events))
        self._keys = [key(number) for number in range(events)]

    def us(self, *, split: bool) -> float:
        """Return the CPU microseconds per event of one batch. Raises RuntimeError if the scores are not columns."""
        batch = self._batch()
        began = time.thread_time_ns()
        arms = self._assigning.arms(batch, self._canary if split else None)
        scored = self._parts.scoring.score(batch, self._parts.servable, Context(Clock(lambda: NOW_MS)), arms)
        spent = time.thread_time_ns() - began
        if scored.packed is None or (scored.requested > 0) is not split:
            raise RuntimeError("the batch was not answered as columns: is the native part built?")
        return spent / 1_000 / self._events

    def _candidate(self, folder: Path) -> Servable:
        content = package.read(Workload().package(folder), name="bench", version="1.0.1", digest=DIGEST)
        resolution = Resolution(DIGEST, "1.0.1", 1)
        servable = make(content, resolution, lambda _: self._parts.servable.loaded, self._parts.settings)
        return servable.in_role(resolution, "", CANARY)

    def _batch(self) -> ColumnarBatch:
        count = self._events
        each = np.arange(count)
        zeros = np.zeros(count, np.int32)
        lanes = (each % PARTITIONS).astype(np.int32)
        places = [(self._parts.settings.input.topics[0], number) for number in range(PARTITIONS)]
        values, keys = _texts(self._values), _texts(self._keys)
        return ColumnarBatch(
            MessageColumns(places, lanes, each // PARTITIONS, NOW_MS + each, zeros, zeros, values, keys, None), "empty"
        )


def _texts(values: list[bytes]) -> ByteColumn:
    bounds = np.zeros(len(values) + 1, np.int64)
    np.cumsum([len(value) for value in values], out=bounds[1:])
    return ByteColumn(np.frombuffer(b"".join(values) + PADDING, np.uint8), bounds[:-1], bounds[1:])


def measure(events: int, rounds: int) -> dict[str, float]:
    """Return medians over the rounds: a batch without a canary, one with it, and the difference of the two in a round."""
    with tempfile.TemporaryDirectory(prefix="scorestream-bench-") as name:
        splitting = Splitting(Path(name), events)
        costs = np.array([[splitting.us(split=False), splitting.us(split=True)] for _ in range(rounds + 1)][1:])
    alone, split = np.median(costs, axis=0).tolist()
    more = float(np.median(costs[:, 1] - costs[:, 0]))
    return {"score_us": round(alone, 3), "score_us_split": round(split, 3), "more_us": round(more, 3)}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.bench.splitting", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--rounds", type=int, default=101)
    options = parser.parse_args()
    print(json.dumps(measure(options.batch, options.rounds)))


if __name__ == "__main__":
    main()
