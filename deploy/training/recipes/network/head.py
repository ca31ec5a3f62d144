"""The outputs of a network for each kind of target: the encoded labels, the loss, and the scores.

torch is imported on demand, because the other parts of the recipe work without torch.
"""

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from publisher.errors import REFUSED, Fatal
from training.snapshot.target import ZERO_OR_ONE, Target


class Head(msgspec.Struct, frozen=True):
    """Interprets the outputs of a network for the target of the training.

    For two classes, the only output is the log odds of the second class. For K classes, there are K logits. For a regression,
    an output x stands for the number `mean + deviation * x`.
    """

    target: Target = ZERO_OR_ONE
    mean: float = 0.0
    deviation: float = 1.0

    @property
    def outputs(self) -> int:
        """The number of outputs of the network."""
        return len(self.target.classes) if self.target.kind == "classes" else 1

    @property
    def dtype(self) -> type[np.floating[Any]]:
        """The dtype in which scores are computed. Numbers of any size need float64 to be equal in torch and ONNX Runtime."""
        return np.float64 if self.target.kind == "regression" else np.float32

    def encoded(self, outcomes: NDArray[Any]) -> NDArray[Any]:
        """Return the outcomes as the loss reads them, (B,): int64 for K classes, else float32."""
        if self.target.kind == "classes":
            return outcomes.astype(np.int64)
        return ((outcomes - self.mean) / self.deviation).astype(np.float32)

    def loss(self, outputs: Any, outcomes: Any) -> Any:
        """Return the sum of the losses of rows as a torch scalar.

        Args:
            outputs: The outputs of the network, (B,), or (B, K) for K classes.
            outcomes: The rows of the result of `encoded`, (B,).
        """
        import torch
        from torch.nn import functional

        if self.target.kind == "classes":
            return functional.cross_entropy(outputs, outcomes, reduction="sum")
        if self.target.kind == "binary":
            return functional.binary_cross_entropy_with_logits(outputs, outcomes, reduction="sum")
        errors = outcomes - outputs
        quantile = self.target.quantile
        if quantile is None:
            return errors.square().sum()
        return torch.maximum(quantile * errors, (quantile - 1) * errors).sum()

    def scores(self, outputs: Any) -> Any:
        """Return the scores of rows, as in `training.recipes.Fitted.scores`, for the outputs of the network."""
        if self.target.kind == "classes":
            return outputs.softmax(dim=1)
        return outputs.sigmoid() if self.target.kind == "binary" else self.mean + self.deviation * outputs


BINARY = Head()
"""The head for two classes."""


def create_head(target: Target, outcomes: NDArray[Any]) -> Head:
    """Return the head for a target. For a regression, `outcomes` (B,) are the labels of the training rows.

    Raises Fatal (exit code 3) if the labels of a regression are too large or too similar to be standardized.
    """
    if target.kind != "regression":
        return Head(target)
    with np.errstate(over="ignore", invalid="ignore"):
        mean, deviation = float(outcomes.mean()), float(outcomes.std())
    if not 0 < deviation < np.inf:
        message = f"recipe network: the labels have the mean {mean:g} and the standard deviation {deviation:g}"
        raise Fatal(message, "check the producer of the labels: they must differ, and be below 1e150", REFUSED)
    return Head(target, mean, deviation)
