"""Small models whose scores depend on the batch or on padding, with signatures and a golden example for their packages."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from tests.support import models

FIELDS = ["a", "b", "c", "d"]
FOUR = {"inputs": [{"tensor": "x", "dtype": "float32", "fields": FIELDS}], "output": {"tensor": "y"}}
ALONE = {
    "inputs": [{"tensor": "x", "dtype": "float32", "fields": FIELDS, "shape": [1, 4], "batch": False}],
    "output": {"tensor": "y"},
}
WEIGHTS = models.constant("w", np.arange(4).reshape(4, 1))
X4, Y1 = models.tensor("x", TensorProto.FLOAT, "n", 4), models.tensor("y", TensorProto.FLOAT, "n", 1)
GOLDEN = {"event": {"a": 1, "b": 2, "c": 3, "d": 4}, "tolerance": 1e-4}
"""A golden example for models with the fields FIELDS; the score is missing."""


def centred(path: Path) -> None:
    """Write a model: y = (x - mean of x over the batch) @ w, which is 0 for a batch of one event."""
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["m"], axes=[0], keepdims=1),
        helper.make_node("Sub", ["x", "m"], ["c"]),
        helper.make_node("MatMul", ["c", "w"], ["y"]),
    ]
    models.save(nodes, [X4], [Y1], path, [WEIGHTS])


def running_sum(path: Path) -> None:
    """Write a model: y = sum of x @ w over a row and all earlier rows of the batch, as if the first axis were time."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["s"]), helper.make_node("CumSum", ["s", "zero"], ["y"])]
    models.save(nodes, [X4], [Y1], path, [WEIGHTS, models.constant("zero", 0, np.int64)])


def quantised(path: Path) -> None:
    """Write a model: y = x @ w after dynamic quantisation, with one scale for the whole batch."""
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]),
        helper.make_node("MatMulInteger", ["q", "w8", "zero"], ["product"]),
        helper.make_node("Cast", ["product"], ["number"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["number", "scale"], ["y"]),
    ]
    models.save(nodes, [X4], [Y1], path, [models.constant("w8", np.arange(4).reshape(4, 1), np.int8)])


def fixed_inside(path: Path) -> None:
    """Write a model: y = x @ w for a batch of one event. The inputs allow any batch, but a node reshapes x to one row."""
    nodes = [helper.make_node("Reshape", ["x", "one"], ["r"]), helper.make_node("MatMul", ["r", "w"], ["y"])]
    models.save(nodes, [X4], [Y1], path, [WEIGHTS, models.constant("one", [1, 4], np.int64)])


def masked_mean(path: Path, marks: str) -> None:
    """Write a model: y = mean of x without padding. `mask` marks the padding if `marks` is "padding", else the values."""
    marked = "keep" if marks == "padding" else "mask"
    nodes = [helper.make_node("Not", ["mask"], ["keep"])] if marks == "padding" else []
    nodes += [
        helper.make_node("Cast", [marked], ["k"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["x", "k"], ["kept"]),
        helper.make_node("ReduceSum", ["kept", "axis"], ["s"], keepdims=0),
        helper.make_node("ReduceSum", ["k", "axis"], ["n"], keepdims=0),
        helper.make_node("Div", ["s", "n"], ["y"]),
    ]
    inputs = [models.tensor("x", TensorProto.FLOAT, "n", "len"), models.tensor("mask", TensorProto.BOOL, "n", "len")]
    models.save(nodes, inputs, [models.tensor("y", TensorProto.FLOAT, "n")], path, [models.constant("axis", [1], np.int64)])


def masked(marks: str | None) -> dict[str, Any]:
    """Return the signature of `masked_mean`."""
    field = {"name": "x", "array": True, "max_length": 64}
    mask = {"tensor": "mask", "dtype": "bool", "mask_of": "x"} | ({"marks": marks} if marks else {})
    return {
        "inputs": [{"tensor": "x", "dtype": "float32", "shape": [-1], "pad": 0, "fields": [field]}, mask],
        "output": {"tensor": "y"},
    }


def complete(folder: Path, signature: Mapping[str, Any], golden: Sequence[Mapping[str, Any]]) -> Path:
    """Write signature.json and golden.jsonl to a folder that has a model.onnx; return the folder."""
    (folder / "signature.json").write_text(json.dumps(signature))
    (folder / "golden.jsonl").write_text("".join(json.dumps(line) + "\n" for line in golden))
    return folder
