"""The scores and decisions of a batch, which are derived from the outputs of the model.

The scores are columns with one row per event, and can be encoded as JSON.
"""

from collections.abc import Mapping, Sequence
from operator import add
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from model_registry.package import model_outputs
from model_registry.package.padding import is_ragged
from model_registry.package.signature import Argmax, Output, Signature
from scorer.scores.record import json_column

COMMA, BRACKET = b",]"


def score_column(scores: NDArray[Any]) -> list[bytes]:
    """Encode each row of a (B,) or (B, ...) array as JSON, with numbers in the shortest form for their dtype."""
    if is_ragged(scores):
        return [score_column(row[np.newaxis])[0] for row in scores]
    if scores.dtype == object:
        return json_column(scores.tolist())
    if scores.ndim == 1:
        return orjson.dumps(np.ascontiguousarray(scores), option=orjson.OPT_SERIALIZE_NUMPY)[1:-1].split(b",")
    return [orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY) for row in np.ascontiguousarray(scores)]


def top_column(scores: NDArray[Any], count: int, labels: Sequence[str]) -> list[bytes]:
    """Encode the `count` largest values of each row of a (B, n) array, with their labels, as JSON. The largest is first.

    The JSON of a row is `[{"label": ..., "score": ...}, ...]`. `labels` has the label of each of the n columns.
    """
    places = model_outputs.largest_indices(scores, count)
    heads = np.array([b'{"label":%b,"score":' % orjson.dumps(label) for label in labels], object)
    numbers = score_column(np.take_along_axis(scores, places, axis=1).ravel())
    pairs = list(map(add, heads[places.ravel()].tolist(), numbers))
    rows = zip(*[iter(pairs)] * count, strict=True)
    return [b"[%b}]" % b"},".join(row) for row in rows]


def _finite_rows(rows: NDArray[Any]) -> NDArray[np.bool_]:
    """Return, for each array, whether all its numbers are finite, as (B,) booleans. `rows` has B arrays of varying length."""
    return np.array([row.dtype.kind != "f" or bool(np.isfinite(row).all()) for row in rows])


class Scores:
    """The scores of a batch: one column per output of the signature, with one row per event.

    `columns` maps the name of each output to its column. If the signature has only one output, the name may be None.
    """

    def __init__(self, signature: Signature, outputs: Mapping[str, NDArray[Any]]) -> None:
        """Select the outputs that the signature names. Raises OutputMismatch if the outputs do not match the signature."""
        self._signature = signature
        self.columns = model_outputs.read_outputs(signature, outputs)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @property
    def decided_output(self) -> str | None:
        """The name of the output from which the decision is made; None if it is the only output and has no name."""
        return self._signature.decided.name

    def decided_on(self) -> NDArray[Any]:
        """Return the column from which the decision is made."""
        return self.columns[self._signature.decided.name]

    def finite(self) -> NDArray[np.bool_]:
        """Return, for each row, whether all its numbers are finite, as (B,) booleans."""
        checks = [np.isfinite(c).reshape(len(c), -1).all(axis=1) for c in self.columns.values() if c.dtype.kind == "f"]
        checks += [_finite_rows(column) for column in self.columns.values() if is_ragged(column)]
        return np.logical_and.reduce(checks) if checks else np.ones(len(self), np.bool_)

    def encoded(self) -> list[bytes]:
        """Encode the score of each row as JSON: a number, a string, an array, labelled classes, or an object of outputs."""
        columns = {output.name: self._encode_output(output) for output in self._signature.outputs}
        if list(columns) == [None]:
            return columns[None]
        names = [orjson.dumps(name) for name in columns]
        return [
            b"{" + b",".join(name + b":" + value for name, value in zip(names, row, strict=True)) + b"}"
            for row in zip(*columns.values(), strict=True)
        ]

    def _encode_output(self, output: Output) -> list[bytes]:
        column = self.columns[output.name]
        return top_column(column, output.top, self._signature.labels_of(output)) if output.top else score_column(column)

    def joined(self) -> tuple[bytes, NDArray[np.int64]] | None:
        """Encode all scores in one JSON text.

        Returns:
            The text, and the end position of each score. The first score begins at position 1, and one byte separates two
            scores. None if there are several outputs, or a score is neither a number nor a flat array of numbers.
        """
        # Each score has the same text as in the result of `encoded`.
        if list(self.columns) != [None] or self._signature.outputs[0].top:
            return None
        column = np.ascontiguousarray(self.columns[None])
        if column.ndim > 2 or column.dtype.kind not in "biuf" or not len(column):
            return None
        text = orjson.dumps(column, option=orjson.OPT_SERIALIZE_NUMPY)
        characters = np.frombuffer(text, np.uint8)
        if column.ndim == 1:
            return text, np.flatnonzero((characters == COMMA) | (characters == BRACKET))
        return text, np.flatnonzero(characters == BRACKET)[:-1] + 1

    def decisions(self) -> list[str | None]:
        """Return the decision of each row; None for all rows if the signature has no decision rule and no labels."""
        # The rule compares a score with a threshold, or selects the label of the largest value.
        names, indices = self.decided()
        return [names[index] for index in indices.tolist()]

    def decided(self) -> tuple[Sequence[str | None], NDArray[np.int32]]:
        """Return the possible decisions, and for each row the index of its decision, (B,)."""
        rule = self._signature.decision
        column = self.decided_on()
        if isinstance(rule, Argmax):
            return self._decide_by_label(rule, column)
        if rule is not None:
            return (rule.below, rule.at_or_above), (column >= rule.threshold).astype(np.int32)
        if self._signature.labelled and column.ndim == 2:
            return self._signature.labels_of(self._signature.decided), column.argmax(axis=1).astype(np.int32)
        return (None,), np.zeros(len(self), np.int32)

    def _decide_by_label(self, rule: Argmax, column: NDArray[Any]) -> tuple[Sequence[str | None], NDArray[np.int32]]:
        """Return the possible decisions for a (B, n) column, and for each row the index of its decision."""
        # The decision is the label of the largest value of a row, or `rule.below` if this value is below the threshold.
        labels = self._signature.labels_of(self._signature.decided)
        indices = column.argmax(axis=1).astype(np.int32)
        if rule.threshold is None:
            return labels, indices
        indices[column.max(axis=1) < rule.threshold] = len(labels)
        return (*labels, rule.below), indices
