"""Labelled events in the form that a model reads: tensors by signature, outcomes, and the position of each event."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scorer.decoding.batch import Headers
from scorer.decoding.record_metadata import ListedMetadata
from scorer.evaluation.label_columns import RecordPosition
from training.snapshot.target import ZERO_OR_ONE, Target


@dataclass(frozen=True, slots=True)
class Places:
    """The positions of B events in Kafka: event i is in `topics[topic[i]]` at `partition[i]` and `offset[i]`.

    `time_ms` (B,) int64 are the Kafka timestamps (Unix ms).
    """

    topics: tuple[str, ...]
    topic: NDArray[np.int16]
    partition: NDArray[np.int32]
    offset: NDArray[np.int64]
    time_ms: NDArray[np.int64]

    def select(self, chosen: NDArray[Any]) -> "Places":
        """Return the positions of the chosen events; `chosen` are indices, or booleans (B,)."""
        return Places(self.topics, self.topic[chosen], self.partition[chosen], self.offset[chosen], self.time_ms[chosen])

    def of(self, row: int) -> RecordPosition:
        """Return the position of the event with the index `row`."""
        return RecordPosition((self.topics[self.topic[row]], int(self.partition[row])), int(self.offset[row]))


@dataclass(frozen=True, slots=True)
class Beside:
    """The keys and headers of B records. A missing key is None, and so are missing headers."""

    keys: list[bytes | None]
    headers: list[Headers]

    def add(self, keys: Sequence[bytes | None], headers: Sequence[Headers]) -> None:
        """Append keys and headers of further records."""
        self.keys.extend(keys)
        self.headers.extend(headers)

    def select(self, chosen: NDArray[np.intp]) -> "Beside":
        """Return the keys and headers of the records with the indices `chosen`."""
        at = chosen.tolist()
        return Beside([self.keys[row] for row in at], [self.headers[row] for row in at])


@dataclass(frozen=True, slots=True)
class LabelledRows:
    """B labelled events: tensors, outcomes, positions and original records.

    `tensors` have the names, dtypes and shapes (B, n) of the signature, strings as objects. `outcomes` (B,) have the dtype
    `target.dtype`: the index of a class in `target.classes`, or the number itself for a regression. `values` are the original
    values of the records. `beside` has the keys and headers of the records; it is None unless a signature reads keys or
    headers. `logged` states whether the records are from the feature log; otherwise they are events.
    """

    tensors: Mapping[str, NDArray[Any]]
    outcomes: NDArray[Any]
    places: Places
    values: Sequence[bytes]
    beside: Beside | None = None
    logged: bool = False
    target: Target = ZERO_OR_ONE

    def __len__(self) -> int:
        return len(self.outcomes)

    def select(self, chosen: NDArray[Any]) -> "LabelledRows":
        """Return the chosen rows; `chosen` are indices, or booleans (B,)."""
        indices = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen
        tensors = {name: tensor[indices] for name, tensor in self.tensors.items()}
        values = [self.values[row] for row in indices.tolist()]
        beside = self.beside and self.beside.select(indices)
        outcomes = self.outcomes[indices]
        return LabelledRows(tensors, outcomes, self.places.select(indices), values, beside, self.logged, self.target)

    def parts(self, start: int, stop: int) -> ListedMetadata:
        """Return the timestamps of the rows `start` to `stop - 1`, and their keys and headers unless `beside` is None."""
        times = self.places.time_ms[start:stop].tolist()
        if self.beside is None:
            return ListedMetadata([None] * len(times), times, [None] * len(times))
        return ListedMetadata(self.beside.keys[start:stop], times, self.beside.headers[start:stop])

    def digest(self) -> str:
        """Return the digest (`sha256:...`) of the positions and outcomes of the rows.

        The digest covers the topics as JSON, then the topic number, partition, offset and outcome of each row, column by
        column, little-endian. Outcomes have the dtype of the target.
        """
        places = self.places
        hashing = sha256(json.dumps(places.topics).encode())
        outcome = self.target.dtype.newbyteorder("<")
        for column, dtype in (
            (places.topic, "<i2"),
            (places.partition, "<i4"),
            (places.offset, "<i8"),
            (self.outcomes, outcome),
        ):
            hashing.update(column.astype(dtype).tobytes())
        return f"sha256:{hashing.hexdigest()}"


class Split(NamedTuple):
    """Labelled rows, split by time into three parts: each part starts after the previous one ends."""

    training: LabelledRows
    validation: LabelledRows
    hold_out: LabelledRows
