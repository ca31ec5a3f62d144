"""Converts the output tensors of a model to scores as the signature defines, for a whole batch at once."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_registry.package.padding import is_ragged
from model_registry.package.shapes import MAX_WIDTH, format_shape, may_be_equal
from model_registry.package.signature import Argmax, Decision, Output, Signature

MAX_ELEMENTS = 1 << 25
"""The most elements in the scores of one batch: some hundred MB as JSON."""


class OutputMismatch(ValueError):
    """An output of the model does not fit the signature, or is too large to be written as a score."""


def read_outputs(signature: Signature, outputs: Mapping[str, NDArray[Any]]) -> dict[str | None, NDArray[Any]]:
    """Select the values that the signature's outputs read from the model's output tensors, for a batch.

    Returns:
        For each output, by the output's name in the score, an array (B,) or (B, ...). If events were run one at a time and the
        answers have different shapes, the array is an object array (B,) with one array per event.

    Raises:
        OutputMismatch: An output does not fit the signature, or is too large.
    """
    columns = {output.name: _column(signature, output, outputs[output.tensor]) for output in signature.outputs}
    events = len(next(iter(columns.values())))
    sizes = sum((_sizes(column) for column in columns.values()), np.zeros(events, np.int64))
    largest = int(sizes.max(initial=0))
    elements = int(sizes.sum())
    if largest > MAX_WIDTH:
        raise OutputMismatch(f"the answer to one event has {largest} elements; the limit is {MAX_WIDTH} elements")
    if elements > MAX_ELEMENTS:
        hint = f"the limit is {MAX_ELEMENTS} elements; lower batching.max_events"
        raise OutputMismatch(f"the answers to {events} events have {elements} elements; {hint}")
    return columns


def _sizes(column: NDArray[Any]) -> NDArray[np.int64]:
    """Return the number of elements in the answer to each event, as an array (B,)."""
    if is_ragged(column):
        return np.fromiter((row.size for row in column), np.int64, len(column))
    return np.full(len(column), column.size // max(1, len(column)), np.int64)


def largest_indices(rows: NDArray[Any], count: int) -> NDArray[np.intp]:
    """Return the indices (B, count) of the `count` largest numbers in each of the rows (B, n), in descending order.

    Equal numbers are in the order of their indices.
    """
    if count >= rows.shape[1]:
        return _descending(rows)
    bound = np.partition(rows, -count, axis=1)[:, -count, np.newaxis]
    candidates = rows >= bound
    alone = candidates.sum(axis=1) == count
    places = np.empty((len(rows), count), np.intp)
    chosen = np.nonzero(candidates[alone])[1].reshape(-1, count)
    order = _descending(np.take_along_axis(rows[alone], chosen, axis=1))
    places[alone] = np.take_along_axis(chosen, order, axis=1)
    places[~alone] = _descending(rows[~alone])[:, :count]  # equal numbers at the bound, or NaN
    return places


def read_scores(signature: Signature, outputs: Mapping[str, NDArray[Any]]) -> list[Any]:
    """Return the score of each event in the form of a score record. Raises OutputMismatch."""
    columns = read_outputs(signature, outputs)
    scores = {output.name: _values(signature, output, columns[output.name]) for output in signature.outputs}
    if list(scores) == [None]:
        return scores[None]
    return [dict(zip(scores, row, strict=True)) for row in zip(*scores.values(), strict=True)]


def _values(signature: Signature, output: Output, column: NDArray[Any]) -> list[Any]:
    if is_ragged(column):
        return [row.tolist() for row in column]
    if not output.top:
        return list(column.tolist())
    labels = signature.labels_of(output)
    places = largest_indices(column, output.top)
    scores = np.take_along_axis(column, places, axis=1)
    pairs = zip(places.tolist(), scores.tolist(), strict=True)
    return [[{"label": labels[at], "score": score} for at, score in zip(*pair, strict=True)] for pair in pairs]


def _column(signature: Signature, output: Output, values: NDArray[Any]) -> NDArray[Any]:
    """Return the values that one output reads from its tensor `values`, for a batch. Raises OutputMismatch."""
    column = _ragged_column(signature, output, values) if is_ragged(values) else _dense_column(signature, output, values)
    decides = isinstance(signature.decision, Decision) and output is signature.decided
    if decides and (column.ndim != 1 or is_ragged(column)):
        shape = "several shapes" if is_ragged(values) else f"shape {values.shape}"
        fault = f"the signature has a decision, but the score is not a single number: output {output.tensor!r} has {shape}"
        raise OutputMismatch(f"{fault}; give output.index")
    return column


def _ragged_column(signature: Signature, output: Output, values: NDArray[Any]) -> NDArray[Any]:
    """Return the values that one output reads from (B,) answers of different shapes. Raises OutputMismatch."""
    if signature.rank(output) == 1 and output.shape is None:  # a column, or one for each label
        rows = [_dense_column(signature, output, row[np.newaxis]) for row in values]
        return np.concatenate(rows)
    if output.shape is None:
        numbers = np.empty(len(values), object)
        for at, row in enumerate(values):
            numbers[at] = row.reshape(()) if row.size == 1 else row
        return numbers
    for row in values:
        if not may_be_equal(row.shape, output.shape):
            raise OutputMismatch(
                f"output {output.tensor!r} has shape {row.shape} for an event, but the signature states {list(output.shape)}"
            )
    return values


def _dense_column(signature: Signature, output: Output, values: NDArray[Any]) -> NDArray[Any]:
    if output.index is not None:
        if values.ndim < 2 or output.index >= values.shape[1]:
            raise OutputMismatch(
                f"output {output.tensor!r} has shape {values.shape}, but the signature reads column {output.index} "
                "(counted from 0)"
            )
        return values[:, output.index]
    if output.top or (isinstance(signature.decision, Argmax) and output is signature.decided):
        return _classes(output, values, len(signature.labels_of(output)))
    if output.shape is None:
        return values.reshape(len(values)) if values.size == len(values) else values
    if output.shape == () and values.size == len(values):
        return values.reshape(len(values))
    if not may_be_equal(values.shape[1:], output.shape):
        raise OutputMismatch(
            f"output {output.tensor!r} has shape {values.shape}, but the signature states {format_shape((None, *output.shape))}"
        )
    return values


def _classes(output: Output, values: NDArray[Any], labels: int) -> NDArray[Any]:
    """Check that an output has rows (B, labels) of numbers, one for each label, and return them. Raises OutputMismatch."""
    if values.dtype.kind not in "iuf" or values.shape[1:] != (labels,):
        kind = "string" if values.dtype.kind == "O" else values.dtype.name
        raise OutputMismatch(
            f"output {output.tensor!r} is {kind} of shape {values.shape}, not rows of {labels} numbers, one a label"
        )
    return values


def _descending(rows: NDArray[Any]) -> NDArray[np.intp]:
    """Return the indices that sort each row in descending order; equal numbers are in the order of their indices."""
    backwards = np.argsort(rows[:, ::-1], axis=1, kind="stable")
    places: NDArray[np.intp] = (rows.shape[1] - 1 - backwards)[:, ::-1]
    return places
