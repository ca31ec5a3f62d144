"""Small models whose scores depend on the batch or on padding, and packages of them."""

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
"""An event of FIELDS, without its score."""


def centred(path: Path) -> None:
    """y = (x - the mean of x over the batch) @ w: 0 for an event alone."""
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["m"], axes=[0], keepdims=1),
        helper.make_node("Sub", ["x", "m"], ["c"]),
        helper.make_node("MatMul", ["c", "w"], ["y"]),
    ]
    models.save(nodes, [X4], [Y1], path, [WEIGHTS])


def running_sum(path: Path) -> None:
    """y = the sum of x @ w over this and the earlier rows: the first axis is time."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["s"]), helper.make_node("CumSum", ["s", "zero"], ["y"])]
    models.save(nodes, [X4], [Y1], path, [WEIGHTS, models.constant("zero", 0, np.int64)])


def quantised(path: Path) -> None:
    """y = x @ w after dynamic quantisation, whose scale is that of the whole batch."""
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]),
        helper.make_node("MatMulInteger", ["q", "w8", "zero"], ["product"]),
        helper.make_node("Cast", ["product"], ["number"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["number", "scale"], ["y"]),
    ]
    models.save(nodes, [X4], [Y1], path, [models.constant("w8", np.arange(4).reshape(4, 1), np.int8)])


def fixed_inside(path: Path) -> None:
    """y = x @ w, by way of a reshape to one row: an export whose batch is fixed inside of the graph alone."""
    nodes = [helper.make_node("Reshape", ["x", "one"], ["r"]), helper.make_node("MatMul", ["r", "w"], ["y"])]
    models.save(nodes, [X4], [Y1], path, [WEIGHTS, models.constant("one", [1, 4], np.int64)])


def masked_mean(path: Path, marks: str) -> None:
    """y = the mean of x where `mask` marks values, or where it does not mark padding."""
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
    """The signature of `masked_mean`."""
    field = {"name": "x", "array": True, "max_length": 64}
    mask = {"tensor": "mask", "dtype": "bool", "mask_of": "x"} | ({"marks": marks} if marks else {})
    return {
        "inputs": [{"tensor": "x", "dtype": "float32", "shape": [-1], "pad": 0, "fields": [field]}, mask],
        "output": {"tensor": "y"},
    }


def complete(folder: Path, signature: Mapping[str, Any], golden: Sequence[Mapping[str, Any]]) -> Path:
    """Write what belongs to the model.onnx of a folder."""
    (folder / "signature.json").write_text(json.dumps(signature))
    (folder / "golden.jsonl").write_text("".join(json.dumps(line) + "\n" for line in golden))
    return folder
