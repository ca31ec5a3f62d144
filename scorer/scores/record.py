"""The score record, built column-wise: what is constant for a version is encoded once per version.

The record is one JSON object (the contract stands in scorer/README.md); its key, timestamp and partition are the
input's affair and are set where it is produced.
"""

from collections.abc import Sequence
from itertools import repeat
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from model_registry.package.signature import Signature

Headers = list[tuple[str, str | bytes | None]]


def json_column(values: Sequence[Any]) -> list[bytes]:
    """Each value as JSON, by one call for the whole column where no value contains a comma."""
    if not values:
        return []
    parts = orjson.dumps(values)[1:-1].split(b",")
    return parts if len(parts) == len(values) else [orjson.dumps(value) for value in values]


def score_column(scores: NDArray[Any]) -> list[bytes]:
    """Each row of a (B,) or (B, n) array as JSON, shortest form for its dtype."""
    if scores.ndim == 1:
        return orjson.dumps(np.ascontiguousarray(scores), option=orjson.OPT_SERIALIZE_NUMPY)[1:-1].split(b",")
    return [orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY) for row in np.ascontiguousarray(scores)]


class Scores:
    """The outputs of a batch as the signature reads them: one array, or several by name. One row an event."""

    def __init__(self, signature: Signature, outputs: dict[str, NDArray[Any]]) -> None:
        self._signature = signature
        self.columns = {output.name: _column(outputs[output.tensor], output.index) for output in signature.outputs}

    @property
    def scalar(self) -> bool:
        """Whether each row's score is one number."""
        return all(column.ndim == 1 for column in self.columns.values())

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def finite(self) -> NDArray[np.bool_]:
        """(B,) booleans: whether every number of the row is finite."""
        checks = [np.isfinite(c).reshape(len(c), -1).all(axis=1) for c in self.columns.values() if c.dtype.kind == "f"]
        return np.logical_and.reduce(checks) if checks else np.ones(len(self), np.bool_)

    def encoded(self) -> list[bytes]:
        """Each row's `score`: a number, an array, or an object of named outputs."""
        columns = {name: score_column(column) for name, column in self.columns.items()}
        if list(columns) == [None]:
            return columns[None]
        names = [orjson.dumps(name) for name in columns]
        return [
            b"{" + b",".join(name + b":" + value for name, value in zip(names, row, strict=True)) + b"}"
            for row in zip(*columns.values(), strict=True)
        ]

    def decisions(self) -> list[str | None]:
        """Each row's decision: by the threshold, by the label of the largest value, or None."""
        column = next(iter(self.columns.values()))
        if self._signature.decision is not None:
            rule = self._signature.decision
            return [rule.at_or_above if over else rule.below for over in (column >= rule.threshold).tolist()]
        labels = self._signature.labels
        if labels is not None and column.ndim == 2:
            return [labels[i] for i in column.argmax(axis=1).tolist()]
        return [None] * len(self)


def _column(output: NDArray[Any], index: int | None) -> NDArray[Any]:
    """(B,), (B, 1) or (B, n) -> the column that is the score; a single value is a scalar, several stay an array."""
    if index is not None:
        return output[:, index]
    return output.reshape(len(output)) if output.size == len(output) else output


class RecordEncoder:
    """Builds the records of one version. `role` is champion, canary or shadow."""

    def __init__(self, *, model: str, version: str, digest: str, role: str, region: str) -> None:
        self.provenance = {"model": model, "version": version, "digest": digest, "role": role, "region": region}
        origin = {key: self.provenance[key] for key in ("model", "version", "digest", "role")}
        self._origin = orjson.dumps(origin)[1:-1]
        self._region = orjson.dumps(region)

    def encode(
        self,
        ids: Sequence[str],
        scores: Sequence[bytes],
        decisions: Sequence[str | None],
        places: Sequence[tuple[str, int]],
        offsets: Sequence[int],
        event_ms: Sequence[int],
        status: str,
        scored_ms: int,
    ) -> list[bytes]:
        """Columns (one entry an event; `places` are its topic and partition) to records. Times are Unix ms."""
        kinds = list(zip(decisions, places, strict=True))
        middles = {
            (decision, place): b',"decision":%b,"status":"%b",%b,"source":{"topic":%b,"partition":%d,"offset":'
            % (orjson.dumps(decision), status.encode(), self._origin, orjson.dumps(place[0]), place[1])
            for decision, place in set(kinds)
        }
        parts = zip(
            repeat(b'{"id":'),
            json_column(ids),
            repeat(b',"score":'),
            scores,
            map(middles.__getitem__, kinds),
            json_column(offsets),
            repeat(b'},"event_ms":'),
            json_column(event_ms),
            repeat(b',"scored_ms":%d,"region":%b}' % (scored_ms, self._region)),
        )
        return list(map(b"".join, parts))

    def headers(self, names: Sequence[str], ids: Sequence[str], decisions: Sequence[str | None], status: str) -> list[Headers]:
        """Fields of the records copied into Kafka headers, for filters downstream."""
        constant: Headers = [(name, self.provenance[name].encode()) for name in names if name in self.provenance]
        if "status" in names:
            constant.append(("status", status.encode()))
        rows: list[Headers] = []
        for id_, decision in zip(ids, decisions, strict=True):
            row = list(constant)
            if "id" in names:
                row.append(("id", id_.encode()))
            if "decision" in names and decision is not None:
                row.append(("decision", decision.encode()))
            rows.append(row)
        return rows
