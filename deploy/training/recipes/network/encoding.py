"""The encoding of a network's inputs: numbers are standardized, and the strings of a column (names) become indices.

A missing number (NaN) becomes the median of its column. Numbers are clipped to ten standard deviations around the mean. A rare
name is unknown and has index 0.
"""

# The encoding is derived from the training rows in float64. A column that is constant, or has no finite number, becomes zeros.
# A name is rare if it occurs fewer than `RARE` times, or is not among the `MAX_NAMES` most frequent names of its column.

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from model_registry.package.signature import Signature

RARE = 5
MAX_NAMES = 10_000
DEVIATIONS = 10.0
STRING = "string"
Floats = tuple[float, ...]


class Numbers(msgspec.Struct, frozen=True):
    """The standardization of a numeric tensor with n columns; each attribute is a tuple with one value per column.

    A number x becomes (min(max(x, low), high) - mean) * scale. A NaN is first replaced by `median`.
    """

    tensor: str
    median: Floats
    low: Floats
    high: Floats
    mean: Floats
    scale: Floats


class ColumnCategories(msgspec.Struct, frozen=True):
    """The known names of each column of a string tensor. A name's index is its position in `known`, counted from 1."""

    tensor: str
    known: tuple[tuple[str, ...], ...]


class TensorEncodings(msgspec.Struct, frozen=True):
    """The encodings of the numeric tensors and of the string tensors, both in the order of the signature."""

    numbers: tuple[Numbers, ...]
    names: tuple[ColumnCategories, ...]

    @property
    def width(self) -> int:
        """The number of numeric columns of all tensors."""
        return sum(len(numbers.mean) for numbers in self.numbers)

    @property
    def vocabularies(self) -> list[tuple[str, ...]]:
        """The known names of each string column of all tensors."""
        return [vocabulary for names in self.names for vocabulary in names.known]

    def numeric(self, tensors: Mapping[str, NDArray[np.generic]]) -> NDArray[np.float32]:
        """Return the standardized numbers of all numeric columns, (B, width)."""
        parts = [_standardised(numbers, columns(tensors[numbers.tensor], np.float64)) for numbers in self.numbers]
        return np.concatenate([np.empty((_rows(tensors), 0), np.float32), *parts], axis=1)

    def named(self, tensors: Mapping[str, NDArray[np.generic]]) -> NDArray[np.int64]:
        """Return the index of the name in each string column, (B, string columns); unknown names have index 0."""
        indices = [np.empty((_rows(tensors), 0), np.int64)]
        for names in self.names:
            for column, vocabulary in zip(columns(tensors[names.tensor], np.object_).T, names.known, strict=True):
                index = {name: at for at, name in enumerate(vocabulary, 1)}
                indices.append(np.array([[index.get(name, 0)] for name in column], np.int64).reshape(-1, 1))
        return np.concatenate(indices, axis=1)


def learned(tensors: Mapping[str, NDArray[np.generic]], signature: Signature) -> TensorEncodings:
    """Derive the encoding from the tensors of the training rows."""
    numeric = [tensor.tensor for tensor in signature.fed if tensor.dtype != STRING]
    strings = [tensor.tensor for tensor in signature.fed if tensor.dtype == STRING]
    return TensorEncodings(
        tuple(_numbers(name, columns(tensors[name], np.float64)) for name in numeric),
        tuple(
            ColumnCategories(name, tuple(_vocabulary(column) for column in columns(tensors[name], np.object_).T))
            for name in strings
        ),
    )


def columns(tensor: NDArray[np.generic], dtype: type[Any]) -> NDArray[Any]:
    """Convert a tensor (B, *row) to `dtype` and flatten its rows: (B, n)."""
    return tensor.reshape(len(tensor), -1).astype(dtype)


def _rows(tensors: Mapping[str, NDArray[np.generic]]) -> int:
    return len(next(iter(tensors.values())))


def _numbers(name: str, values: NDArray[np.float64]) -> Numbers:
    statistics = np.array([_column(column) for column in values.T]).reshape(-1, 5)
    return Numbers(name, *(tuple(part.tolist()) for part in statistics.T))


def _column(values: NDArray[np.float64]) -> tuple[float, float, float, float, float]:
    """Return median, low, high, mean and scale of a column as in `Numbers`; NaN and infinite values are ignored."""
    values = values[np.isfinite(values)]
    if not len(values):
        return 0.0, 0.0, 0.0, 0.0, 0.0
    median = float(np.median(values))
    with np.errstate(over="ignore", invalid="ignore"):
        mean = float(values.mean())
        deviation = float(values.std())
        reach = DEVIATIONS * deviation
        limits = mean - reach, mean + reach
    if values.min() == values.max() or not deviation or not np.isfinite([1 / deviation, *limits]).all():
        return median, 0.0, 0.0, 0.0, 0.0
    return median, *limits, mean, 1 / deviation


def _standardised(numbers: Numbers, values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Standardize values (B, n)."""
    # The operations are those of the ONNX graph (`to_onnx.py`), so that both results are equal bit for bit.
    values = np.where(np.isnan(values), np.array(numbers.median), values)
    values = np.minimum(np.maximum(values, np.array(numbers.low)), np.array(numbers.high))
    standardised: NDArray[np.float32] = ((values - np.array(numbers.mean)) * np.array(numbers.scale)).astype(np.float32)
    return standardised


def _vocabulary(column: NDArray[np.object_]) -> tuple[str, ...]:
    counts = Counter(column.tolist())
    frequent = sorted((name for name, count in counts.items() if count >= RARE), key=lambda name: (-counts[name], name))
    return tuple(sorted(filter(_storable, frequent[:MAX_NAMES])))


def _storable(name: str) -> bool:
    """Return whether ONNX can store the name. It must have no lone surrogate, which UTF-8 cannot encode."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)
