"""JSON that msgspec rejects because of a field that may not even be read: NaN, half of a surrogate pair, deep arrays."""

import json
from typing import Any

import orjson


def loads(value: bytes) -> Any:
    """Parse JSON by the standard library; arrays and objects that are too deep for it by orjson, up to 1,024 levels.

    Raises ValueError or RecursionError.
    """
    try:
        return json.loads(value)
    except RecursionError:
        return orjson.loads(value)
