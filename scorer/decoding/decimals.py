"""Conversion of the decimals of change data capture (Debezium, Kafka Connect) to numbers.

Such a decimal consists of the bytes of an unscaled integer and a scale, the number of fractional digits.
"""

import base64
import binascii
import math
import re
from collections.abc import Mapping
from typing import Any

MAX_SCALE = 20_000
"""Limit of fractional digits. It is above PostgreSQL's limit of 16,383."""
MAX_BYTES = 8_192  # limit of an untrusted unscaled integer: the time of a division grows with the square of its length
VARIABLE = frozenset({"scale", "value"})
"""The fields of Debezium's VariableScaleDecimal, a decimal that contains its own scale."""
DIGITS = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})")
HINT = (
    "Debezium writes decimals as numbers with decimal.handling.mode=double, Kafka Connect's JSON converter with "
    "decimal.format=NUMERIC"
)


def number(unscaled: bytes, scale: int) -> int | float:
    """Return a decimal as a number: an int if the decimal has no fraction, else the nearest float.

    Args:
        unscaled: An integer in two's complement, big-endian.
        scale: The number of fractional digits. A negative scale appends zeros to the integer.

    Returns:
        The number; an infinity if the number is beyond the range of a float, if the absolute value of `scale` exceeds
        MAX_SCALE, or if `unscaled` has more than MAX_BYTES bytes.
    """
    integer = int.from_bytes(unscaled[:MAX_BYTES], "big", signed=True)
    beyond = -math.inf if integer < 0 else math.inf
    if len(unscaled) > MAX_BYTES or abs(scale) > MAX_SCALE:
        return beyond
    try:
        if scale <= 0:
            return _in_range(integer * 10**-scale)
        quotient, rest = divmod(integer, 10**scale)
        return integer / 10**scale if rest else _in_range(quotient)
    except OverflowError:
        return beyond


def _in_range(integer: int) -> int:
    """Return the integer unchanged. Raises OverflowError if the integer is beyond the range of a float."""
    float(integer)
    return integer


def variable(value: Any) -> int | float | None:
    """Return the number of a VariableScaleDecimal, an object with a scale and bytes. The bytes may be base64 text.

    Returns:
        The number; None for any other value.
    """
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
    """Replace each VariableScaleDecimal by its number, also in lists that are nested up to `levels` levels.

    All other values are returned unchanged.
    """
    if levels and isinstance(value, list):
        plain_already = {dict, list}.isdisjoint(map(type, value))
        return value if plain_already else [to_plain_numbers(element, levels - 1) for element in value]
    return value if (number_of_value := variable(value)) is None else number_of_value


def hint(text: Any) -> str:
    """Return a hint for a rejected value that may be a decimal: the setting with which a producer writes decimals as numbers.

    Returns:
        The end of an error message; "" unless the value is bytes, a text of digits, or base64 text.
    """
    if not isinstance(text, str | bytes):
        return ""
    if isinstance(text, bytes):
        return f"; bytes are a number only as a decimal, whose schema has the scale ({HINT})"
    if DIGITS.fullmatch(text) or BASE64.fullmatch(text):
        return f"; write a number, not text ({HINT})"
    return ""
