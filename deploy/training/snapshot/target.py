"""The target of a training: the kind of the labels, the names of the classes, and what a model predicts of a number. Pure."""

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
        level: The share of the outcomes that the intervals are meant to contain, between 0 and 1.
    """

    low: str
    high: str
    level: float


class Target(msgspec.Struct, frozen=True):
    """The target that a model predicts.

    Attributes:
        kind: The kind of the labels.
        classes: The names of the classes in the order of their indices; empty for a regression.
        quantile: The quantile of the number that the score of a regression predicts, between 0 and 1; None for the mean.
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
