"""Decimals of change data capture (Debezium, Kafka Connect): the bytes of an unscaled integer, and a scale. Pure functions."""

import base64
import binascii
import math
import re
from collections.abc import Mapping
from typing import Any

MOST_SCALE = 20_000
"""Limit of fractional digits: PostgreSQL allows up to 16,383."""
MOST_BYTES = 8_192  # limit of an untrusted unscaled integer: the time of a division grows with the square of its length
VARIABLE = frozenset({"scale", "value"})
"""The fields of Debezium's VariableScaleDecimal, whose scale is in each value."""
DIGITS = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})")
HINT = (
    "Debezium writes decimals as numbers with decimal.handling.mode=double, Kafka Connect's JSON converter with "
    "decimal.format=NUMERIC"
)


def number(unscaled: bytes, scale: int) -> int | float:
    """Return a decimal as a number: an int if it has no fraction, else the nearest float.

    Args:
        unscaled: An integer in two's complement, big-endian.
        scale: The number of fractional digits; a negative scale appends zeros.

    Returns:
        The number; an infinity if it is beyond the range of a float, or exceeds MOST_SCALE or MOST_BYTES.
    """
    integer = int.from_bytes(unscaled[:MOST_BYTES], "big", signed=True)
    beyond = -math.inf if integer < 0 else math.inf
    if len(unscaled) > MOST_BYTES or abs(scale) > MOST_SCALE:
        return beyond
    try:
        if scale <= 0:
            return _in_range(integer * 10**-scale)
        quotient, rest = divmod(integer, 10**scale)
        return integer / 10**scale if rest else _in_range(quotient)
    except OverflowError:
        return beyond


def _in_range(integer: int) -> int:
    """Return the integer. Raises OverflowError if it is beyond the range of a float."""
    float(integer)
    return integer


def variable(value: Any) -> int | float | None:
    """Return the number of a VariableScaleDecimal, whose bytes may be base64; None for any other value."""
    if not isinstance(value, Mapping) or value.keys() != VARIABLE:
        return None
    scale = value["scale"]
    unscaled = value["value"]
    if isinstance(unscaled, str):
        try:
            unscaled = base64.b64decode(unscaled, validate=True)
        except (binascii.Error, ValueError):
            return None
    if type(scale) is not int or not isinstance(unscaled, bytes):
        return None
    return number(unscaled, scale)


def to_plain_numbers(value: Any, levels: int = 0) -> Any:
    """Replace a VariableScaleDecimal, or those in lists down to `levels` levels, by numbers; other values are unchanged."""
    if levels and isinstance(value, list):
        plain_already = {dict, list}.isdisjoint(map(type, value))
        return value if plain_already else [to_plain_numbers(element, levels - 1) for element in value]
    return value if (number_of_value := variable(value)) is None else number_of_value


def hint(text: Any) -> str:
    """Return a hint on how to write a value as a number if it may be a decimal: bytes, or text of digits or in base64.

    Returns:
        The end of an error message; an empty string for other values.
    """
    if not isinstance(text, str | bytes):
        return ""
    if isinstance(text, bytes):
        return f"; bytes are a number only as a decimal, whose schema has the scale ({HINT})"
    if DIGITS.fullmatch(text) or BASE64.fullmatch(text):
        return f"; write a number, not text ({HINT})"
    return ""
