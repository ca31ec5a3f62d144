"""Recipes: how rows become a model. One module a recipe; the search, the training and the export know this protocol only."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from model_registry.package.signature import Signature
from training.snapshot.rows import Rows

Params = Mapping[str, int | float | str]
"""What a trial of the search chooses: names and values of one recipe."""


class Fitted(Protocol):
    """A trained model."""

    def scores(self, tensors: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
        """The probabilities (B,) of the second class. `tensors` are those of `Rows`."""

    def onnx(self) -> bytes:
        """The same model as ONNX, with the inputs and the output of the signature. The same model gives the same bytes."""


class Recipe(Protocol):
    """One way to train. Every method is a function of its arguments: the same rows, parameters and seed give the same bytes.
    It can be pickled: worker processes get it."""

    name: str
    """As `recipe` of training.yaml states it."""

    def check(self, signature: Signature) -> None:
        """Raises Fatal (2) for a signature that the recipe does not serve, naming what in it."""

    def parameters(self, stated: Params) -> Params:
        """All parameters of the recipe: those stated, and defaults. Raises Fatal (2), naming one that the recipe lacks."""

    def suggest(self, trial: Any) -> Params:
        """Parameters for a trial of the search (`optuna.Trial`)."""

    def fit(
        self, rows: Rows, signature: Signature, params: Params, budget: int, folder: Path, *, seed: int, workers: int = 1
    ) -> Fitted:
        """Train up to `budget` trees or epochs.

        `folder` keeps the checkpoints: whatever is there is gone on from, so that a killed training and a larger budget cost
        only the rest. How often a training was broken off, and the number of workers, leave no trace in the model.
        """


def named(name: str, gpus: int) -> Recipe:
    """The recipe of this name in the settings, imported when asked for. `gpus` are a network's; trees have no use for them."""
    if name == "network":
        from training.recipes.network import Network

        return Network(gpus)
    from training.recipes.trees import Trees

    return Trees()
