"""Scores as values for formats that have types: nothing, one number, numbers in a row, or such by name."""

from collections.abc import Sequence
from typing import Any

import orjson

Value = float | list[float] | dict[str, list[float]] | None


def values(scores: Sequence[bytes]) -> list[Value]:
    """Encoded scores (JSON) as values. Arrays of arrays are flattened row by row; named outputs are arrays, be it of one."""
    return [_value(score) for score in orjson.loads(b"[" + b",".join(scores) + b"]")]


def _value(score: Any) -> Value:
    if isinstance(score, list):
        return _flat(score)
    if isinstance(score, dict):
        return {name: _flat(output if isinstance(output, list) else [output]) for name, output in score.items()}
    return None if score is None else float(score)


def _flat(score: list[Any]) -> list[float]:
    return [number for one in score for number in (_flat(one) if isinstance(one, list) else [float(one)])]
