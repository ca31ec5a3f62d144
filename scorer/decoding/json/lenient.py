"""A lenient JSON parser for events that msgspec rejects because of a field that may not even be read.

It accepts NaN, half of a surrogate pair, deep arrays and numbers of any length. A number beyond all floats becomes BeyondFloat,
so that the error names its field.
"""

import json
import math
import re
from typing import Any

import numpy as np

from scorer.decoding.types import BeyondFloat

MOST_DIGITS = 4_300  # of an int that Python converts
MOST_LEVELS = 400
"""Levels of arrays and objects that are parsed. Python's parser has some 900, less those of the calls around it."""
_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_STEPS = bytes({ord("["): 1, ord("{"): 1, ord("]"): 0xFF, ord("}"): 0xFF}.get(byte, 0) for byte in range(256))
"""By byte, the change of the level as an int8."""


def loads(value: bytes | str) -> Any:
    """Parse JSON in UTF-8 by the standard library, except for values below MOST_LEVELS.

    Raises ValueError or RecursionError.
    """
    data = value.encode() if isinstance(value, str) else value
    try:
        return _parsed(data)
    except RecursionError:
        return _parsed(_shallow(data))


def _parsed(data: bytes) -> Any:
    return json.loads(data.decode("utf-8-sig"), parse_float=_float, parse_int=_int)


def _shallow(data: bytes) -> bytes:
    """Return JSON with 0 in place of each array and object below MOST_LEVELS, which no field reaches."""
    outline = _STRINGS.sub(lambda string: b" " * len(string[0]), data)
    steps = np.frombuffer(outline.translate(_STEPS), np.int8)
    after = np.cumsum(steps, dtype=np.int32)  # the level behind each byte
    before = after - steps
    begins = (before == MOST_LEVELS) & (after > MOST_LEVELS)
    shallow = np.where(begins, ord("0"), np.frombuffer(data, np.uint8)).astype(np.uint8)
    return bytes(shallow[begins | (np.maximum(before, after) <= MOST_LEVELS)])


def _float(text: str) -> float:
    found = float(text)
    return BeyondFloat(found) if math.isinf(found) else found


def _int(text: str) -> int | float:
    return int(text) if len(text) <= MOST_DIGITS else BeyondFloat(math.copysign(math.inf, -1 if text[0] == "-" else 1))
