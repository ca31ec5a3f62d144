"""Encode the input tensors of a model as a matrix of numbers, with one column for each number in a row.

Strings are categories. They are numbered in ascending order of a mean over their training rows. For two classes, the mean is
the share of the second class. For more classes, it is the share of all classes but the most frequent one. For a regression, it
is the mean label. One split of a tree can then separate the categories with low means from the categories with high means.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_registry.package.signature import InputField, Signature, TensorInput
from training.snapshot.target import Target

Matrix = NDArray[np.float64]
UNKNOWN = -1.0  # the number of a category that the training rows did not have


@dataclass(frozen=True, slots=True)
class EncodedColumn:
    """A column of the encoded matrix.

    Attributes:
        tensor: The tensor that contains the values.
        place: The index of the value in the tensor's flattened row.
        names: The categories of a string column, in the order of their numbers; None for a numeric column.
    """

    tensor: str
    place: int
    names: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Gap:
    """A field whose value may be missing or a new category.

    Attributes:
        field: The name of the field.
        columns: The field's columns in the matrix.
        value: The number that stands for a missing value or a new category.
    """

    field: str
    columns: tuple[int, ...]
    value: float


@dataclass(frozen=True, slots=True)
class MatrixEncoding:
    """The encoding of tensors as a matrix: the columns of the matrix in order."""

    columns: tuple[EncodedColumn, ...]

    def matrix(self, tensors: Mapping[str, NDArray[Any]]) -> Matrix:
        """Encode tensors of shape (B, ...), by name, as a matrix of shape (B, number of columns)."""
        count = len(next(iter(tensors.values())))
        flat = {name: tensor.reshape(count, -1) for name, tensor in tensors.items()}
        matrix = np.empty((count, len(self.columns)))
        for at, column in enumerate(self.columns):
            values = flat[column.tensor][:, column.place]
            matrix[:, at] = values if column.names is None else _numbered(values, column.names)
        return matrix


def learned(tensors: Mapping[str, NDArray[Any]], ordering: NDArray[Any], signature: Signature) -> MatrixEncoding:
    """Derive the encoding from training rows. `ordering` (B,) is the result of `ordering_numbers` for these rows.

    The categories of a column are numbered in ascending order of their mean ordering number, then by name.
    """
    columns = []
    for tensor in signature.fed:
        flat = tensors[tensor.tensor].reshape(len(ordering), -1)
        for place in range(tensor.width):
            names = _by_mean(flat[:, place], ordering) if tensor.dtype == "string" else None
            columns.append(EncodedColumn(tensor.tensor, place, names))
    return MatrixEncoding(tuple(columns))


def gaps(signature: Signature) -> Iterator[Gap]:
    """Yield the fields whose value may be missing (optional numbers) or a new category (strings)."""
    first: dict[str, int] = {}
    width = 0
    for tensor in signature.fed:
        first[tensor.tensor] = width
        width += tensor.width
    for field in signature.fields:
        if field.dtype == "string" or not field.required:
            fed = [first[tensor.tensor] + at for tensor in signature.fed for at in _places(tensor, field)]
            value = UNKNOWN if field.dtype == "string" else float(field.default or 0)
            yield Gap(field.name, tuple(fed), value)


def _places(tensor: TensorInput, field: InputField) -> list[int]:
    """Return the indices of a field's values in the row of a tensor; an empty list if the tensor does not contain the field."""
    at = [place for place, candidate in enumerate(tensor.fields) if candidate.name == field.name]
    return list(range(tensor.width)) if at and field.array is not None else at


def _numbered(values: NDArray[Any], names: tuple[str, ...]) -> Matrix:
    numbers = {name: float(number) for number, name in enumerate(names)}
    return np.fromiter((numbers.get(value, UNKNOWN) for value in values.tolist()), np.float64, len(values))


def ordering_numbers(target: Target, outcomes: NDArray[Any]) -> NDArray[Any]:
    """Return a number for each row, (B,). Categories are ordered by the mean of this number over their rows.

    The number is the outcome. For K classes, it is 0 for rows of the most frequent class and 1 for other rows.
    """
    if target.kind != "classes":
        return outcomes
    return np.asarray(outcomes != np.bincount(outcomes).argmax(), np.int8)


def _by_mean(values: NDArray[Any], ordering: NDArray[Any]) -> tuple[str, ...]:
    names = sorted(set(values.tolist()))
    numbers = _numbered(values, tuple(names)).astype(np.intp)
    mean = np.bincount(numbers, ordering) / np.bincount(numbers)
    return tuple(names[at] for at in np.argsort(mean, kind="stable").tolist())
