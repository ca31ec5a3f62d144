"""A lenient JSON parser for events that msgspec rejects, possibly because of a field that the model does not read.

The parser accepts NaN, half of a surrogate pair, deep nesting and numbers of any length. A number beyond the range of a float
becomes a BeyondFloat. If the model reads the field with this number, a later check rejects the event with an error that names
the field.
"""

import json
import math
import re
from typing import Any

import numpy as np

from scorer.decoding.types import BeyondFloat

MAX_DIGITS = 4_300  # the longest integer that Python converts from text
MAX_LEVELS = 400
"""Maximum nesting depth of the text that is parsed. Python's parser allows about 900 levels minus the depth of the stack."""
_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_STEPS = bytes({ord("["): 1, ord("{"): 1, ord("]"): 0xFF, ord("}"): 0xFF}.get(byte, 0) for byte in range(256))
"""Translation table from a byte to the change of the nesting level, as an int8: 1 for `[` and `{`, -1 for `]` and `}`."""


def loads(value: bytes | str) -> Any:
    """Parse JSON in UTF-8 with the standard library's parser.

    If the nesting is too deep for the parser, each array or object that is nested deeper than MAX_LEVELS is replaced by 0.
    Raises ValueError or RecursionError if the text cannot be parsed.
    """
    data = value.encode() if isinstance(value, str) else value
    try:
        return _parse(data)
    except RecursionError:
        return _parse(_cut_depth(data))


def _parse(data: bytes) -> Any:
    return json.loads(data.decode("utf-8-sig"), parse_float=_parse_float, parse_int=_parse_int)


def _cut_depth(data: bytes) -> bytes:
    """Replace each array or object that is nested deeper than MAX_LEVELS by 0. No field of a model is nested so deep."""
    outline = _STRINGS.sub(lambda string: b" " * len(string[0]), data)
    steps = np.frombuffer(outline.translate(_STEPS), np.int8)
    after = np.cumsum(steps, dtype=np.int32)  # the level after each byte
    before = after - steps
    begins = (before == MAX_LEVELS) & (after > MAX_LEVELS)
    shallow = np.where(begins, ord("0"), np.frombuffer(data, np.uint8)).astype(np.uint8)
    return bytes(shallow[begins | (np.maximum(before, after) <= MAX_LEVELS)])


def _parse_float(text: str) -> float:
    number = float(text)
    return BeyondFloat(number) if math.isinf(number) else number


def _parse_int(text: str) -> int | float:
    return int(text) if len(text) <= MAX_DIGITS else BeyondFloat(math.copysign(math.inf, -1 if text[0] == "-" else 1))
