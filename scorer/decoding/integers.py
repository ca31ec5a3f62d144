"""Integers of events: a number without a fraction counts as one in every notation (`7`, `7.0`, `1e3`, `-0.0`).

Packing rejects floats without a check of each value, so batches of plain integers cost no more. Pure functions.
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
"""Codes of `struct` by dtype."""
EXACT = 2.0**53
"""Below it a float64 is the integer that was written."""


def packed(values: Sequence[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return values as an array, nested lists as one of their shape.

    Raises:
        ValueError, TypeError or OverflowError: A value is no number without a fraction, or does not fit the dtype.
    """
    try:
        return np.frombuffer(struct.pack(f"<{len(values)}{PACK_CODES[dtype.name]}", *values), dtype)
    except struct.error:  # a float, a list, or an integer beyond the dtype
        return converted(values, dtype)


def converted(values: Sequence[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return values as `packed`, for which a packer failed: all at once if they are small, else one by one."""
    low, high = INTEGER_LIMITS[dtype.name]
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        floats = np.array(values, np.float64)
        small = np.abs(floats, where=np.isfinite(floats), out=np.full(floats.shape, np.inf)) < EXACT
        if floats.size and small.all() and (np.trunc(floats) == floats).all() and low <= floats.min() and floats.max() <= high:
            return floats.astype(dtype)
    return np.array(integers(values, dtype.name), dtype)


def integers(value: Any, dtype: str) -> Any:
    """Return a number without a fraction as an int, and lists of them as lists. Raises ValueError, TypeError, OverflowError."""
    if isinstance(value, list | tuple):
        return [integers(one, dtype) for one in value]
    if event_fault(value, dtype):
        raise OverflowError(value) if is_integral(value) else ValueError(value)
    return int(value)


def is_integral(value: object) -> bool:
    """Whether a value is a number without a fraction."""
    return type(value) is int or (isinstance(value, float) and value.is_integer())


def fault(value: object, dtype: str) -> tuple[Reason, str] | None:
    """Return the reason and the error of a value that is no integer of a dtype, or None."""
    error = event_fault(value, dtype) if dtype in INTEGER_LIMITS else None
    if error is None:
        return None
    if is_integral(value):
        return Reason.OUT_OF_RANGE, error
    return Reason.WRONG_TYPE, f"Expected `int`, got `{type(value).__name__}`"


def row_packer(dtype: str, count: int) -> struct.Struct:
    """Return a packer of so many integers, which raises struct.error for any other values."""
    return struct.Struct(f"<{count}{PACK_CODES[dtype]}")
