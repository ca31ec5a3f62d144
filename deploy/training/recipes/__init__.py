"""The protocols of recipes: a recipe trains a model on labelled rows. Each recipe has its own module.

Search, training and export depend on these protocols and on the file contract (`contract.py`) only.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from model_registry.package.signature import Signature
from training.snapshot.rows import LabelledRows
from training.snapshot.target import Target

Params = Mapping[str, int | float | str]
"""The parameters of a training: values by the names that its recipe defines."""


class Fitted(Protocol):
    """A trained model."""

    def scores(self, tensors: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
        """Return the score of each row. `tensors` are as in `LabelledRows`.

        The scores are probabilities of the second of two classes (B,), probabilities of each of K classes (B, K), or the
        predicted numbers of a regression (B,): means, or the quantile of the target.
        """

    def onnx(self) -> bytes:
        """Return the model as ONNX with the inputs and output of the signature. Equal models give equal bytes."""


class Recipe(Protocol):
    """A training algorithm with its parameters: a built-in recipe, or a user's command (see `training.recipes.own`)."""

    name: str
    """The value of `recipe` in training.yaml; `own` for a command."""

    def check(self, signature: Signature, target: Target) -> None:
        """Check that the recipe supports signature and target. Raises Fatal (exit code 2) with the cause if it does not."""

    def parameters(self, stated: Params) -> Params:
        """Return all parameters of the recipe: the values in `stated`, and defaults for the other parameters.

        Raises Fatal (exit code 2) for an unknown or invalid parameter.
        """

    def suggest(self, trial: Any) -> Params:
        """Draw values for the parameters that a search varies. `trial` is an `optuna.Trial`."""


class BuiltIn(Recipe, Protocol):
    """A recipe of the product, which trains in a process of the product.

    Every method is deterministic: the same rows, parameters and seed give the same bytes. A recipe can be pickled for worker
    processes.
    """

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
    ) -> Fitted:
        """Train up to `budget` trees or epochs.

        Checkpoints are stored in `folder`. A training that was killed, or that is repeated with a larger budget, continues from
        its last checkpoint. Interruptions and the number of workers do not affect the model.
        """


def named(name: str, gpus: int) -> BuiltIn:
    """Import the module of the built-in recipe with this name, and return the recipe. Only the recipe `network` uses `gpus`."""
    if name == "network":
        from training.recipes.network import Network

        return Network(gpus)
    from training.recipes.trees import Trees

    return Trees()
