"""Conversion of binary fields to tensors. The bytes are copied at once, without a Python object for each number."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_registry.package import binary_fields, field_sources
from model_registry.package.dtypes import array_dtype
from model_registry.package.model_inputs import array_from_bytes, ragged
from model_registry.package.signature import InputField
from scorer.dead_letters.reasons import Poison, Reason
from scorer.native.byte_columns import ByteColumn


class BinaryField:
    """Converter of one binary field, whose value consists of the bytes of little-endian numbers or of a UTF-8 text."""

    def __init__(self, field: InputField) -> None:
        self._field = field
        self._stored = np.dtype("O" if field.dtype == "string" else field.dtype).newbyteorder("<")

    def tensor(self, rows: Sequence[bytes | None]) -> NDArray[Any]:
        """Convert the bytes of B rows to a tensor; None stands for an absent value.

        Returns:
            (B, n) for n numbers per row; (B, 1) for a text; a (B,) object array of arrays if the rows vary in length.

        Raises:
            ValueError: the bytes of a row do not match the field.
            TypeError: the value of a row is absent, and the field is required.
        """
        field = self._field
        filled = [self._absent if row is None else row for row in rows]
        if fault := next(filter(None, (binary_fields.find_fault(row, field) for row in filled)), None):
            raise ValueError(fault)
        if field.dtype == "string":
            texts = np.empty((len(filled), 1), object)
            texts[:, 0] = [row.decode() for row in filled]
            return texts
        if field.varies:
            return ragged((array_from_bytes(row, field) for row in filled), len(filled))
        return self._rows(np.frombuffer(bytearray().join(filled), np.uint8), len(filled))

    def view(self, texts: ByteColumn) -> NDArray[Any] | None:
        """Return the tensor as a view of the column's memory; None if the rows are not contiguous or need a conversion."""
        size = binary_fields.size(self._field) if self._field.dtype != "string" else 0
        count = len(texts)
        if not size or not count or texts.nulls is not None or self._stored.kind == "b" or self._field.varies:
            return None
        if texts.starts[0] or not texts.is_packed or (texts.lengths() != size).any():
            return None
        return self._rows(texts.text[: count * size], count)

    def poison(self, value: Any) -> Poison | None:
        """Return the error (Poison) for bytes that do not match the field; None if they match, or if the value is not bytes."""
        fault = binary_fields.find_fault(value, self._field) if isinstance(value, bytes) else None
        reason = Reason.NOT_UTF8 if self._field.dtype == "string" else Reason.WRONG_TYPE
        return Poison(reason, f"field {field_sources.qualified_name(self._field)}: {fault}") if fault else None

    def _rows(self, data: NDArray[np.uint8], count: int) -> NDArray[Any]:
        numbers = data.view(self._stored).reshape(count, self._field.array or 1)
        return numbers.astype(array_dtype(self._field.dtype), copy=False)

    @cached_property
    def _absent(self) -> bytes:
        """The bytes of the field's default, which replace an absent value. Raises TypeError if the field is required."""
        field = self._field
        if field.required:
            raise TypeError(f"field {field.name!r} is absent")
        if field.dtype == "string":
            return str(field.default).encode()
        if field.varies:
            return b""
        return np.full(field.array or 1, field.default, self._stored).tobytes()
