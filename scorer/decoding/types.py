"""The protocol of decoders, and the result of decoding a batch.

A decoder converts the values of records to the tensors of a signature and rejects invalid events.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from publisher.runtime.dependency_wait import SCHEMA_REGISTRY, DependencyUnavailable
from scorer.dead_letters.reasons import Poison
from scorer.decoding.record_metadata import RecordMetadata
from scorer.settings.carry import Row


class BeyondFloat(float):
    """An infinite float, which replaces a number of a parsed event that is beyond the range of a float."""


class FormatMismatch(Exception):
    """Events in the input format cannot contain the fields of the signature."""


class LookUpsPending(DependencyUnavailable):
    """Look-ups of schemas are still running in the background, so the batch cannot be decoded yet.

    The caller must decode the same batch again later.
    """

    def __init__(self, message: str) -> None:
        super().__init__(SCHEMA_REGISTRY, message, retry_seconds=0.0)

    def __reduce__(self) -> tuple[Any, ...]:
        return LookUpsPending, (str(self),)


@dataclass(slots=True)
class Decoded:
    """The decoded events of a batch: the tensors of the valid events, and the reasons of the rejected events.

    Attributes:
        rows: the indices of the valid events in the batch, ascending.
        ids: for each valid event, the value of the configured id field; None if the event has no such value.
        tensors: the tensors of the valid events by name, (len(rows), n) for n fields. Strings are object arrays.
        rejected: the reason of each rejected event, by its index in the batch.
        carried: the carried fields (`output.carry`) of each valid event; None if no fields are configured.
    """

    rows: list[int]
    ids: Sequence[str | int | None]
    tensors: dict[str, NDArray[Any]]
    rejected: dict[int, Poison]
    carried: Sequence[Row] | None = None

    def select(self, start: int, stop: int) -> dict[str, NDArray[Any]]:
        """Return views of the tensors of the valid events `rows[start:stop]`."""
        return {name: tensor[start:stop] for name, tensor in self.tensors.items()}


class Decoder(Protocol):
    """A decoder of the values of one format to the tensors of one signature."""

    def decode(self, values: Sequence[bytes | None], parts: RecordMetadata | None = None, /) -> Decoded:
        """Decode a batch. An invalid event raises no error; it is added to `rejected` of the result.

        Args:
            values: the values of the records; None for a tombstone.
            parts: keys, headers and timestamps of the records; None if the records have only values.

        Raises:
            LookUpsPending: schemas are being looked up. The caller must decode the batch again.
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
    """Decode a batch. If the decoder must first look up schemas, wait for the look-ups.

    During the wait, `alive` is called at least once a second.

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
    """Return the indices of the rows of a (B, n) float tensor with an infinity, or with NaN in a column that allows no NaN.

    `nan_allowed` has n booleans, one for each column.
    """
    not_allowed = ~np.isfinite(tensor)
    if not not_allowed.any():
        return np.empty(0, np.intp)
    not_allowed &= ~(np.isnan(tensor) & nan_allowed)
    return np.flatnonzero(not_allowed.any(axis=1))
