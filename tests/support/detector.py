"""A model like an object detector: outputs of several shapes and dtypes from three numbers, easy to check by hand."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tests.support import models

LABELS = ["cat", "dog", "eel"]
INPUTS = [{"tensor": "x", "dtype": "float32", "fields": ["a", "b", "c"]}]
OUTPUTS: list[dict[str, Any]] = [
    {"name": "boxes", "tensor": "boxes", "shape": [2, 4]},
    {"name": "classes", "tensor": "p", "top": 2},
    {"name": "word", "tensor": "word"},
    {"name": "sure", "tensor": "sure"},
    {"name": "best", "tensor": "best"},
]
SIGNATURE = {
    "inputs": INPUTS,
    "output": OUTPUTS,
    "labels": LABELS,
    "decision": {"argmax": True, "output": "classes", "threshold": 0.5, "below": "unsure"},
}


def write(path: Path) -> None:
    """Write the model, with the input x = (a, b, c) for each event.

    The outputs are `boxes` (B, 2, 4) with a and b four times each, p = softmax(x), the index `best` of the largest p, the label
    `word` of this index, and `sure`, whether the largest p is above 0.5. The output `anchors` (2, 4) has no batch dimension.
    """
    spread = np.zeros((3, 8))
    spread[0, :4] = spread[1, 4:] = 1
    constants = [
        models.constant("spread", spread),
        models.constant("form", [-1, 2, 4], np.int64),
        models.constant("half", 0.5),
        numpy_helper.from_array(np.array(LABELS, object), "words"),
        models.constant("fixed", np.ones((2, 4))),
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "spread"], ["flat"]),
        helper.make_node("Reshape", ["flat", "form"], ["boxes"]),
        helper.make_node("Softmax", ["x"], ["p"], axis=1),
        helper.make_node("ArgMax", ["p"], ["best"], axis=1, keepdims=0),
        helper.make_node("Gather", ["words", "best"], ["word"]),
        helper.make_node("ReduceMax", ["p"], ["most"], axes=[1], keepdims=0),
        helper.make_node("Greater", ["most", "half"], ["sure"]),
        helper.make_node("Identity", ["fixed"], ["anchors"]),
    ]
    outputs = [
        models.tensor("boxes", TensorProto.FLOAT, "N", 2, 4),
        models.tensor("p", TensorProto.FLOAT, "N", 3),
        models.tensor("best", TensorProto.INT64, "N"),
        models.tensor("word", TensorProto.STRING, "N"),
        models.tensor("sure", TensorProto.BOOL, "N"),
        models.tensor("anchors", TensorProto.FLOAT, 2, 4),
    ]
    models.save(nodes, [models.tensor("x", TensorProto.FLOAT, "N", 3)], outputs, path, constants)


def answer(a: float, b: float, c: float) -> dict[str, Any]:
    """Return the score that SIGNATURE reads from the outputs for the event (a, b, c)."""
    weights = np.exp([a, b, c])
    p = (weights / weights.sum()).tolist()
    order = sorted(range(3), key=lambda at: -p[at])
    return {
        "boxes": [[a] * 4, [b] * 4],
        "classes": [{"label": LABELS[at], "score": p[at]} for at in order[:2]],
        "word": LABELS[order[0]],
        "sure": p[order[0]] > 0.5,
        "best": order[0],
    }


def package(folder: Path, signature: Mapping[str, Any] | None = None) -> Path:
    """Write a package of the model; the default signature, SIGNATURE, comes with two golden examples."""
    events = [{"a": 1.0, "b": 2.0, "c": 3.0}, {"a": 4.0, "b": 0.0, "c": 1.0}]
    golden = [{"event": event, "score": answer(**event), "tolerance": 1e-4} for event in events]
    return models.package(folder, write, signature or SIGNATURE, () if signature else golden)


def document(**parts: Any) -> str:
    """Return SIGNATURE as JSON text, with `parts` in place of its own."""
    return json.dumps(SIGNATURE | parts)
