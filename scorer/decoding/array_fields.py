"""Conversion and checks of array fields that have a shape.

An event contains such an array either as nested lists, or as one flat list of the elements in row-major order.
"""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from model_registry.package.dtypes import FLOAT_LIMITS, INTEGER_LIMITS, array_dtype, event_fault
from model_registry.package.model_inputs import ragged
from model_registry.package.shapes import VARIES, array_fault, is_nested, length_in, with_length
from model_registry.package.signature import InputField
from scorer.dead_letters.reasons import Poison, Reason
from scorer.decoding import decimals
from scorer.decoding.integers import is_integral, packed

SHOWN = 200  # maximum number of characters of an element's error text in a message


class ShapedArrays:
    """Builder of a tensor from the arrays of one field that has a fixed shape."""

    def __init__(self, field: InputField) -> None:
        element = element_type(field.dtype)
        self._field = field
        self._dtype = np.dtype(array_dtype(field.dtype))
        self._types = {nested: array_type(shape, element) for nested, shape in ((False, (field.array,)), (True, field.shape))}

    def tensor(self, rows: Sequence[list[Any]]) -> NDArray[Any]:
        """Convert B lists, flat or nested, to a (B, n) tensor. n is the number of elements of each list.

        Raises ValueError, TypeError or OverflowError if a list does not fit the field.
        """
        if not rows:
            return np.empty((0, self._field.array or 0), self._dtype)
        return np.stack([self._row(row) for row in rows])

    def _row(self, value: list[Any]) -> NDArray[Any]:
        converted = converted_list(value, self._types[is_nested(value)], len(self._field.shape or ()))
        return as_array(converted, self._dtype).reshape(self._field.array or 0)

    def poison(self, value: Any) -> Poison | None:
        """Return the error (Poison) for an invalid array; None if the array is valid. See `array_poison`."""
        return array_poison(self._field, value)


class VariableLengthArrays:
    """Builder of a tensor from the arrays of one field whose shape has a dimension of varying length.

    The tensor is an object array with one array per row.
    """

    def __init__(self, field: InputField) -> None:
        self._shape = field.shape or ()
        self._longest = field.max_length
        self._element = element_type(field.dtype)
        self._flat = list[self._element]  # type: ignore[name-defined]  # a type made at run time
        self._dtype = np.dtype(array_dtype(field.dtype))

    def rows(self, values: Sequence[Any]) -> NDArray[Any]:
        """Convert B lists or float64 buffers to a (B,) object array. Each element is the array of one row.

        Raises ValueError, TypeError or OverflowError if a value does not fit the field.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            return ragged(map(self._row, values), len(values))

    def _row(self, value: Any) -> NDArray[Any]:
        """Convert a list or a float64 buffer to an array of the field's shape; None becomes an empty array."""
        array = [] if value is None else value if isinstance(value, list) else np.frombuffer(value, "<f8")
        length = length_in(array, self._shape)
        if length is None or length > self._longest:
            raise ValueError(f"the value is not an array of the shape {list(self._shape)}")
        exact = with_length(self._shape, length)
        if isinstance(array, list):
            nested = len(exact) > 1 and is_nested(array)
            array = converted_list(array, array_type(exact, self._element) if nested else self._flat, len(exact))
        return as_array(array, self._dtype).reshape(exact)


def array_poison(field: InputField, value: Any) -> Poison | None:
    """Return the error (Poison) for an invalid array. The error names the field and the position of the invalid element.

    Returns:
        None if the array is valid, or if the value is not a list.
    """
    if not isinstance(value, list):
        return None
    if field.dtype not in ("string", "bool"):
        value = decimals.to_plain_numbers(value, len(field.shape or (1,)))
    fault = array_fault(value, field.array or 0, field.shape, lambda element: _element_fault(element, field.dtype))
    if fault is None:
        return None
    position, error_text, at_fault = fault
    number = isinstance(at_fault, int | float) and not isinstance(at_fault, bool)
    ranged = (is_integral(at_fault) and field.dtype in INTEGER_LIMITS) or (number and field.dtype in FLOAT_LIMITS)
    hint = decimals.hint(at_fault) if field.dtype not in ("string", "bool") else ""
    error = f"field {field.name!r}{position}: {error_text:.{SHOWN}}{hint}"
    return Poison(Reason.OUT_OF_RANGE if ranged else Reason.WRONG_TYPE, error)


def converted_list(value: list[Any], type_: Any, levels: int) -> Any:
    """Convert a list with `levels` levels of nesting to the msgspec type `type_`.

    Each VariableScaleDecimal (Debezium's object with the bytes and the scale of a decimal) becomes a number. Raises ValueError
    if the list does not match the type.
    """
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError:
        return msgspec.convert(decimals.to_plain_numbers(value, levels), type_)


def as_array(values: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Convert a list, flat or nested, to an array. Raises ValueError, TypeError or OverflowError."""
    return packed(values, dtype) if dtype.kind in "iu" else np.array(values, dtype)


def element_type(dtype: str) -> Any:
    """Return the msgspec type that accepts the values of a dtype.

    The type for 64-bit integers has no limits, because msgspec does not accept such large limits. The types for integers also
    accept floats, because 7.0 counts as an integer. The function `integers` later rejects floats with a fraction.
    """
    kind = np.dtype(array_dtype(dtype)).kind
    if (type_ := {"O": str, "f": float, "b": bool}.get(kind)) is not None:
        return type_
    low, high = INTEGER_LIMITS[dtype]
    return (Annotated[int, msgspec.Meta(ge=low, le=high)] if np.dtype(dtype).itemsize < 8 else int) | float


def array_type(shape: Any, element: Any) -> Any:
    """Return the msgspec type of nested lists with exactly this shape. A dimension of varying length accepts every length."""
    for length in reversed(shape):
        limits = msgspec.Meta() if length == VARIES else msgspec.Meta(min_length=length, max_length=length)
        element = Annotated[list[element], limits]
    return element


def _element_fault(value: object, dtype: str) -> str | None:
    """Return the error text of a value that is not a valid element; None if the element is valid.

    NaN and infinities are accepted here, because a later check of the finished tensor finds them.
    """
    if type(value) is float and dtype in FLOAT_LIMITS:
        return None
    if dtype in FLOAT_LIMITS and isinstance(value, int | float) and not isinstance(value, bool):
        try:
            float(value)
        except OverflowError:
            return f"the whole number is beyond {dtype}"
        return None
    return event_fault(value, dtype)


def not_finite_arrays(rows: NDArray[Any]) -> NDArray[np.intp]:
    """Return the indices of the arrays that contain an infinity or NaN; `rows` is a (B,) array of float arrays."""
    if not len(rows) or np.isfinite(np.concatenate([row.reshape(-1) for row in rows])).all():
        return np.empty(0, np.intp)
    return np.flatnonzero([not np.isfinite(row).all() for row in rows])
