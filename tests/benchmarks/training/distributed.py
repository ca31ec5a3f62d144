"""`python -m tests distributed`: milliseconds per step of a network trained by one process, and by two in three ways.

`tree` is the method of the recipe (training/recipes/network/train_loop.py), `ring` is gloo's all-reduce, and with `server` a
third process holds weights and optimizer: it receives gradients and sends weights. All ways must end with bit-identical
weights, because the sum of two branches has one order. Then one process and two processes train on the demo's flights, with
start and checkpoints. The figures are JSON on stdout; the exit code is 1 if weights differ or two processes take more than ten
seconds.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from model_registry.package.signature_schema import parse_signature
from scorer.demo import flights
from tests.network.rows import of
from tests.support.environment import ROOT
from tests.support.processes import free_port
from training.recipes.network import Network, job_files
from training.recipes.network.encoding import Numbers, TensorEncodings
from training.recipes.network.job_files import Encoded
from training.recipes.network.model import MASKS, SHARDS, Parameters, first, settled, views
from training.recipes.network.train_loop import ShardedBatch, Share, adam, added, summed

COLUMNS, ROWS = 60, 1_024
WIDTHS = {"10k": 74, "656k": 779, "2.4M": 1_518}
"""The width of the two hidden layers by the number of parameters of the network."""
WAYS = ("one", "tree", "ring", "server")
SERVER, WARM = 2, 3
SECONDS = 10.0
EPOCHS, HELD_OUT = 9, 10_000
SIGNATURE = parse_signature(
    b"""{"inputs": [{"tensor": "x", "dtype": "float32", "fields": [{"name": "dep_delay", "required": false, "default": "nan"},
    "distance", "hour", "minute", "day_of_week", "scheduled_minutes"]}, {"tensor": "carrier", "dtype": "string", "fields":
    ["carrier"]}, {"tensor": "origin", "dtype": "string", "fields": ["origin"]}, {"tensor": "dest", "dtype": "string", "fields":
    ["dest"]}], "output": {"tensor": "probabilities", "index": 1}, "labels": null}"""
)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests distributed", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20, help="of each way and size in a round")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--fit", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.fit:
        print(json.dumps(fit(options.fit)))
        return 0
    if options.rank is not None:
        member(options.rank, options.rounds, options.steps)
        return 0
    figures: dict[str, Any] = {
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
        "steps": in_three(options.rounds, options.steps),
    }
    figures["flights"] = [in_a_process(workers) for workers in (1, 2)]
    alone, two = figures["flights"]
    same = (
        all(len(measurement["weights"]) == 1 for measurement in figures["steps"].values()) and alone["digest"] == two["digest"]
    )
    figures["ok"] = same and two["seconds"] <= SECONDS
    print(json.dumps(figures, indent=1))
    return int(not figures["ok"])


def in_three(rounds: int, steps: int) -> dict[str, Any]:
    """Return, for each size, the median ms per step of each way and round, and the digests of the final weights."""
    rendezvous = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "3"}
    module = (sys.executable, "-m", "tests.benchmarks.training.distributed", f"--rounds={rounds}", f"--steps={steps}")
    processes = [
        subprocess.Popen(
            [*module, f"--rank={rank}"], env=environment() | rendezvous | {"RANK": str(rank)}, cwd=ROOT, stdout=subprocess.PIPE
        )
        for rank in range(3)
    ]
    output, *_ = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    figures: dict[str, Any] = json.loads(output)
    return figures


def environment() -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "deploy"), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}


def member(rank: int, rounds: int, steps: int) -> None:
    """Run one of the three processes. The first one prints the figures."""
    torch = settled()
    torch.distributed.init_process_group("gloo")
    pair = torch.distributed.new_group([0, 1])
    figures: dict[str, Any] = {size: {"ms": {way: [] for way in WAYS}, "weights": []} for size in WIDTHS}
    for _ in range(rounds):
        for size, width in WIDTHS.items():
            for way in WAYS:
                torch.distributed.barrier()
                learner = Learner(width)
                figures[size]["parameters"] = len(learner.weights)
                times = learner.run(way, rank, pair, WARM + steps)[WARM:]
                figures[size]["ms"][way].append(round(median(times or [0.0]) * 1e3, 2))
                figures[size]["weights"].append(hashlib.sha256(learner.weights.numpy()).hexdigest()[:12])
    for figure in figures.values():
        figure["weights"] = sorted(set(figure["weights"]))
        figure["table"] = {way: f"{median(ms)} ({min(ms)}-{max(ms)})" for way, ms in figure["ms"].items()}
    if rank == 0:
        print(json.dumps(figures))
    torch.distributed.destroy_process_group()


class Learner:
    """A network, one batch of random rows, and its optimizer."""

    def __init__(self, width: int) -> None:
        torch = settled()
        chance = np.random.default_rng(1)
        numbers = chance.normal(size=(ROWS, COLUMNS)).astype(np.float32)
        rows = Encoded(numbers, np.empty((ROWS, 0), np.int64), (numbers[:, 0] > 0).astype(np.float32))
        zeros = (0.0,) * COLUMNS
        encoding = TensorEncodings((Numbers("x", zeros, zeros, zeros, zeros, zeros),), ())
        self._job = job_files.of(rows, encoding, Parameters(width=width, batch=ROWS), seed=1)
        self._data = [torch.tensor(array) for array in rows]
        self.weights = torch.tensor(first(self._job.shapes, 0, 1))
        self._parts = [part.detach().requires_grad_() for part in views(self.weights, self._job.shapes)]
        self._mean, self._square = torch.zeros_like(self.weights), torch.zeros_like(self.weights)
        self._steps = 0

    def run(self, way: str, rank: int, pair: Any, steps: int) -> list[float]:
        """Run the steps; return the seconds of each, or nothing in a process that this way does not use."""
        share = Share() if way == "one" else Share(rank, 2)
        if rank >= share.processes and not (way == "server" and rank == SERVER):
            return []
        times = []
        for step in range(steps):
            began = time.perf_counter()
            shards = np.array_split(np.arange(ROWS), SHARDS)
            self._step(way, ShardedBatch(self._job, self._data, self._parts, shards, (1, MASKS, 0, step)), share, pair)
            times.append(time.perf_counter() - began)
        return times

    def _step(self, way: str, batch: ShardedBatch, share: Share, pair: Any) -> None:
        from torch import distributed

        if way == "server" and share.rank == SERVER:
            self._serve()
            return
        if way in ("one", "tree"):
            gradient = summed(batch.gradient, share)
        else:
            gradient = added(batch.gradient, share.rank * SHARDS // 2, SHARDS // 2)
        if way == "ring":
            distributed.all_reduce(gradient, group=pair)
        if way == "server":
            distributed.send(gradient, SERVER)
            distributed.recv(self.weights, SERVER)
        else:
            self._learn(gradient)

    def _serve(self) -> None:
        import torch
        from torch import distributed

        both = [torch.empty_like(self.weights) for _ in range(2)]
        for rank, gradient in enumerate(both):
            distributed.recv(gradient, rank)
        self._learn(both[0] + both[1])
        for rank in range(2):
            distributed.send(self.weights, rank)

    def _learn(self, gradient: Any) -> None:
        self._steps += 1
        adam(self.weights, gradient, self._mean, self._square, self._steps, self._job.parameters)


def in_a_process(workers: int) -> dict[str, Any]:
    """Train on the demo's flights with `workers` processes; return the wall and CPU seconds of the whole command."""
    before, began = os.times(), time.monotonic()
    command = (sys.executable, "-m", "tests.benchmarks.training.distributed", f"--fit={workers}")
    completed = subprocess.run(command, env=environment(), cwd=ROOT, stdout=subprocess.PIPE, check=True)
    seconds, after = time.monotonic() - began, os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return {"workers": workers, **json.loads(completed.stdout), "command_s": round(seconds, 1), "cpu_s": round(cpu, 1)}


def fit(workers: int) -> dict[str, Any]:
    """Train in this process; return the seconds of `fit`, and the metrics on the last flights."""
    late = flights.outcomes()
    count = len(late)
    events = [event for event in islice(flights.events(), count) if event["flight_id"] in late]
    outcomes = np.array([late[str(event["flight_id"])] for event in events], np.int8)
    tensors = {
        tensor_input.tensor: column([field.name for field in tensor_input.fields], tensor_input.dtype, events)
        for tensor_input in SIGNATURE.inputs
    }
    rows = of(tensors, outcomes)
    training, held_out = rows.select(np.arange(len(rows) - HELD_OUT)), rows.select(np.arange(len(rows) - HELD_OUT, len(rows)))
    with tempfile.TemporaryDirectory(prefix="scorestream-network-") as folder:
        began = time.monotonic()
        fitted = Network().fit(training, SIGNATURE, {}, EPOCHS, Path(folder), seed=2013, workers=workers)
        seconds = time.monotonic() - began
        content = fitted.onnx()
        scores = fitted.scores(held_out.tensors)
    auc = float(roc_auc_score(held_out.outcomes, scores))
    figures = {"rows": len(training), "epochs": EPOCHS, "auc": round(auc, 4), "seconds": round(seconds, 1)}
    return {**figures, "digest": hashlib.sha256(content).hexdigest(), "parity": parity(content, held_out.tensors, scores)}


def column(fields: Sequence[str], dtype: str, events: Sequence[flights.Event]) -> Any:
    return np.array([[event[name] for name in fields] for event in events], object if dtype == "string" else dtype)


def parity(content: bytes, tensors: Any, scores: Any) -> float:
    """Return the largest difference between the scores of ONNX Runtime and torch."""
    import onnxruntime

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    probabilities = session.run(None, dict(tensors))[0][:, 1]
    return float(f"{np.abs(probabilities - scores).max():.1e}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
