"""Conversion of event values to integers. A number without a fraction is an integer in every notation (`7.0`, `1e3`, `-0.0`).

The module `struct` packs all values in one call, and raises an error if one of them is a float. Therefore only a batch with
such an error is checked value by value.
"""

import contextlib
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_registry.package.dtypes import INTEGER_LIMITS, event_fault
from scorer.dead_letters.reasons import Reason

PACK_CODES = {"int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q"}
"""Format codes of Python's module `struct` by dtype."""
EXACT = 2.0**53
"""Limit below which float64 represents every integer exactly."""


def packed(values: Sequence[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Convert numbers, or nested lists of numbers, to an integer array of the same shape.

    Raises:
        ValueError, TypeError or OverflowError: A value is not a number, has a fraction, or does not fit the dtype.
    """
    try:
        return np.frombuffer(struct.pack(f"<{len(values)}{PACK_CODES[dtype.name]}", *values), dtype)
    except struct.error:  # a float, a list, or an integer beyond the dtype
        return converted(values, dtype)


def converted(values: Sequence[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Convert values that `struct` cannot pack. The result and the errors are the same as for `packed`.

    If the absolute values of all numbers are below EXACT, numpy converts them in one step. Otherwise they are converted one by
    one.
    """
    low, high = INTEGER_LIMITS[dtype.name]
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        floats = np.array(values, np.float64)
        small = np.abs(floats, where=np.isfinite(floats), out=np.full(floats.shape, np.inf)) < EXACT
        if floats.size and small.all() and (np.trunc(floats) == floats).all() and low <= floats.min() and floats.max() <= high:
            return floats.astype(dtype)
    return np.array(integers(values, dtype.name), dtype)


def integers(value: Any, dtype: str) -> Any:
    """Convert a number without a fraction, or each number of nested lists, to an int.

    Raises ValueError, TypeError or OverflowError if a value is not a number, has a fraction, or does not fit the dtype.
    """
    if isinstance(value, list | tuple):
        return [integers(element, dtype) for element in value]
    if event_fault(value, dtype):
        raise OverflowError(value) if is_integral(value) else ValueError(value)
    return int(value)


def is_integral(value: object) -> bool:
    """Return whether a value is a number without a fraction."""
    return type(value) is int or (isinstance(value, float) and value.is_integer())


def fault(value: object, dtype: str) -> tuple[Reason, str] | None:
    """Return the reason and the error text for a value that is not valid for the integer type `dtype`.

    Returns:
        (reason, error text); None if the value is valid, or if `dtype` is not an integer type.
    """
    error = event_fault(value, dtype) if dtype in INTEGER_LIMITS else None
    if error is None:
        return None
    if is_integral(value):
        return Reason.OUT_OF_RANGE, error
    return Reason.WRONG_TYPE, f"Expected `int`, got `{type(value).__name__}`"


def row_packer(dtype: str, count: int) -> struct.Struct:
    """Create a `struct.Struct` for `count` integers of the dtype.

    Its method `pack` raises struct.error for a value that is not an integer within the dtype's range.
    """
    return struct.Struct(f"<{count}{PACK_CODES[dtype]}")
