"""Decimal numbers of change data capture (Debezium, Kafka Connect): an unscaled whole number in bytes, and a scale. Pure."""

import base64
import binascii
import math
import re
from collections.abc import Mapping
from typing import Any

MOST_SCALE = 20_000
"""Digits behind the point: PostgreSQL has up to 16,383."""
MOST_BYTES = 8_192  # of an unscaled number; it is untrusted, and division takes time with the square of its length
VARIABLE = frozenset({"scale", "value"})
"""The fields of Debezium's VariableScaleDecimal, whose scale is in each value."""
DIGITS = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})")
HINT = (
    "Debezium writes decimals as numbers with decimal.handling.mode=double, Kafka Connect's JSON converter with "
    "decimal.format=NUMERIC"
)


def number(unscaled: bytes, scale: int) -> int | float:
    """Return a decimal as a number: a whole one as an int, another one as the nearest float.

    Args:
        unscaled: A whole number in two's complement, big-endian.
        scale: The number of its digits that are behind the point; negative: zeros that follow.

    Returns:
        An infinity for a number that no float holds, or whose size is beyond MOST_SCALE or MOST_BYTES.
    """
    whole = int.from_bytes(unscaled[:MOST_BYTES], "big", signed=True)
    beyond = -math.inf if whole < 0 else math.inf
    if len(unscaled) > MOST_BYTES or abs(scale) > MOST_SCALE:
        return beyond
    try:
        if scale <= 0:
            return _in_range(whole * 10**-scale)
        quotient, rest = divmod(whole, 10**scale)
        return whole / 10**scale if rest else _in_range(quotient)
    except OverflowError:
        return beyond


def _in_range(whole: int) -> int:
    """Return the number. Raises OverflowError if it is beyond all floats."""
    float(whole)
    return whole


def variable(value: Any) -> int | float | None:
    """Return the number of a VariableScaleDecimal, whose bytes may be base64; None if the value is none."""
    if not isinstance(value, Mapping) or value.keys() != VARIABLE:
        return None
    scale, unscaled = value["scale"], value["value"]
    if isinstance(unscaled, str):
        try:
            unscaled = base64.b64decode(unscaled, validate=True)
        except (binascii.Error, ValueError):
            return None
    if type(scale) is not int or not isinstance(unscaled, bytes):
        return None
    return number(unscaled, scale)


def plain(value: Any, levels: int = 0) -> Any:
    """Return a VariableScaleDecimal as its number, lists of so many levels with such numbers, and any other value as it is."""
    if levels and isinstance(value, list):
        plain_already = {dict, list}.isdisjoint(map(type, value))
        return value if plain_already else [plain(one, levels - 1) for one in value]
    return value if (found := variable(value)) is None else found


def hint(text: Any) -> str:
    """Return how to write a value as a number, if it may be a decimal: bytes, or text of digits or in base64.

    Returns:
        The end of an error; an empty string for other values.
    """
    if not isinstance(text, str | bytes):
        return ""
    if isinstance(text, bytes):
        return f"; bytes are a number only as a decimal, whose schema has the scale ({HINT})"
    if DIGITS.fullmatch(text) or BASE64.fullmatch(text):
        return f"; write a number, not text ({HINT})"
    return ""
