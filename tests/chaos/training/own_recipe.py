"""A custom recipe for the rounds: a logistic regression by gradient descent, with a checkpoint after every step."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from pyarrow import parquet

trial, parameters = (json.loads(Path(name).read_text()) for name in ("trial.json", "parameters.json"))
state = Path("checkpoint/weights.npy")


def inputs(part: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The columns a, b (0 where it is missing) and a constant, and the labels."""
    table = parquet.read_table(f"rows/{part}.parquet")
    columns = [np.nan_to_num(np.array(table[name].to_pylist(), np.float64)) for name in ("a", "b")]
    return np.column_stack([*columns, np.ones(table.num_rows)]), np.array(table["label"].to_pylist(), np.float64)


def auc(scores: NDArray[np.float64], truth: NDArray[np.float64]) -> float:
    ranks = np.argsort(np.argsort(scores)) + 1
    positives = truth.sum()
    return float((ranks[truth == 1].sum() - positives * (positives + 1) / 2) / (positives * (len(truth) - positives)))


rows, labels = inputs("training")
weights_and_step = np.load(state) if state.exists() else np.zeros(4)  # three weights, then the number of steps
for step in range(int(weights_and_step[3]) + 1, trial["budget"] + 1):
    wrong = 1 / (1 + np.exp(-rows @ weights_and_step[:3])) - labels
    weights_and_step = np.append(weights_and_step[:3] - parameters["rate"] * rows.T @ wrong / len(labels), step)
    np.save(state.with_suffix(".part.npy"), weights_and_step)
    state.with_suffix(".part.npy").replace(state)
    if not trial["final"]:
        validation_rows, truth = inputs("validation")
        with Path("metrics.jsonl").open("a") as metrics:
            metrics.write(json.dumps({"budget": step, "auc": auc(validation_rows @ weights_and_step[:3], truth)}) + "\n")

if trial["final"]:
    weights: dict[str, Any] = {
        "w": weights_and_step[:2].reshape(2, 1).astype(np.float32),
        "c": weights_and_step[2:3].astype(np.float32),
    }
    weights |= {"zero": np.float32(0), "one": np.float32(1)}
    nodes = [
        helper.make_node("IsNaN", ["x"], ["missing"]),
        helper.make_node("Where", ["missing", "zero", "x"], ["filled"]),
        helper.make_node("Gemm", ["filled", "w", "c"], ["odds"]),
        helper.make_node("Sigmoid", ["odds"], ["high"]),
        helper.make_node("Sub", ["one", "high"], ["low"]),
        helper.make_node("Concat", ["low", "high"], ["probabilities"], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "rounds",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2]),
            helper.make_tensor_value_info("kind", TensorProto.STRING, ["N", 1]),
        ],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", 2])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    Path("model.onnx").write_bytes(model.SerializeToString())
