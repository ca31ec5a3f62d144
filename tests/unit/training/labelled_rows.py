"""Small labelled rows for training, with every kind of tensor that a recipe supports."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_registry.package.signature import Decision, InputField, Output, Signature, TensorInput
from training.settings import TrainingSettings
from training.snapshot.rows import LabelledRows, Places

NAN = math.nan
DECISION = Decision(0.5, "late", "on time")
SIGNATURE = Signature(
    (
        TensorInput("x", "float32", (InputField("delay", "float32", False, NAN), InputField("distance", "float32"))),
        TensorInput("at", "int64", (InputField("minute", "int64"),)),
        TensorInput("carrier", "string", (InputField("carrier", "string"),)),
        TensorInput("places", "string", (InputField("from", "string", False, ""), InputField("to", "string", False, ""))),
        TensorInput("rain", "bool", (InputField("rain", "bool", False, False),)),
    ),
    (Output(None, "p", 1),),
    decision=DECISION,
)


def rows(count: int, seed: int = 1, missing: float = 0.02) -> LabelledRows:
    """Return events, one an hour, whose outcome depends on their delay, carrier and destination, and on chance."""
    drawn = np.random.default_rng(seed)
    delay = drawn.normal(0, 20, count).astype(np.float32)
    carrier, to = drawn.integers(0, 9, count), drawn.integers(0, 30, count)
    rain = drawn.random(count) < 0.2
    odds = delay / 10 + (carrier * 7 % 9 - 4) / 4 + (to * 11 % 30 - 15) / 15 + rain - 1
    outcomes = (drawn.random(count) < 1 / (1 + np.exp(-odds))).astype(np.int8)
    delay[drawn.random(count) < missing] = NAN
    tensors: dict[str, NDArray[Any]] = {
        "x": np.column_stack([delay, drawn.integers(90, 2_500, count)]).astype(np.float32),
        "at": drawn.integers(0, 60, (count, 1)) + (1 << 40),
        "carrier": np.array([f"C{n}" for n in carrier], object)[:, np.newaxis],
        "places": np.array([[("", "EWR", "JFK")[n % 3], f"D{n}"] for n in to], object),
        "rain": rain[:, np.newaxis],
    }
    at = np.arange(count)
    places = Places(("flights",), np.zeros(count, np.int16), np.zeros(count, np.int32), at, 3_600_000 * at)
    return LabelledRows(tensors, outcomes, places, [b"{}"] * count)


def settings(**stated: Any) -> TrainingSettings:
    return TrainingSettings.model_validate(
        {"scorer": "scorer.yaml", "search": {"trials": 4, "rungs": [4, 8, 30], "reduction": 2}} | stated
    )
