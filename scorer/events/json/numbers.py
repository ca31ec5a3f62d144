"""JSON by the standard library, with numbers of any length: one that no float holds is marked, so that its field is named."""

import json
import math
from typing import Any

from scorer.events.decoder import Beyond

MOST_DIGITS = 4_300  # of an int that Python converts


def loads(value: bytes | str) -> Any:
    """Parse JSON. Raises ValueError or RecursionError."""
    return json.loads(value, parse_float=_float, parse_int=_int)


def _float(text: str) -> float:
    found = float(text)
    return Beyond(found) if math.isinf(found) else found


def _int(text: str) -> int | float:
    return int(text) if len(text) <= MOST_DIGITS else Beyond(math.copysign(math.inf, -1 if text[0] == "-" else 1))
