"""Labelled events as a model sees them: tensors by signature, outcomes, and where each event stands on its topic."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scorer.decoding.batch import Headers
from scorer.decoding.record_metadata import ListedParts
from scorer.evaluation.label_columns import Place


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

    def of(self, row: int) -> Place:
        """Where one of them stands."""
        return Place((self.topics[self.topic[row]], int(self.partition[row])), int(self.offset[row]))


@dataclass(frozen=True, slots=True)
class Beside:
    """What B records have beside their values, an entry each, None where a record has none."""

    keys: list[bytes | None]
    headers: list[Headers]

    def add(self, keys: Sequence[bytes | None], headers: Sequence[Headers]) -> None:
        """Those of further records."""
        self.keys.extend(keys)
        self.headers.extend(headers)

    def select(self, chosen: NDArray[np.intp]) -> "Beside":
        """Those at these indices."""
        at = chosen.tolist()
        return Beside([self.keys[row] for row in at], [self.headers[row] for row in at])


@dataclass(frozen=True, slots=True)
class Rows:
    """B labelled events. `tensors` have the names, dtypes and shapes (B, n) that the signature asks for, strings as objects;
    `outcomes` (B,) int8: 1 where the second class came true, else 0. `values` are the records as they were written; `beside`
    is there where a signature reads from keys or headers."""

    tensors: Mapping[str, NDArray[Any]]
    outcomes: NDArray[np.int8]
    places: Places
    values: Sequence[bytes]
    beside: Beside | None = None

    def __len__(self) -> int:
        return len(self.outcomes)

    def select(self, chosen: NDArray[Any]) -> "Rows":
        """Those at these indices, or where the booleans (B,) are true."""
        found = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen
        tensors = {name: tensor[found] for name, tensor in self.tensors.items()}
        values, beside = [self.values[row] for row in found.tolist()], self.beside and self.beside.select(found)
        return Rows(tensors, self.outcomes[found], self.places.select(found), values, beside)

    def parts(self, start: int, stop: int) -> ListedParts:
        """Times, and where they are here keys and headers, of these rows."""
        times = self.places.time_ms[start:stop].tolist()
        if self.beside is None:
            return ListedParts([None] * len(times), times, [None] * len(times))
        return ListedParts(self.beside.keys[start:stop], times, self.beside.headers[start:stop])

    def digest(self) -> str:
        """`sha256:` of where the rows stand and what came true of them: topics as JSON, then each row's topic (a number),
        partition, offset and outcome, column by column, little-endian."""
        places = self.places
        found = sha256(json.dumps(places.topics).encode())
        for column, dtype in ((places.topic, "<i2"), (places.partition, "<i4"), (places.offset, "<i8"), (self.outcomes, "<i1")):
            found.update(column.astype(dtype).tobytes())
        return f"sha256:{found.hexdigest()}"


class Split(NamedTuple):
    """Rows by time: each part begins after the part before it ends."""

    training: Rows
    validation: Rows
    hold_out: Rows
