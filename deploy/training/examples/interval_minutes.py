"""Train a linear model with an interval as a recipe: its outputs are minutes, minutes_low and minutes_high.

The interval is the prediction plus two quantiles of the residuals, times the parameter `width`.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from pyarrow import parquet

names = ("trial.json", "parameters.json", "signature.json")
trial, parameters, signature = (json.loads(Path(name).read_text()) for name in names)
interval = trial["target"]["interval"]  # evaluation.interval of training.yaml
(tensor,) = signature["inputs"]  # one tensor of numbers


def rows(part: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the fields of `rows/PART.parquet` with a constant column, and the labels."""
    table = parquet.read_table(f"rows/{part}.parquet")
    columns = [table[name].to_numpy().astype(np.float64) for name in tensor["fields"]]
    return np.column_stack([*columns, np.ones(len(table))]), table["label"].to_numpy()


inputs, labels = rows("training")
weights = np.linalg.lstsq(inputs, labels, rcond=None)[0]
tail = (1 - interval["level"]) / 2
low, high = parameters.get("width", 1.0) * np.quantile(labels - inputs @ weights, [tail, 1 - tail])
if not trial["final"]:
    held, outcomes = rows("validation")
    predicted = held @ weights
    outside = np.maximum(predicted + low - outcomes, 0) + np.maximum(outcomes - predicted - high, 0)
    score = float(np.mean(high - low + outside / tail))
    Path("metrics.jsonl").write_text(json.dumps({"budget": trial["budget"], "interval_score": score}) + "\n")
else:
    values: dict[str, Any] = {"weights": weights[:-1, np.newaxis], "constant": weights[-1:], "low": low, "high": high}
    constants = [numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in values.items()]
    nodes = [
        helper.make_node("Gemm", [tensor["tensor"], "weights", "constant"], ["minutes"]),
        helper.make_node("Add", ["minutes", "low"], ["minutes_low"]),
        helper.make_node("Add", ["minutes", "high"], ["minutes_high"]),
    ]
    inward = [helper.make_tensor_value_info(tensor["tensor"], TensorProto.FLOAT, [None, len(tensor["fields"])])]
    outward = [helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, [None, 1]) for node in nodes]
    graph = helper.make_graph(nodes, "minutes", inward, outward, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    Path("model.onnx").write_bytes(model.SerializeToString())
