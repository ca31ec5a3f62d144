"""Recipes: how rows become a model, one module per recipe. Search, training and export know only this protocol."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from model_registry.package.signature import Signature
from training.snapshot.rows import LabelledRows

Params = Mapping[str, int | float | str]
"""Parameters of a trial: names and values of one recipe."""


class Fitted(Protocol):
    """A trained model."""

    def scores(self, tensors: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
        """Return the probabilities (B,) of the second class. `tensors` are those of `LabelledRows`."""

    def onnx(self) -> bytes:
        """Return the model as ONNX with the inputs and output of the signature. Equal models give equal bytes."""


class Recipe(Protocol):
    """A way to train.

    Every method is a function of its arguments: the same rows, parameters and seed give the same bytes. A recipe can be
    pickled for worker processes.
    """

    name: str
    """The value of `recipe` in training.yaml."""

    def check(self, signature: Signature) -> None:
        """Raise Fatal (2) for a signature that the recipe does not support, naming the cause."""

    def parameters(self, stated: Params) -> Params:
        """Return all parameters: the stated ones and defaults. Raises Fatal (2) for an unknown parameter."""

    def suggest(self, trial: Any) -> Params:
        """Return the parameters of a trial of the search (`optuna.Trial`)."""

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

        `folder` keeps the checkpoints: training continues from them, so that a killed training and a larger budget cost only
        the remainder. Interruptions and the number of workers do not affect the model.
        """


def named(name: str, gpus: int) -> Recipe:
    """Return the recipe of this name, imported on demand. Networks use `gpus`; trees ignore it."""
    if name == "network":
        from training.recipes.network import Network

        return Network(gpus)
    from training.recipes.trees import Trees

    return Trees()
