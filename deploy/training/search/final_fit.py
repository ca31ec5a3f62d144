"""Train the final model with the best parameters, on all rows before the hold-out."""

from pathlib import Path

import numpy as np

from model_registry.package.signature import Signature
from publisher.errors import REFUSED, Fatal
from training.recipes import BuiltIn, Fitted, Recipe, contract
from training.search.halving import Best
from training.search.search import bench_of
from training.search.workers import Task, TrialEvents, Workers
from training.settings import TrainingSettings
from training.snapshot.rows import LabelledRows, Places


def train(
    training: LabelledRows,
    validation: LabelledRows,
    signature: Signature,
    settings: TrainingSettings,
    recipe: Recipe,
    best: Best,
    folder: Path,
    events: TrialEvents,
) -> None:
    """Train a model with the parameters and up to the budget of `best`, on the training and validation rows.

    The model is written to `folder`: `model.onnx` or `package/`. Checkpoints are stored there too, and an interrupted training
    continues from the last one.

    Raises:
        Fatal: Exit code 3 if the training fails, or writes no model; 4 if the processes of a network failed.
    """
    try:
        together_rows = together(training, validation)
        contract.write_rows(together_rows, signature, folder / contract.ROWS / contract.TRAINING)
        bench = bench_of(settings, recipe, signature, training.target, folder, final=True)
        task = Task(best.trial, best.parameters, best.budget, folder)
        with Workers(bench, 1, events) as workers:
            ((_, result),) = workers.results([task])
    except OSError as error:
        raise Fatal(
            f"{error.filename or folder} cannot be written: {error.strerror}",
            "check the disk space and the permissions, and run again",
            REFUSED,
        ) from None
    if result.failure:
        tail = f"\nits log ends with:\n{result.log}" if result.log else ""
        message = f"the final training (trial {best.trial}, budget {best.budget}) failed: {result.failure}{tail}"
        raise Fatal(message, f"the log is {folder / contract.LOG}; run again: it continues from its checkpoint", REFUSED)


def restored(
    training: LabelledRows,
    validation: LabelledRows,
    signature: Signature,
    settings: TrainingSettings,
    recipe: BuiltIn,
    best: Best,
    folder: Path,
) -> Fitted:
    """Return the final model of a built-in recipe from the checkpoints of `train` in `folder`. Raises Fatal."""
    rows = together(training, validation)
    checkpoint = folder / contract.CHECKPOINT
    return recipe.fit(rows, signature, best.parameters, best.budget, checkpoint, seed=settings.seed, workers=settings.workers)


def together(first: LabelledRows, second: LabelledRows) -> LabelledRows:
    """Return the rows of two parts of one snapshot, in order, without keys and headers."""
    places = (first.places, second.places)
    columns = [np.concatenate([getattr(part, name) for part in places]) for name in Places.__slots__[1:]]
    return LabelledRows(
        {name: np.concatenate([tensor, second.tensors[name]]) for name, tensor in first.tensors.items()},
        np.concatenate([first.outcomes, second.outcomes]),
        Places(first.places.topics, *columns),
        [*first.values, *second.values],
        logged=first.logged,
        target=first.target,
    )
