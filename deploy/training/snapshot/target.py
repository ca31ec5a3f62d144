"""The target of a training: what the labels are, and the names of the classes. Pure."""

from typing import Literal

import msgspec

TargetKind = Literal["binary", "classes", "regression"]
"""The kind of a target: two classes, more than two classes, or a number."""


class Target(msgspec.Struct, frozen=True):
    """The target that a model predicts.

    Attributes:
        kind: The kind of the labels.
        classes: The names of the classes in the order of their indices; empty for a regression.
    """

    kind: TargetKind
    classes: tuple[str, ...] = ()
