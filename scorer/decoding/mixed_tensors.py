"""Assembly of tensors whose fields are decoded in two places, such as fields of the event and fields of headers or tables."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_registry.package.dtypes import array_dtype
from model_registry.package.padding import LengthPlan
from model_registry.package.signature import InputField, Signature, TensorInput
from scorer.dead_letters.reasons import Poison, Reason
from scorer.decoding.tensors import select
from scorer.decoding.types import Decoded

Columns = Mapping[str, NDArray[Any]]
"""The values of fields by field name: (B, 1) for a scalar, (B, n) for an array, (B,) objects for an array of varying length."""


class TensorAssembler:
    """Assembler that adds the columns of some fields to the decoded tensors of the other fields.

    Args:
        signature: the signature of all fields.
        is_added: a function that returns whether a field is added. Each decoded tensor contains only the other fields, in the
            order of the signature. There is no decoded tensor if all its fields are added.
    """

    def __init__(self, signature: Signature, is_added: Callable[[InputField], bool]) -> None:
        self._mixed = [_MixedTensor(tensor, is_added) for tensor in signature.fed if any(map(is_added, tensor.fields))]
        self._lengths = LengthPlan(signature) if signature.varies else None

    def add(self, decoded: Decoded, columns: Columns) -> Decoded:
        """Add columns, with one row for each valid event, to the tensors of a batch.

        An event is rejected if arrays that must have the same length differ in length.
        """
        for tensor in self._mixed:
            decoded.tensors[tensor.name] = tensor.assemble(decoded.tensors, columns)
        if self._lengths is None or not (unequal := self._lengths.mismatches(decoded.tensors)):
            return decoded
        decoded.rejected |= {decoded.rows[index]: Poison(Reason.WRONG_TYPE, error) for index, error in unequal.items()}
        return select(decoded, [index for index in range(len(decoded.rows)) if index not in unequal])


class _MixedTensor:
    """A tensor with at least one field that is not decoded with the tensor's other fields, but added later."""

    def __init__(self, tensor: TensorInput, is_added: Callable[[InputField], bool]) -> None:
        self.name = tensor.tensor
        self._width = len(tensor.fields)
        self._dtype = array_dtype(tensor.dtype)
        self._first = tensor.fields[0].name
        self._added = [(column, field.name) for column, field in enumerate(tensor.fields) if is_added(field)]
        self._decoded = _as_slice([column for column, field in enumerate(tensor.fields) if not is_added(field)])

    def assemble(self, decoded: Columns, columns: Columns) -> NDArray[Any]:
        """Return the tensor, assembled from the decoded tensors and the added columns."""
        if self._width == 1:
            return columns[self._first]
        assembled = np.empty((len(columns[self._added[0][1]]), self._width), self._dtype)
        if self._decoded:
            assembled[:, self._decoded] = decoded[self.name]
        for column, field in self._added:
            assembled[:, column] = columns[field][:, 0]
        return assembled


def _as_slice(columns: list[int]) -> slice | list[int]:
    """Return the indices as a slice, which numpy assigns faster, if they are consecutive; otherwise unchanged."""
    if columns and columns == list(range(columns[0], columns[0] + len(columns))):
        return slice(columns[0], columns[0] + len(columns))
    return columns
