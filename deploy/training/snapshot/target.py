"""The target of a training: the kind of the labels, and the names of the classes. Pure."""

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


class Target(msgspec.Struct, frozen=True):
    """The target that a model predicts.

    Attributes:
        kind: The kind of the labels.
        classes: The names of the classes in the order of their indices; empty for a regression.
    """

    kind: TargetKind
    classes: tuple[str, ...] = ()

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of outcomes: indices into `classes`, or float64 for a regression."""
        return OUTCOME_TYPES[self.kind]


ZERO_OR_ONE = Target("binary", ("0", "1"))
"""The target of labels that are 0 or 1, if neither the settings nor the signature name the classes."""
