"""Train LightGBM as a recipe: reads the files of its folder, and writes metrics.jsonl and model.onnx."""

import json
from pathlib import Path
from typing import Any

import lightgbm
from onnxmltools import convert_lightgbm
from onnxmltools.convert.common.data_types import FloatTensorType
from pyarrow import parquet

trial, resources = (json.loads(Path(name).read_text()) for name in ("trial.json", "resources.json"))
parameters = json.loads(Path("parameters.json").read_text())
fixed = {"objective": "binary", "metric": "auc", "deterministic": True, "verbose": -1, "seed": trial["seed"]}
(tensor,) = json.loads(Path("signature.json").read_text())["inputs"]  # one tensor of numbers


def dataset(part: str) -> lightgbm.Dataset:
    """Return the rows of one Parquet file, such as `training`."""
    table = parquet.read_table(f"rows/{part}.parquet").to_pandas()
    return lightgbm.Dataset(table[tensor["fields"]].to_numpy("float32"), table["label"])


def report(state: Any) -> None:
    """Append a line to metrics.jsonl after each tree."""
    auc = state.evaluation_result_list[0][2]
    with Path("metrics.jsonl").open("a") as metrics:
        metrics.write(json.dumps({"budget": state.iteration + 1, "auc": auc}) + "\n")


validation: dict[str, Any] = {} if trial["final"] else {"valid_sets": [dataset("validation")], "callbacks": [report]}
parameters |= fixed | {"num_threads": resources["workers"]}
model = lightgbm.train(parameters, dataset("training"), num_boost_round=trial["budget"], **validation)
if trial["final"]:
    inputs = [(tensor["tensor"], FloatTensorType([None, len(tensor["fields"])]))]
    onnx = convert_lightgbm(model, name="orders", initial_types=inputs, zipmap=False, target_opset=15)
    Path("model.onnx").write_bytes(onnx.SerializeToString())
