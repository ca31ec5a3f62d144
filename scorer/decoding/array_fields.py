"""Array fields that have a shape: an event carries their elements flat, row by row, or nested as the shape says."""

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

SHOWN = 200  # characters of a fault


class ShapedArrays:
    """The arrays of one field, which has a shape."""

    def __init__(self, field: InputField) -> None:
        element = element_type(field.dtype)
        self._field = field
        self._dtype = np.dtype(array_dtype(field.dtype))
        self._types = {nested: array_type(shape, element) for nested, shape in ((False, (field.array,)), (True, field.shape))}

    def tensor(self, rows: Sequence[list[Any]]) -> NDArray[Any]:
        """Return the flat elements of each list as (B, n). Raises ValueError, TypeError or OverflowError."""
        if not rows:
            return np.empty((0, self._field.array or 0), self._dtype)
        return np.stack([self._row(row) for row in rows])

    def _row(self, value: list[Any]) -> NDArray[Any]:
        converted = converted_list(value, self._types[is_nested(value)], len(self._field.shape or ()))
        return as_array(converted, self._dtype).reshape(self._field.array or 0)

    def poison(self, value: Any) -> Poison | None:
        """What is wrong with an array: see `array_poison`."""
        return array_poison(self._field, value)


class VariableLengthArrays:
    """The arrays of one field."""

    def __init__(self, field: InputField) -> None:
        self._shape = field.shape or ()
        self._longest = field.max_length
        self._element = element_type(field.dtype)
        self._flat = list[self._element]  # type: ignore[name-defined]  # a type made at run time
        self._dtype = np.dtype(array_dtype(field.dtype))

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
        exact = with_length(self._shape, length)
        if isinstance(found, list):
            nested = len(exact) > 1 and is_nested(found)
            found = converted_list(found, array_type(exact, self._element) if nested else self._flat, len(exact))
        return as_array(found, self._dtype).reshape(exact)


def array_poison(field: InputField, value: Any) -> Poison | None:
    """What is wrong with an array: the field, the place, and what was expected. None: nothing, or it is no list."""
    if not isinstance(value, list):
        return None
    if field.dtype not in ("string", "bool"):
        value = decimals.plain(value, len(field.shape or (1,)))
    found = array_fault(value, field.array or 0, field.shape, lambda one: _element_fault(one, field.dtype))
    if found is None:
        return None
    place, said, at_fault = found
    number = isinstance(at_fault, int | float) and not isinstance(at_fault, bool)
    ranged = (is_integral(at_fault) and field.dtype in INTEGER_LIMITS) or (number and field.dtype in FLOAT_LIMITS)
    hint = decimals.hint(at_fault) if field.dtype not in ("string", "bool") else ""
    error = f"field {field.name!r}{place}: {said:.{SHOWN}}{hint}"
    return Poison(Reason.OUT_OF_RANGE if ranged else Reason.WRONG_TYPE, error)


def converted_list(value: list[Any], type_: Any, levels: int) -> Any:
    """Return a list of so many levels as msgspec's type; its elements may be decimals with their scale. Raises ValueError."""
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError:
        return msgspec.convert(decimals.plain(value, levels), type_)


def as_array(values: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """A list, flat or nested, as an array. Raises ValueError, TypeError or OverflowError."""
    return packed(values, dtype) if dtype.kind in "iu" else np.array(values, dtype)


def element_type(dtype: str) -> Any:
    """The msgspec type of a value of a dtype. Integers of 64 bits have no limits: msgspec takes none so large. A float may be
    one, such as 7.0: `integers` decides."""
    kind = np.dtype(array_dtype(dtype)).kind
    if (type_ := {"O": str, "f": float, "b": bool}.get(kind)) is not None:
        return type_
    low, high = INTEGER_LIMITS[dtype]
    return (Annotated[int, msgspec.Meta(ge=low, le=high)] if np.dtype(dtype).itemsize < 8 else int) | float


def array_type(shape: Any, element: Any) -> Any:
    """The msgspec type of nested lists of exactly this shape; of any length where it varies."""
    for length in reversed(shape):
        limits = msgspec.Meta() if length == VARIES else msgspec.Meta(min_length=length, max_length=length)
        element = Annotated[list[element], limits]
    return element


def _element_fault(value: object, dtype: str) -> str | None:
    """Why a value is no element; floats that are not finite are found in the tensor."""
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
    """Rows of (B,) arrays of floats that hold an infinity or NaN."""
    if not len(rows) or np.isfinite(np.concatenate([row.reshape(-1) for row in rows])).all():
        return np.empty(0, np.intp)
    return np.flatnonzero([not np.isfinite(row).all() for row in rows])
