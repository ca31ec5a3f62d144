"""What a model is given: rows as events give them, put into the shapes of its tensors, and the constants beside them."""

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
    """The tensors of one signature. `fixed` are constants that have no batch dimension, by name: the same for every batch.

    Rows whose lengths vary are those of one run: see `LengthPlan.plan`."""

    def __init__(self, signature: Signature) -> None:
        self._lengths = LengthPlan(signature) if signature.varies else None
        self._alone = [one.tensor for one in signature.inputs if one.value is None and not one.batch]
        constants = [one for one in signature.inputs if one.value is not None]
        self._shapes = {one.tensor: one.shape for one in signature.fed if one.shape is not None and not one.varies}
        self._repeated = {one.tensor: _constant(one)[np.newaxis] for one in constants if one.batch}
        self.constants: Tensors = {one.tensor: _constant(one) for one in constants if not one.batch}

    def batch_tensors(self, flat: Tensors) -> Tensors:
        """Every tensor but `fixed`, of (B, n) rows by tensor name; of one row where a tensor of events has no batch dimension.
        Reshapes without a copy."""
        if self._lengths is not None:
            flat = self._lengths.pad(flat)
        if not self._shapes and not self._repeated:
            return self._single(flat)
        count = len(next(iter(flat.values())))
        shaped = flat | {name: flat[name].reshape(count, *shape) for name, shape in self._shapes.items()}
        return self._single(shaped) | {name: np.repeat(row, count, axis=0) for name, row in self._repeated.items()}

    def _single(self, rows: Tensors) -> Tensors:
        """The tensors without a batch dimension as what their one event gives."""
        return rows | {name: rows[name].reshape(rows[name].shape[1:]) for name in self._alone} if self._alone else rows

    def all_tensors(self, flat: Tensors) -> Tensors:
        """All tensors, of (B, n) rows by tensor name."""
        found = self.batch_tensors(flat)
        return found | self.constants if self.constants else found


def neutral_rows(signature: Signature) -> Tensors:
    """One (1, n) row of zeros or empty strings for each tensor that events feed; of the largest length where that varies."""
    return {one.tensor: _neutral(one) for one in signature.fed}


def ragged(rows: Iterable[NDArray[Any]], count: int) -> NDArray[Any]:
    """(B,) of `count` rows, each an array of its own."""
    return np.fromiter(rows, object, count)


def array_from_bytes(data: bytes, field: InputField) -> NDArray[Any]:
    """(n,) numbers of the good bytes of a field, without a copy; in the field's shape where their length varies."""
    stored = np.dtype(field.dtype).newbyteorder("<")
    found = np.frombuffer(data, stored).astype(field.dtype, copy=False)
    shape = field.shape or ()
    return found.reshape(with_length(shape, len(found) // step_size(shape))) if field.varies else found


def _neutral(one: TensorInput) -> NDArray[Any]:
    nothing = "" if one.dtype == "string" else 0
    if one.varies:
        return ragged([np.full(with_length(one.shape or (), one.fields[0].max_length), nothing, array_dtype(one.dtype))], 1)
    return np.full((1, one.width), nothing, array_dtype(one.dtype))


def _constant(tensor: TensorInput) -> NDArray[Any]:
    """The row of a constant."""
    dtype = array_dtype(tensor.dtype)
    if isinstance(tensor.value, tuple):
        return np.array(tensor.value, dtype)
    return np.full(tensor.row, tensor.value, dtype)
