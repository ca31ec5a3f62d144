"""JSON that msgspec rejects because of a field that may not even be read: NaN, half of a surrogate pair, deep arrays, and
numbers of any length: one that no float holds is marked, so that its field is named."""

import json
import math
from typing import Any

import orjson

from scorer.events.decoder import Beyond

MOST_DIGITS = 4_300  # of an int that Python converts


def loads(value: bytes | str) -> Any:
    """Parse JSON by the standard library; arrays and objects that are too deep for it by orjson, up to 1,024 levels.

    Raises ValueError or RecursionError.
    """
    try:
        return json.loads(value, parse_float=_float, parse_int=_int)
    except RecursionError:
        return orjson.loads(value)


def _float(text: str) -> float:
    found = float(text)
    return Beyond(found) if math.isinf(found) else found


def _int(text: str) -> int | float:
    return int(text) if len(text) <= MOST_DIGITS else Beyond(math.copysign(math.inf, -1 if text[0] == "-" else 1))
