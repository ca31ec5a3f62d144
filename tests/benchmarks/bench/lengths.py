"""The gain of grouping events by length: events per second, compared with padding a batch to its longest event.

    python -m tests.benchmarks.bench.lengths [--json] [--rounds 5] [--quick]

An encoder of texts (4 layers of 256, as in BERT-Mini, random weights) reads JSON events of 16 to 512 tokens, most of them short
(Zipf). Both ways decode and score the same batches by the same session, in turn; times are CPU times of the process, so that a
busy machine affects both equally. The exit code is 1 if their scores differ.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from model_registry import package
from scorer.models.loaded_model import LoadedModel, loader
from scorer.scores.outputs import Scores
from scorer.settings import load
from tests.support import models
from tests.support.graphs import encoder

SHORTEST, LONGEST = 16, 512
VOCABULARY = 30_522
SIGNATURE = {
    "inputs": [
        {
            "tensor": "input_ids",
            "dtype": "int64",
            "shape": [-1],
            "fields": [{"name": "ids", "array": True, "max_length": LONGEST}],
            "pad": 0,
        },
        {"tensor": "attention_mask", "dtype": "int64", "mask_of": "input_ids"},
    ],
    "output": {"tensor": "y"},
}


def batches(count: int, size: int) -> list[list[bytes]]:
    """Return batches of events. The probability of a text of n tokens is proportional to 1 / n."""
    random = np.random.default_rng(3)
    lengths = np.arange(SHORTEST, LONGEST + 1)
    drawn = random.choice(lengths, (count, size), p=1 / lengths / (1 / lengths).sum())
    return [[json.dumps({"ids": random.integers(0, VOCABULARY, n).tolist()}).encode() for n in row] for row in drawn]


def opened(folder: Path, layers: int, hidden: int) -> LoadedModel:
    models.package(folder, lambda path: encoder(path, layers, hidden, VOCABULARY, LONGEST), SIGNATURE)
    values = {
        "name": "lengths",
        "kafka": {"bootstrap_servers": "127.0.0.1:1"},
        "input": {"topics": ["events"]},
        "output": {"topic": "scores"},
        "model": {"source": "oci:.", "deadline_ms": 2_500},
        "batching": {"max_events": 1},
    }
    content = package.read(folder, name="lengths", version="1", digest="sha256:" + "0" * 64)
    return loader(load(values).settings)(content)


def ways(loaded: LoadedModel) -> dict[str, Callable[[Sequence[bytes]], Any]]:
    """Return the two ways to score a batch: grouped by length, as in a scorer, and padded to the longest event."""

    def padded(values: Sequence[bytes]) -> Scores:
        return Scores(loaded.model.signature(), loaded.model.run(loaded.decoder.decode(values).tensors))

    return {"grouped": lambda values: loaded.score(loaded.decoder.decode(values).tensors), "padded": padded}


def measured(folder: Path, rounds: int, *, quick: bool) -> dict[str, Any]:
    """Return the events per second of each way in each round, and the ratio of the two."""
    loaded = opened(folder, *((1, 64) if quick else (4, 256)))
    rates: dict[str, list[float]] = {}
    worst = 0.0
    for values in batches(rounds + 1, 16 if quick else 64):
        scores = []
        for name, way in ways(loaded).items():
            began = time.process_time()
            scores.append(np.array([float(score) for score in way(values).encoded()]))
            rates.setdefault(name, []).append(len(values) / (time.process_time() - began))
        worst = max(worst, float(np.abs(scores[0] - scores[1]).max()))
    rates = {name: rounds_[1:] for name, rounds_ in rates.items()}  # the first round warms both
    times = [grouped / padded for grouped, padded in zip(rates["grouped"], rates["padded"], strict=True)]
    return {"events_per_second": rates, "times_as_fast": times, "largest_difference": worst}


def spread(numbers: Sequence[float]) -> str:
    return f"{min(numbers):,.2f} / {statistics.median(numbers):,.2f} / {max(numbers):,.2f}"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.bench.lengths", description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a tiny network, to test the benchmark itself")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="scorestream-lengths-") as name:
        figures = measured(Path(name) / "encoder", options.rounds, quick=options.quick)
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        for way, rates in figures["events_per_second"].items():
            print(f"{way:8} {spread(rates)} events/s (min / median / max of {options.rounds} rounds)")
        print(f"{'':8} {spread(figures['times_as_fast'])} times as fast")
    return 0 if figures["largest_difference"] < 1e-5 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
