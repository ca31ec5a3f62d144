"""The target of a training: classes, or the mean, a quantile or an interval of a number. Pure."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
import numpy as np

TargetKind = Literal["binary", "classes", "regression"]
"""The kind of a target: two classes, more than two classes, or a number."""
OUTCOME_TYPES: Mapping[TargetKind, np.dtype[Any]] = {
    "binary": np.dtype(np.int8),
    "classes": np.dtype(np.int16),
    "regression": np.dtype(np.float64),
}
"""The dtype of `LabelledRows.outcomes` by the kind of the target."""


class PredictionInterval(msgspec.Struct, frozen=True):
    """An interval that a model predicts for a number.

    Attributes:
        low: The name of the output that is the lower bound.
        high: The name of the output that is the upper bound.
        level: The share of the labels that the intervals are meant to contain, between 0 and 1.
    """

    low: str
    high: str
    level: float


class Target(msgspec.Struct, frozen=True):
    """The target that a model predicts.

    Attributes:
        kind: The kind of the labels: two classes, more than two classes, or a number (regression).
        classes: The names of the classes in the order of their indices; empty for a regression.
        quantile: For a regression whose score predicts a quantile, that quantile, between 0 and 1. None if the score predicts
            the mean.
        interval: The outputs that predict an interval for the number; None if no interval is evaluated.
    """

    kind: TargetKind
    classes: tuple[str, ...] = ()
    quantile: float | None = None
    interval: PredictionInterval | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of outcomes: indices into `classes`, or float64 for a regression."""
        return OUTCOME_TYPES[self.kind]


ZERO_OR_ONE = Target("binary", ("0", "1"))
"""The target of labels that are 0 or 1, if neither the settings nor the signature name the classes."""
