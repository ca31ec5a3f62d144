"""Conversion of decimal numbers to floats of a smaller dtype with one rounding.

A decimal text that is read as a float64 and then converted to a float32 is rounded twice. The result can be wrong if the
float64 is exactly halfway between two float32 numbers but the text is not, as with `7.038531e-26`. Such numbers are converted
again from their exact text.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray


def as_floats(values: Sequence[float | None], dtype: np.dtype[Any]) -> tuple[NDArray[Any], list[int]]:
    """Convert numbers to an array of a float dtype, (n,). None becomes NaN. A number that is too large becomes an infinity.

    Returns:
        (array, indices). `indices` are those of the numbers that are exactly halfway between two numbers of the dtype. Convert
        these from their exact text with `nearest_float`.
    """
    try:
        wide = np.array(values, np.float64)
    except OverflowError:  # an integer beyond float64
        wide = np.array([_limited(value) for value in values], np.float64)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        narrow = wide.astype(dtype)
        if dtype == np.float64:
            return narrow, []
        inexact = np.flatnonzero(np.isfinite(wide) & (narrow != wide))
        rounded = narrow[inexact].astype(np.float64)
        other = _other_neighbour(narrow[inexact], wide[inexact]).astype(np.float64)
        ties = inexact[(rounded + other) / 2 == wide[inexact]]
    return narrow, ties.tolist()


def nearest_float(value: str | Decimal | float, dtype: np.dtype[Any]) -> Any:
    """Return the number of a float dtype that is nearest to an exact value; of two nearest numbers, the even one."""
    exact = Decimal(value)
    wide = np.float64(exact)
    with np.errstate(over="ignore", under="ignore"):
        narrow = wide.astype(dtype)
        other = _other_neighbour(narrow, wide)
    if narrow == wide or (np.float64(narrow) + np.float64(other)) / 2 != wide or Decimal(float(wide)) == exact:
        return narrow
    return max(narrow, other) if exact > Decimal(float(wide)) else min(narrow, other)


def _other_neighbour(narrow: Any, wide: Any) -> Any:
    """Return the neighbour of `narrow` in its dtype such that `wide` is between both numbers."""
    direction = np.where(wide > narrow.astype(np.float64), np.inf, -np.inf).astype(narrow.dtype)
    return np.nextafter(narrow, direction)


def _limited(value: float | None) -> float | None:
    try:
        return None if value is None else float(value)
    except OverflowError:
        return float("inf")
