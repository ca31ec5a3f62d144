"""The dtypes of tensors, by numpy's names, and the checks whether a JSON value fits a dtype."""

import math
from typing import Any

from model_registry.package.document_validation import suggestion

FLOAT_LIMITS = {"float16": 65504.0, "float32": 3.4028234663852886e38, "float64": 1.7976931348623157e308}  # IEEE 754 maxima
INTEGER_BITS = (8, 16, 32, 64)
INTEGER_LIMITS = {
    **{f"int{bits}": (-(1 << bits - 1), (1 << bits - 1) - 1) for bits in INTEGER_BITS},
    **{f"uint{bits}": (0, (1 << bits) - 1) for bits in INTEGER_BITS},
}
DTYPES = (*FLOAT_LIMITS, *INTEGER_LIMITS, "bool", "string")

Scalar = str | bool | int | float


def value_fault(value: object, dtype: str, *, nan: bool = False) -> str | None:
    """Return the reason why a JSON value does not fit a dtype; None if it does. `nan` allows the text "nan" for a float."""
    if dtype in INTEGER_LIMITS:
        low, high = INTEGER_LIMITS[dtype]
        valid = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
        return None if valid else f"{value!r} is not a valid {dtype} ({low} to {high})"
    if dtype == "bool":
        return None if isinstance(value, bool) else f"{value!r} is not a bool (true or false)"
    if dtype == "string":
        return None if isinstance(value, str) else f"{value!r} is not a string"
    if nan and value == "nan":
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    valid = number and abs(value) <= FLOAT_LIMITS[dtype]  # type: ignore[arg-type]  # NaN compares false
    return None if valid else f"{value!r} is not a finite {dtype}" + (' (NaN is written "nan")' if nan else "")


def event_fault(value: object, dtype: str) -> str | None:
    """Return the reason why a value in an event does not fit a dtype; None if it does. 7.0 fits an integer dtype."""
    if isinstance(value, float) and value.is_integer() and dtype in INTEGER_LIMITS:
        low, high = INTEGER_LIMITS[dtype]
        return None if low <= value <= high else f"{value!r} is not a valid {dtype} ({low} to {high})"
    return value_fault(value, dtype)


def array_dtype(dtype: str) -> str:
    """Return numpy's dtype for an array with elements of this dtype: "O" for strings."""
    return "O" if dtype == "string" else dtype


def check_dtype(value: Any) -> Any:
    """Return the dtype in a document unchanged. Raises ValueError if it is no valid dtype."""
    if value == "bfloat16":
        raise ValueError("no format of events has 'bfloat16'; export the model with an input of float32 or float16")
    if value not in DTYPES:
        raise ValueError(f"{value!r:.100} is not a valid dtype; {suggestion(str(value), DTYPES)}")
    return value


def parse_element(raw: Any, dtype: str) -> Any:
    """Convert a valid JSON value of a float dtype to a float ("nan" to NaN). Return other values, and None, unchanged."""
    if dtype not in FLOAT_LIMITS or raw is None:
        return raw
    return math.nan if raw == "nan" else float(raw)
