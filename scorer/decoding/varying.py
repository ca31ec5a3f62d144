"""Array fields whose length varies: each event's array as the model's shape has it, flat or nested as it comes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_registry.package.dtypes import held
from model_registry.package.model_inputs import ragged
from model_registry.package.shapes import filled, is_nested, length_in
from model_registry.package.signature import InputField
from scorer.decoding.array_fields import array_type, as_array, converted_list, element_type


class VariableLengthArrays:
    """The arrays of one field."""

    def __init__(self, field: InputField) -> None:
        self._shape = field.shape or ()
        self._longest = field.max_length
        self._element = element_type(field.dtype)
        self._flat = list[self._element]  # type: ignore[name-defined]  # a type made at run time
        self._dtype = np.dtype(held(field.dtype))

    def rows(self, values: Sequence[Any]) -> NDArray[Any]:
        """(B,) arrays, each of its own length. Raises ValueError, TypeError or OverflowError."""
        with np.errstate(over="ignore", invalid="ignore"):
            return ragged(map(self._row, values), len(values))

    def _row(self, value: Any) -> NDArray[Any]:
        """A list, or a buffer of float64, in the shape; an empty array of None."""
        found = [] if value is None else value if isinstance(value, list) else np.frombuffer(value, "<f8")
        length = length_in(found, self._shape)
        if length is None or length > self._longest:
            raise ValueError(f"no array of the shape {list(self._shape)}")
        exact = filled(self._shape, length)
        if isinstance(found, list):
            nested = len(exact) > 1 and is_nested(found)
            found = converted_list(found, array_type(exact, self._element) if nested else self._flat, len(exact))
        return as_array(found, self._dtype).reshape(exact)


def not_finite(rows: NDArray[Any]) -> NDArray[np.intp]:
    """Rows of (B,) arrays of floats that hold an infinity or NaN."""
    if not len(rows) or np.isfinite(np.concatenate([row.reshape(-1) for row in rows])).all():
        return np.empty(0, np.intp)
    return np.flatnonzero([not np.isfinite(row).all() for row in rows])
