"""What a decoder is: bytes of events in, the tensors that a signature names out, and every bad event told apart."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from publisher.runtime.dependencies import SCHEMA_REGISTRY, DependencyUnavailable
from scorer.dead_letters.reasons import Poison
from scorer.decoding.record_metadata import RecordMetadata
from scorer.settings.carry import Row


class BeyondFloat(float):
    """An infinity that stands for a number with more digits, or a larger exponent, than any float has."""


class FormatMismatch(Exception):
    """The format cannot carry what the signature names. The message says what."""


class LookUpsPending(DependencyUnavailable):
    """The schemas of a batch are not all looked up yet. Decode the same batch again: the look-ups go on meanwhile."""

    def __init__(self, message: str) -> None:
        super().__init__(SCHEMA_REGISTRY, message, retry_seconds=0.0)

    def __reduce__(self) -> tuple[Any, ...]:
        return LookUpsPending, (str(self),)


@dataclass(slots=True)
class Decoded:
    """`rows` are the indices of the good events; `ids` (the configured field, or None) and every tensor have one entry each.

    A tensor of n fields is (len(rows), n); strings are object arrays. `rejected` maps the other indices to what is wrong.
    `carried`: the fields of `output.carry` of each good event, None where none are carried.
    """

    rows: list[int]
    ids: Sequence[str | int | None]
    tensors: dict[str, NDArray[Any]]
    rejected: dict[int, Poison]
    carried: Sequence[Row] | None = None

    def select(self, start: int, stop: int) -> dict[str, NDArray[Any]]:
        """The tensors of good events `start` to `stop`, without a copy."""
        return {name: tensor[start:stop] for name, tensor in self.tensors.items()}


class Decoder(Protocol):
    """One format against one signature."""

    def decode(self, values: Sequence[bytes | None], parts: RecordMetadata | None = None, /) -> Decoded:
        """Decode a batch; `parts` is what its records have beside their values, None: nothing. Never raises for what producers
        wrote. Raises LookUpsPending while schemas are looked up; Away and Fatal where the schema registry answers nothing."""


def decode_after_look_ups(
    decoder: Decoder,
    values: Sequence[bytes | None],
    parts: RecordMetadata | None = None,
    alive: Callable[[], object] = lambda: None,
    seconds: float = math.inf,
) -> Decoded:
    """Decode a batch, and wait for look-ups of schemas; `alive` is called at least once a second meanwhile.

    Raises LookUpsPending after so many seconds.
    """
    until = time.monotonic() + seconds
    while True:
        try:
            return decoder.decode(values, parts)
        except LookUpsPending:
            if time.monotonic() >= until:
                raise
            alive()


def not_finite_rows(tensor: NDArray[Any], nan_allowed: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Rows of a (B, n) float tensor that hold an infinity, or NaN in a column that does not allow it (n booleans)."""
    bad = ~np.isfinite(tensor)
    if not bad.any():
        return np.empty(0, np.intp)
    bad &= ~(np.isnan(tensor) & nan_allowed)
    return np.flatnonzero(bad.any(axis=1))
