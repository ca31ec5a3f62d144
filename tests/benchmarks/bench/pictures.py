"""Pictures as whole values, (3, 224, 224) uint8, and a model that reads one pixel: measures the transport of large values."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tests.support import models

SHAPE = (3, 224, 224)
BYTES = int(np.prod(SHAPE))
POOL = 16  # distinct pictures: 2.4 MB
BATCH = 40  # events in a transaction of a scorer
INPUT = {"format": "bytes", "id": "header:ce_id"}
SIGNATURE: dict[str, Any] = {
    "inputs": [
        {"tensor": "x", "dtype": "uint8", "shape": [*SHAPE], "fields": [{"name": "picture", "bytes": True, "from": "value"}]}
    ],
    "output": {"tensor": "y"},
}


def package(folder: Path, seed: int) -> Path:
    """Write a model version whose score is `seed` + 1 times the first pixel."""
    return models.package(folder, lambda path: first_pixel(path, seed + 1.0), SIGNATURE)


def first_pixel(path: Path, factor: float) -> None:
    arrays = {"begins": [0, 0, 0], "ends": [1, 1, 1], "axes": [1, 2, 3], "row": [-1, 1]}
    constants = [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in arrays.items()]
    constants.append(numpy_helper.from_array(np.array([factor], np.float32), "factor"))
    nodes = [
        helper.make_node("Slice", ["x", "begins", "ends", "axes"], ["pixel"]),
        helper.make_node("Reshape", ["pixel", "row"], ["flat"]),
        helper.make_node("Cast", ["flat"], ["number"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["number", "factor"], ["y"]),
    ]
    inputs = [models.tensor("x", TensorProto.UINT8, "N", *SHAPE)]
    models.save(nodes, inputs, [models.tensor("y", TensorProto.FLOAT, "N", 1)], path, constants)


def events(count: int) -> Iterator[bytes]:
    pool = [picture.tobytes() for picture in np.random.default_rng(7).integers(0, 256, (POOL, BYTES), np.uint8)]
    return (pool[number % POOL] for number in range(count))


def copy_us() -> float:
    """Measure the CPU microseconds in which numpy copies a picture into a batch."""
    pool, batch = list(events(POOL)), np.empty((POOL, BYTES), np.uint8)
    began, rounds = time.process_time(), 100
    for _ in range(rounds):
        for row, value in zip(batch, pool, strict=True):
            row[:] = np.frombuffer(value, np.uint8)
    return (time.process_time() - began) / rounds / POOL * 1e6
