"""Three versions of a model with inputs of every kind that the feature log writes, and events for them."""

import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from tests.support import models

AMOUNT = {"name": "amount", "required": False, "default": "nan"}
TENSORS = {
    "items": (TensorProto.INT64, "int64", 1),
    "rate": (TensorProto.DOUBLE, "float64", 1),
    "serial": (TensorProto.UINT64, "uint64", 1),
    "weekend": (TensorProto.BOOL, "bool", 1),
}
"""The tensors of one field of the same name: the dtype in the graph, the dtype in the signature, and the width."""
CARRIERS = ("AA", "UA", 'Ünïted "ÿ"\n\\', "")
LARGEST_LONG = 2**63 - 1
LARGEST_FLOAT32 = 3.4028234663852886e38


def packages(folder: Path) -> dict[str, Path]:
    """Write the versions and return their folders by tag.

    Version 1.0.0 has every kind of input. Version 2.0.0 has the additional fields `distance` and `airport`. In version 3.0.0
    the dtype of the field `items` is float32 instead of int64.
    """
    return {
        "1.0.0": _package(folder / "1.0.0"),
        "2.0.0": _package(folder / "2.0.0", numbers=("distance",), texts=("airport",)),
        "3.0.0": _package(folder / "3.0.0", {"items": (TensorProto.FLOAT, "float32", 1)}),
    }


def events(start: int, count: int) -> Iterator[dict[str, Any]]:
    """Yield numbered events with all fields. Every fifth event, and the first, has no `amount`."""
    for number in range(start, start + count):
        chance = random.Random(number)
        event = {
            "id": f"e{number}",
            "key": f"k{number % 50}",
            "amount": float(np.float32(chance.choice((chance.gauss(0, 1e3), chance.uniform(0, 1e-6), LARGEST_FLOAT32, 7.0)))),
            "customers.age": number % 90,
            "items": chance.choice((number, -LARGEST_LONG - 1, LARGEST_LONG)),
            "rate": chance.choice((chance.random(), 1e300, -0.0, 3.0)),
            "serial": chance.choice((number, 2**64 - 1)),
            "weekend": number % 7 > 4,
            "embedding": [number % 3 / 7, 0.0, chance.random()],
            "carrier": chance.choice(CARRIERS),
            "distance": number * 1.5,
            "airport": f"A{number % 5}",
        }
        if number % 5 == 0:
            del event["amount"]
        yield event


def _package(
    folder: Path,
    changed: Mapping[str, tuple[int, str, int]] = MappingProxyType({}),
    numbers: Sequence[str] = (),
    texts: Sequence[str] = (),
) -> Path:
    """Write a version whose score is the number of its inputs that are NaN.

    Args:
        folder: The new folder of the version.
        changed: The tensors that replace those of TENSORS.
        numbers: The additional fields of dtype float32.
        texts: The additional fields of dtype string.
    """
    fields, strings = [AMOUNT, "customers.age", *numbers], ["carrier", *texts]
    tensors = {"x": (TensorProto.FLOAT, "float32", len(fields)), **TENSORS, **changed}
    inputs: list[dict[str, Any]] = [
        {"tensor": name, "dtype": dtype, "fields": fields if name == "x" else [name]} for name, (_, dtype, _) in tensors.items()
    ]
    inputs.append({"tensor": "embedding", "dtype": "float32", "fields": [{"name": "embedding", "array": True, "length": 3}]})
    inputs.append({"tensor": "texts", "dtype": "string", "fields": strings})
    tensors["embedding"] = (TensorProto.FLOAT, "float32", 3)

    def write(path: Path) -> None:
        nodes = [helper.make_node("Cast", [name], [f"{name}_float"], to=TensorProto.FLOAT) for name in tensors]
        nodes += [
            helper.make_node("Concat", [f"{name}_float" for name in tensors], ["all"], axis=1),
            helper.make_node("IsNaN", ["all"], ["is_nan"]),
            helper.make_node("Cast", ["is_nan"], ["ones"], to=TensorProto.FLOAT),
            helper.make_node("ReduceSum", ["ones", "axes"], ["y"]),
            helper.make_node("Identity", ["texts"], ["copied"]),
        ]
        described = [models.tensor(name, kind, "N", width) for name, (kind, _, width) in tensors.items()]
        described.append(models.tensor("texts", TensorProto.STRING, "N", len(strings)))
        outputs = [models.Y, models.tensor("copied", TensorProto.STRING, "N", len(strings))]
        models.save(nodes, described, outputs, path, [models.constant("axes", [1], np.int64)])

    return models.package(folder, write, {"inputs": inputs, "output": {"tensor": "y"}})
