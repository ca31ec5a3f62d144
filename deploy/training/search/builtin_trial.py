"""Train with a built-in recipe in the folder of a trial, under the file contract of `training.recipes.contract`."""

import os
import sys
from pathlib import Path

import numpy as np

from model_registry.package.signature import Signature
from publisher.errors import REFUSED, UNREACHABLE, USAGE, Fatal
from training.recipes import BuiltIn, contract
from training.snapshot.rows import LabelledRows
from training.validation_gate.metrics import evaluate


class BuiltInTrial:
    """Trains one trial after another with a built-in recipe. The rows are cached, because all trials share them."""

    def __init__(self, recipe: BuiltIn) -> None:
        self._recipe = recipe
        self._rows: dict[str, tuple[object, LabelledRows]] = {}

    def run(self, folder: Path) -> str | Fatal:
        """Train in the folder. Return "" after a success, or the reason if only this trial failed.

        Return a Fatal if the whole search must end. Exit code 2: the recipe rejects the signature or the parameters, so every
        trial would fail. Exit code 4: the processes of the recipe failed; a repeated run continues.
        """
        _log_to(folder / contract.LOG)
        try:
            self._train(folder)
        except Fatal as error:
            if error.exit_code in (USAGE, UNREACHABLE):
                return error
            print(f"{error}; {error.hint}", file=sys.stderr, flush=True)
            return f"{error}; {error.hint}" if error.hint else str(error)
        return ""

    def _train(self, folder: Path) -> None:
        trial = contract.read_trial(folder)
        signature = contract.read_signature(folder)
        parameters = contract.read_parameters(folder)
        fitted = self._recipe.fit(
            self._part(folder, contract.TRAINING, signature),
            signature,
            parameters,
            trial.budget,
            folder / contract.CHECKPOINT,
            seed=trial.seed,
            workers=contract.read_resources(folder).workers,
        )
        if trial.final:
            (folder / contract.MODEL).write_bytes(fitted.onnx())
            return
        validation = self._part(folder, contract.VALIDATION, signature)
        scores = np.asarray(fitted.scores(validation.tensors), np.float64)
        values = evaluate(validation.target, scores, validation.outcomes)
        if trial.metric not in values:
            metrics = ", ".join(values)
            hint = f"set search.metric to one of {metrics}; or make snapshot.validation longer, if it has one class only"
            raise Fatal(f"search.metric is {trial.metric!r}, which cannot be computed on the validation part", hint, REFUSED)
        contract.append_metrics(folder, trial.budget, values)

    def _part(self, folder: Path, name: str, signature: Signature) -> LabelledRows:
        path = folder / contract.ROWS / name
        state = path.stat()
        key = (os.path.realpath(path), state.st_mtime_ns, state.st_ino, signature)
        if name not in self._rows or self._rows[name][0] != key:
            self._rows[name] = key, contract.read_rows(path, signature)
        return self._rows[name][1]


def _log_to(path: Path) -> None:
    """Direct stdout and stderr of this process to the end of a file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    sys.stdout.flush()
    sys.stderr.flush()
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)
