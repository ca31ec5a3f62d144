"""Train the final model with the best parameters, on all rows before the hold-out."""

from pathlib import Path

import numpy as np

from model_registry.package.signature import Signature
from publisher.errors import REFUSED, Fatal
from training.recipes import Fitted, Recipe
from training.search.halving import Best
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
) -> Fitted:
    """Train a model with the parameters and up to the budget of `best`, on the training and validation rows.

    Checkpoints are stored in `folder`, and an interrupted training continues from the last one. Raises Fatal.
    """
    rows = together(training, validation)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return recipe.fit(rows, signature, best.parameters, best.budget, folder, seed=settings.seed, workers=settings.workers)
    except OSError as error:
        raise Fatal(
            f"{error.filename or folder} cannot be written: {error.strerror}",
            "check the disk space and the permissions, and run again",
            REFUSED,
        ) from None


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
