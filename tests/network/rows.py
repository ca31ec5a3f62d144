"""Rows of a made-up service to train networks on: numbers, of which some are missing, and names, of which some are rare."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_registry.package.signature_schema import parse_signature
from training.snapshot.rows import LabelledRows, Places

NAMES = {"carrier": 16, "dest": 100}
SIGNATURE = parse_signature(
    b"""{"inputs": [
    {"tensor": "x", "dtype": "float32", "fields": [{"name": "delay", "required": false, "default": "nan"}, "distance", "hour"]},
    {"tensor": "carrier", "dtype": "string", "fields": ["carrier"]}, {"tensor": "dest", "dtype": "string", "fields": ["dest"]}],
    "output": {"tensor": "probabilities", "index": 1}, "labels": null,
    "decision": {"threshold": 0.5, "at_or_above": "late", "below": "on time"}}"""
)


def made(count: int, seed: int = 1) -> LabelledRows:
    """`count` rows that differ in all that there is; the delay and the first letter of the destination decide."""
    chance = np.random.default_rng(seed)
    numbers = (chance.normal(size=(count, 3)) * [20, 500, 6] + [5, 1_000, 13]).astype(np.float32)
    numbers[chance.random(count) < 0.02, 0] = np.nan
    names = {name: chance.integers(0, of, count) for name, of in NAMES.items()}
    late = np.nan_to_num(numbers[:, 0]) / 10 - 1 + names["dest"] % 3
    outcomes = chance.random(count) < 1 / (1 + np.exp(-late))
    texts = {name: np.array([f"{name}-{at}" for at in drawn], object)[:, None] for name, drawn in names.items()}
    return of({"x": numbers, **texts}, outcomes.astype(np.int8))


def of(tensors: dict[str, NDArray[Any]], outcomes: NDArray[np.int8]) -> LabelledRows:
    """These tensors and outcomes, at places that do not matter."""
    count = len(outcomes)
    at = np.arange(count)
    places = Places(("events",), np.zeros(count, np.int16), np.zeros(count, np.int32), at, at)
    return LabelledRows(tensors, outcomes, places, [b""] * count)
