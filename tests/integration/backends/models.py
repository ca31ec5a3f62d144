"""One model for every backend: y = factor * (a + b) + n, t = s, pair = x; a batch fails where n is not 0 to 3."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from model_registry import package
from model_registry.package import Package
from tests.support import models

SERVED = Path(__file__).parent / "served"
SIGNATURE: dict[str, Any] = {
    "inputs": [
        {"tensor": "x", "dtype": "float32", "fields": ["a", "b"]},
        {"tensor": "n", "dtype": "int64", "fields": [{"name": "n", "required": False, "default": 0}]},
        {"tensor": "s", "dtype": "string", "fields": [{"name": "s", "required": False, "default": ""}]},
    ],
    "output": {"tensor": "y", "index": 0},
}
OUTPUTS = [{"name": "y", "tensor": "y", "index": 0}, {"name": "t", "tensor": "t"}, {"name": "pair", "tensor": "pair"}]
KINDS = {"float32": "FP32", "int64": "INT64", "string": "BYTES"}
INPUT_WIDTHS = {"x": ("float32", 2), "n": ("int64", 1), "s": ("string", 1)}
OUTPUT_WIDTHS = {"y": ("float32", 1), "t": ("string", 1), "pair": ("float32", 2)}
Tensors = dict[str, "np.typing.NDArray[Any]"]


def tensors(rows: int, first: int = 0) -> Tensors:
    """Return distinct rows: a counts from `first`."""
    a = np.arange(first, first + rows, dtype=np.float32)
    return {
        "x": np.stack([a, np.full(rows, 0.5, np.float32)], axis=1),
        "n": (np.arange(rows, dtype=np.int64) % 4).reshape(rows, 1),
        "s": np.array([f"é{number}" if number % 3 else "" for number in range(rows)], object).reshape(rows, 1),
    }


def expected(tensors: Tensors, factor: float) -> Tensors:
    y = (np.float32(factor) * tensors["x"].sum(axis=1, keepdims=True) + tensors["n"]).astype(np.float32)
    return {"y": y, "t": tensors["s"], "pair": tensors["x"]}


def folder(target: Path, factor: float, **signature: Any) -> Path:
    """A package without a model, with one golden example."""
    target.mkdir(parents=True)
    stated = {**SIGNATURE, **signature}
    (target / "signature.json").write_text(json.dumps(stated))
    if "output" not in signature:
        golden = {"event": {"a": 1, "b": 2, "n": 1}, "score": 3.0 * factor + 1.0, "tolerance": 1e-4}
        (target / "golden.jsonl").write_text(json.dumps(golden) + "\n")
    return target


def read(target: Path, name: str = "mixed") -> Package:
    """Return the package of a folder, as if it had been pulled."""
    return package.read(target, name=name, version=target.name, digest=f"sha256:{target.name:0>64}")


def onnx_model(target: Path, factor: float) -> None:
    constants = [
        numpy_helper.from_array(np.full((2, 1), factor, np.float32), "w"),
        numpy_helper.from_array(np.arange(4, dtype=np.float32), "table"),
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["sum"]),
        helper.make_node("Gather", ["table", "n"], ["added"], axis=0),
        helper.make_node("Add", ["sum", "added"], ["y"]),
        helper.make_node("Identity", ["s"], ["t"]),
        helper.make_node("Identity", ["x"], ["pair"]),
    ]
    kinds = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "string": TensorProto.STRING}
    inputs, outputs = (
        [models.tensor(name, kinds[dtype], "N", width) for name, (dtype, width) in widths.items()]
        for widths in (INPUT_WIDTHS, OUTPUT_WIDTHS)
    )
    models.save(nodes, inputs, outputs, target / "model.onnx", constants)


def mlserver_model(target: Path, factor: float) -> None:
    (target / "repository").mkdir()
    inputs, outputs = (
        [{"name": name, "datatype": KINDS[dtype], "shape": [-1, width]} for name, (dtype, width) in widths.items()]
        for widths in (INPUT_WIDTHS, OUTPUT_WIDTHS)
    )
    settings = {
        "implementation": "mlserver_mixed.Mixed",
        "inputs": inputs,
        "outputs": outputs,
        "parameters": {"extra": {"factor": factor}},
    }
    (target / "repository" / "model-settings.json").write_text(json.dumps(settings))


def triton_model(target: Path, factor: float) -> None:
    (target / "repository" / "1").mkdir(parents=True)
    shutil.copy(SERVED / "triton_mixed.py", target / "repository" / "1" / "model.py")
    lines = ['backend: "python"', f'parameters {{ key: "factor" value {{ string_value: "{factor}" }} }}']
    for word, widths in (("input", INPUT_WIDTHS), ("output", OUTPUT_WIDTHS)):
        for name, (dtype, width) in widths.items():
            kind = KINDS[dtype].replace("BYTES", "STRING")
            lines.append(f'{word} {{ name: "{name}" data_type: TYPE_{kind} dims: [-1, {width}] }}')
    (target / "repository" / "config.pbtxt").write_text("\n".join(lines) + "\n")


def saved_model(target: Path, factor: float, python: Path) -> None:
    """As `saved_model/`, made by a Python that has TensorFlow."""
    subprocess.run(
        [python, SERVED / "make_saved_model.py", str(target / "saved_model"), str(factor)], check=True, capture_output=True
    )
