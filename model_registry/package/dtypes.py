"""Dtypes of tensors by numpy's names, and which JSON values they hold."""

import math
from typing import Any

from model_registry.package.validation import suggestion

FLOAT_LIMITS = {"float16": 65504.0, "float32": 3.4028234663852886e38, "float64": 1.7976931348623157e308}  # IEEE 754 maxima
INTEGER_LIMITS = {f"{kind}{bits}": integer for bits in (8, 16, 32, 64) for kind, integer in (
    ("int", (-(1 << bits - 1), (1 << bits - 1) - 1)), ("uint", (0, (1 << bits) - 1)))}  # fmt: skip
DTYPES = (*FLOAT_LIMITS, *INTEGER_LIMITS, "bool", "string")

Scalar = str | bool | int | float


def value_fault(value: object, dtype: str, *, nan: bool = False) -> str | None:
    """Why a JSON value is none of a dtype, or None if it is. `nan` allows the word "nan" for a float."""
    if dtype in INTEGER_LIMITS:
        low, high = INTEGER_LIMITS[dtype]
        good = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
        return None if good else f"{value!r} is no {dtype} ({low} to {high})"
    if dtype == "bool":
        return None if isinstance(value, bool) else f"{value!r} is no bool (true or false)"
    if dtype == "string":
        return None if isinstance(value, str) else f"{value!r} is no string"
    if nan and value == "nan":
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    good = number and abs(value) <= FLOAT_LIMITS[dtype]  # type: ignore[arg-type]  # NaN compares false
    return None if good else f"{value!r} is no finite {dtype}" + (' (NaN is written "nan")' if nan else "")


def event_fault(value: object, dtype: str) -> str | None:
    """Return why a value of an event is none of a dtype, or None if it is one. 7.0 is an integer too."""
    if isinstance(value, float) and value.is_integer() and dtype in INTEGER_LIMITS:
        low, high = INTEGER_LIMITS[dtype]
        return None if low <= value <= high else f"{value!r} is no {dtype} ({low} to {high})"
    return value_fault(value, dtype)


def array_dtype(dtype: str) -> str:
    """The dtype of arrays that hold it, for numpy."""
    return "O" if dtype == "string" else dtype


def check_dtype(value: Any) -> Any:
    """The dtype that a document states. Raises ValueError."""
    if value == "bfloat16":
        raise ValueError("'bfloat16' is fed by no format; export the model with an input of float32 or float16")
    if value not in DTYPES:
        raise ValueError(f"{value!r:.100} is no dtype; {suggestion(str(value), DTYPES)}")
    return value


def parse_element(raw: Any, dtype: str) -> Any:
    """A good value as Python has it: a float for a float dtype ("nan" is NaN); null stays null."""
    if dtype not in FLOAT_LIMITS or raw is None:
        return raw
    return math.nan if raw == "nan" else float(raw)
