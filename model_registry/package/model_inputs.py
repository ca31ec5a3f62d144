"""Builds the input tensors of a model from the decoded rows of events and the signature's constants."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_registry.package.dtypes import array_dtype
from model_registry.package.padding import LengthPlan
from model_registry.package.shapes import step_size, with_length
from model_registry.package.signature import InputField, Signature, TensorInput

Tensors = dict[str, NDArray[Any]]


class InputAssembler:
    """Assembles the input tensors of a model for each batch, by its signature.

    For tensors of varying length, the caller first divides a batch with `LengthPlan.plan` into groups of events that one call
    of the model can take, and then passes each group as a batch.

    Attributes:
        constants: The constant tensors without a batch dimension, by name; they are the same for every batch.
    """

    def __init__(self, signature: Signature) -> None:
        self._lengths = LengthPlan(signature) if signature.varies else None
        self._alone = [tensor.tensor for tensor in signature.inputs if tensor.value is None and not tensor.batch]
        constants = [tensor for tensor in signature.inputs if tensor.value is not None]
        self._shapes = {
            tensor.tensor: tensor.shape for tensor in signature.fed if tensor.shape is not None and not tensor.varies
        }
        self._repeated = {tensor.tensor: _constant(tensor)[np.newaxis] for tensor in constants if tensor.batch}
        self.constants: Tensors = {tensor.tensor: _constant(tensor) for tensor in constants if not tensor.batch}

    def batch_tensors(self, flat: Tensors) -> Tensors:
        """Return the model's input tensors for a batch, by name, without those in `constants`.

        Args:
            flat: The decoded (B, n) rows by tensor name; B is 1 if the model takes one event at a time. The rows are reshaped
                without a copy.
        """
        if self._lengths is not None:
            flat = self._lengths.pad(flat)
        if not self._shapes and not self._repeated:
            return self._single(flat)
        count = len(next(iter(flat.values())))
        shaped = flat | {name: flat[name].reshape(count, *shape) for name, shape in self._shapes.items()}
        return self._single(shaped) | {name: np.repeat(row, count, axis=0) for name, row in self._repeated.items()}

    def _single(self, rows: Tensors) -> Tensors:
        """Remove the batch dimension, of size 1, from the tensors that have no batch dimension in the model."""
        return rows | {name: rows[name].reshape(rows[name].shape[1:]) for name in self._alone} if self._alone else rows

    def all_tensors(self, flat: Tensors) -> Tensors:
        """Return all input tensors for a batch by name, those in `constants` included; see `batch_tensors`."""
        tensors = self.batch_tensors(flat)
        return tensors | self.constants if self.constants else tensors


def neutral_rows(signature: Signature) -> Tensors:
    """Return a row (1, n) of zeros or empty strings for each tensor with fields, by name.

    A row of varying length has the largest length.
    """
    return {tensor.tensor: _neutral(tensor) for tensor in signature.fed}


def ragged(rows: Iterable[NDArray[Any]], count: int) -> NDArray[Any]:
    """Return the rows of a batch as an object array of shape (count,) whose elements are the arrays of the rows."""
    return np.fromiter(rows, object, count)


def array_from_bytes(data: bytes, field: InputField) -> NDArray[Any]:
    """Return the numbers in the valid bytes of a field, without a copy.

    The result is a flat array (n,). If the length of the field varies, the result has the shape of the field.
    """
    stored = np.dtype(field.dtype).newbyteorder("<")
    numbers = np.frombuffer(data, stored).astype(field.dtype, copy=False)
    shape = field.shape or ()
    return numbers.reshape(with_length(shape, len(numbers) // step_size(shape))) if field.varies else numbers


def _neutral(tensor: TensorInput) -> NDArray[Any]:
    zero = "" if tensor.dtype == "string" else 0
    if tensor.varies:
        return ragged(
            [np.full(with_length(tensor.shape or (), tensor.fields[0].max_length), zero, array_dtype(tensor.dtype))], 1
        )
    return np.full((1, tensor.width), zero, array_dtype(tensor.dtype))


def _constant(tensor: TensorInput) -> NDArray[Any]:
    """Return the row of a constant tensor, without a batch dimension."""
    dtype = array_dtype(tensor.dtype)
    if isinstance(tensor.value, tuple):
        return np.array(tensor.value, dtype)
    return np.full(tensor.row, tensor.value, dtype)
