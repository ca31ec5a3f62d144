"""The recipe `network`: a multilayer perceptron, trained by torch in one process or by torchrun in several processes.

It predicts two or more classes, or a number. The recipe requires the extra `network`. On CPUs, 1, 2, 4 and 8 processes give the
same bytes (see `train_loop.py`). GPUs give other bytes than CPUs; **training on GPUs, over nccl, is untried**.
"""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from model_registry import atomic_files
from model_registry.package.signature import Signature
from publisher.errors import REFUSED, USAGE, Fatal
from training.recipes import Params, check_signature
from training.recipes.network import encoding, job_files, train_loop
from training.recipes.network.encoding import TensorEncodings
from training.recipes.network.head import Head, create_head
from training.recipes.network.job_files import Encoded, Job
from training.recipes.network.model import Parameters, forward, settled, views
from training.recipes.network.torchrun_launch import launch
from training.recipes.network.train_loop import Share
from training.snapshot.rows import LabelledRows
from training.snapshot.target import Target

ROWS_AT_ONCE = 65_536


class Network:
    """The recipe `network`, which trains a multilayer perceptron (implements `training.recipes.Recipe`).

    `gpus` is the maximum number of GPUs, and each process uses one GPU. With 0, the recipe trains on CPUs.
    """

    name = "network"

    def __init__(self, gpus: int = 0) -> None:
        self._gpus = gpus
        self._last: tuple[LabelledRows, Signature, TensorEncodings, Encoded, Head] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the cached rows, because each worker process reads its own rows."""
        return type(self), (self._gpus,)

    def check(self, signature: Signature, target: Target) -> None:
        check_signature.check(signature, target, self.name)
        if target.kind == "binary" and not check_signature.output_row(signature, target):
            hint = 'write its shape as [1], or read the second of two: {"tensor": ..., "index": 1}'
            raise Fatal(
                f"recipe network: output {signature.outputs[0].tensor!r} has no dimension except the batch", hint, USAGE
            )

    def parameters(self, stated: Params) -> Params:
        return msgspec.structs.asdict(_parameters(stated))

    def suggest(self, trial: Any) -> Params:
        return {
            "width": trial.suggest_categorical("width", [32, 64, 128, 256]),
            "depth": trial.suggest_int("depth", 1, 3),
            "learning_rate": trial.suggest_float("learning_rate", 3e-4, 1e-2, log=True),
            "dropout": trial.suggest_categorical("dropout", [0.0, 0.1, 0.3]),
            "weight_decay": trial.suggest_float("weight_decay", 1e-6, 1e-2, log=True),
            "batch": trial.suggest_categorical("batch", [512, 1024, 2048]),
        }

    def fit(
        self,
        rows: LabelledRows,
        signature: Signature,
        params: Params,
        budget: int,
        folder: Path,
        *,
        seed: int,
        workers: int = 1,
    ) -> "Perceptron":
        """Train up to `budget` epochs, starting from the newest checkpoint in `folder`.

        The folder is created if it is missing. The number of processes is the largest power of two that is at most 8 and at
        most `workers` (on GPUs: the number of GPUs). One process on a CPU is not started: the current process trains.

        Raises:
            Fatal: Exit code 2 for a signature or parameters that the recipe does not support, or without torch; 3 if the
                checkpoints belong to another training, the weights became infinite, or the disk is full; 4 if processes died
                too often.
        """
        parameters = _parameters(params)
        self.check(signature, rows.target)
        processes = train_loop.processes(self._gpus or workers)
        self._check(processes)
        learned, encoded, head = self._encoded(rows, signature)
        job = job_files.of(encoded, learned, parameters, seed, head, gpus=self._gpus > 0)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if job_files.begun(folder, job, budget).epoch < budget:
                _train(folder, job, encoded, budget, processes)
        except OSError as error:
            raise Fatal(
                f"{folder} cannot be written: {error.strerror}",
                "check the disk space and the permissions, and run again",
                REFUSED,
            ) from None
        return _fitted(folder, job, signature, budget)

    def _encoded(self, rows: LabelledRows, signature: Signature) -> tuple[TensorEncodings, Encoded, Head]:
        """Encode the rows. The encoding is cached for the next trial with the same rows."""
        if self._last is None or self._last[0] is not rows or self._last[1] != signature:
            learned = encoding.learned(rows.tensors, signature)
            head = create_head(rows.target, rows.outcomes)
            encoded = Encoded(learned.numeric(rows.tensors), learned.named(rows.tensors), head.encoded(rows.outcomes))
            self._last = (rows, signature, learned, encoded, head)
        return self._last[2:]

    def _check(self, processes: int) -> None:
        if find_spec("torch") is None:
            raise Fatal("recipe network: torch is missing", "pip install -e '.[network]'", USAGE)
        if self._gpus and (available := settled().cuda.device_count()) < processes:
            raise Fatal(
                f"gpus is {self._gpus}, but torch finds {available}", "set gpus to 0 or to the number of available GPUs", USAGE
            )


class Perceptron:
    """A trained network (implements `training.recipes.Fitted`)."""

    def __init__(self, signature: Signature, job: Job, weights: list[NDArray[np.float32]]) -> None:
        self._signature = signature
        self._encoding = job.encoding
        self._head = job.head
        self._weights = weights

    def scores(self, tensors: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
        """Return the scores as in `training.recipes.Fitted.scores`, computed by torch on a CPU."""
        torch = settled()
        dtype = self._head.dtype
        weights = [torch.from_numpy(part.astype(dtype)) for part in self._weights]
        numbers = torch.from_numpy(self._encoding.numeric(tensors).astype(dtype))
        names = torch.from_numpy(self._encoding.named(tensors))
        with torch.inference_mode():
            parts = zip(numbers.split(ROWS_AT_ONCE), names.split(ROWS_AT_ONCE), strict=True)
            scores: NDArray[np.float64] = (
                torch.cat([self._head.scores(forward(weights, *part)) for part in parts]).double().numpy()
            )
        return scores

    def onnx(self) -> bytes:
        from training.recipes.network import to_onnx  # importing onnx is slow, and worker processes do not need it

        return to_onnx.onnx(self._signature, self._encoding, self._weights, self._head)


def _parameters(params: Params) -> Parameters:
    try:
        return msgspec.convert(dict(params), Parameters)
    except msgspec.ValidationError as error:
        names = ", ".join(Parameters.__struct_fields__)
        raise Fatal(f"parameters of the recipe network: {error}", f"its parameters are {names}", USAGE) from None


def _train(folder: Path, job: Job, rows: Encoded, budget: int, processes: int) -> None:
    if processes == 1 and not job.gpus:
        with atomic_files.hold_lock(folder / job_files.LOCK):
            train_loop.train(folder, job, rows, job_files.begun(folder, job, budget), budget, Share())
        return
    job_files.write(folder, job, rows)
    launch(folder, budget, processes)


def _fitted(folder: Path, job: Job, signature: Signature, budget: int) -> Perceptron:
    state = job_files.begun(folder, job, budget)
    if not np.isfinite(state.weights).all():
        raise Fatal(f"the weights of the network became infinite within {budget} epochs", "lower its learning_rate", REFUSED)
    return Perceptron(signature, job, views(state.weights, job.shapes))
