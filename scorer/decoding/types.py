"""The protocol of decoders, which convert the values of records to the tensors of a signature and reject invalid events."""

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
    """An infinity that replaces a number beyond the range of a float."""


class FormatMismatch(Exception):
    """The input format cannot hold the fields of the signature."""


class LookUpsPending(DependencyUnavailable):
    """Look-ups of schemas are still running. Decode the same batch again: the look-ups continue in the background."""

    def __init__(self, message: str) -> None:
        super().__init__(SCHEMA_REGISTRY, message, retry_seconds=0.0)

    def __reduce__(self) -> tuple[Any, ...]:
        return LookUpsPending, (str(self),)


@dataclass(slots=True)
class Decoded:
    """The decoded events of a batch.

    Attributes:
        rows: the indices of the good events.
        ids: the configured id field of each good event, or None.
        tensors: by name (len(rows), n) for n fields; strings are object arrays.
        rejected: the reasons of the other events, by their indices.
        carried: the fields of `output.carry` of each good event; None if none are configured.
    """

    rows: list[int]
    ids: Sequence[str | int | None]
    tensors: dict[str, NDArray[Any]]
    rejected: dict[int, Poison]
    carried: Sequence[Row] | None = None

    def select(self, start: int, stop: int) -> dict[str, NDArray[Any]]:
        """Return the tensors of the good events `start` to `stop`, without a copy."""
        return {name: tensor[start:stop] for name, tensor in self.tensors.items()}


class Decoder(Protocol):
    """A decoder of one format for one signature."""

    def decode(self, values: Sequence[bytes | None], parts: RecordMetadata | None = None, /) -> Decoded:
        """Decode a batch; invalid values are rejected and raise no error.

        Args:
            values: the values of the records, None for a tombstone.
            parts: keys, headers and times of the records; None if the records have none.

        Raises:
            LookUpsPending: schemas are being looked up; decode the batch again.
            DependencyUnavailable: the schema registry does not answer.
            Fatal: the schema registry rejects all requests.
        """


def decode_after_look_ups(
    decoder: Decoder,
    values: Sequence[bytes | None],
    parts: RecordMetadata | None = None,
    alive: Callable[[], object] = lambda: None,
    seconds: float = math.inf,
) -> Decoded:
    """Decode a batch after its schemas are looked up; during the wait, call `alive` at least once a second.

    Raises:
        LookUpsPending: the look-ups take longer than `seconds`.
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
    """Return the rows of a (B, n) float tensor with an infinity, or NaN in a column that does not allow it (n booleans)."""
    not_allowed = ~np.isfinite(tensor)
    if not not_allowed.any():
        return np.empty(0, np.intp)
    not_allowed &= ~(np.isnan(tensor) & nan_allowed)
    return np.flatnonzero(not_allowed.any(axis=1))
