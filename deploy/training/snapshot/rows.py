"""Labelled events as a model sees them: tensors by signature, outcomes, and where each event stands on its topic."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Places:
    """Where B events stand: `topics[topic[i]]`, `partition[i]`, `offset[i]`; `time_ms` (B,) int64 is the Kafka timestamp."""

    topics: tuple[str, ...]
    topic: NDArray[np.int16]
    partition: NDArray[np.int32]
    offset: NDArray[np.int64]
    time_ms: NDArray[np.int64]

    def select(self, chosen: NDArray[Any]) -> "Places":
        """Those at these indices, or where the booleans (B,) are true."""
        return Places(self.topics, self.topic[chosen], self.partition[chosen], self.offset[chosen], self.time_ms[chosen])


@dataclass(frozen=True, slots=True)
class Rows:
    """B labelled events. `tensors` have the names, dtypes and shapes (B, n) that the signature asks for, strings as objects;
    `outcomes` (B,) int8: 1 where the second class came true, else 0. `values` are the records as they were written."""

    tensors: Mapping[str, NDArray[Any]]
    outcomes: NDArray[np.int8]
    places: Places
    values: Sequence[bytes]

    def __len__(self) -> int:
        return len(self.outcomes)

    def select(self, chosen: NDArray[Any]) -> "Rows":
        """Those at these indices, or where the booleans (B,) are true."""
        found = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen
        tensors = {name: tensor[found] for name, tensor in self.tensors.items()}
        return Rows(tensors, self.outcomes[found], self.places.select(found), [self.values[at] for at in found.tolist()])


class Split(NamedTuple):
    """Rows by time: each part begins after the part before it ends."""

    training: Rows
    validation: Rows
    hold_out: Rows
