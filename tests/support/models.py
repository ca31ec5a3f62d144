"""Small model packages for tests, made with onnx. The scores are easy to check by hand."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = [helper.make_opsetid("", 17)]
LINEAR = {
    "inputs": [{"tensor": "x", "dtype": "float32", "fields": ["a", "b"]}],
    "output": {"tensor": "y"},
    "decision": {"threshold": 0.5, "at_or_above": "high", "below": "low"},
}


def save(
    nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any], path: Path, constants: Sequence[Any] = ()
) -> None:
    """Write a checked ONNX model to `path` from its nodes, inputs, outputs and constants."""
    graph = helper.make_graph(list(nodes), "test", list(inputs), list(outputs), list(constants))
    model = helper.make_model(graph, opset_imports=OPSET, ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, str(path))


def tensor(name: str, kind: int, *shape: int | str) -> Any:
    """Return the description of an input or output; a dimension with a name is variable."""
    return helper.make_tensor_value_info(name, kind, list(shape))


X, Y = (tensor(name, TensorProto.FLOAT, "N", width) for name, width in (("x", 2), ("y", 1)))


def constant(name: str, value: Any, kind: type[np.generic] = np.float32) -> Any:
    """Return a constant of a graph, a number or an array, which nodes read by its name."""
    return numpy_helper.from_array(np.array(value, kind), name)


def gather(name: str, at: str) -> Any:
    """Return a node that selects a column of x; the constant named `at` is the index of the column."""
    return helper.make_node("Gather", ["x", at], [name], axis=1)


def linear(path: Path, factor: float, width: int = 2) -> None:
    """Write a model: y = factor * (sum of the `width` numbers in x)."""
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    save([node], [tensor("x", TensorProto.FLOAT, "N", width)], [Y], path, [constant("w", [[factor]] * width)])


def hungry(path: Path) -> None:
    """Write a model: y = 2 * a. A run takes 4 * max(b) bytes of memory."""
    constants = [constant("i", [0], np.int64), constant("j", [1], np.int64), constant("two", [2.0])]
    nodes = [
        gather("a", "i"),
        gather("b", "j"),
        helper.make_node("ReduceMax", ["b"], ["most"], axes=[0, 1], keepdims=0),
        helper.make_node("Cast", ["most"], ["length"], to=TensorProto.INT64),
        helper.make_node("Unsqueeze", ["length", "i"], ["shape"]),
        helper.make_node("ConstantOfShape", ["shape"], ["filled"]),
        helper.make_node("ReduceSum", ["filled"], ["nothing"], keepdims=0),
        helper.make_node("Mul", ["a", "two"], ["doubled"]),
        helper.make_node("Add", ["doubled", "nothing"], ["y"]),
    ]
    save(nodes, [X], [Y], path, constants)


def moody(path: Path) -> None:
    """Write a model: y = log(a), NaN for negative a. A run takes max(b) rounds of a loop and 4 * max(-b) bytes of memory."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["go_on"]), helper.make_node("Mul", ["carried", "half"], ["less"])],
        "body",
        [tensor("round", TensorProto.INT64), tensor("go", TensorProto.BOOL), tensor("carried", TensorProto.FLOAT)],
        [tensor("go_on", TensorProto.BOOL), tensor("less", TensorProto.FLOAT)],
        [constant("half", 0.5)],
    )
    constants = [constant("i", [0], np.int64), constant("j", [1], np.int64)]
    constants += [constant("yes", True, np.bool_), constant("begin", 0.0)]
    nodes = [
        gather("a", "i"),
        gather("b", "j"),
        helper.make_node("ReduceMax", ["b"], ["most"], axes=[0, 1], keepdims=0),
        helper.make_node("Cast", ["most"], ["rounds"], to=TensorProto.INT64),
        helper.make_node("Loop", ["rounds", "yes", "begin"], ["looped"], body=body),
        helper.make_node("Neg", ["b"], ["minus_b"]),
        helper.make_node("Relu", ["minus_b"], ["memory"]),
        helper.make_node("ReduceMax", ["memory"], ["bytes"], axes=[0, 1], keepdims=0),
        helper.make_node("Cast", ["bytes"], ["length"], to=TensorProto.INT64),
        helper.make_node("Unsqueeze", ["length", "i"], ["shape"]),
        helper.make_node("ConstantOfShape", ["shape"], ["filled"]),
        helper.make_node("ReduceSum", ["filled"], ["summed"], keepdims=0),
        helper.make_node("Log", ["a"], ["logarithm"]),
        helper.make_node("Add", ["logarithm", "looped"], ["almost"]),
        helper.make_node("Add", ["almost", "summed"], ["y"]),
    ]
    save(nodes, [X], [Y], path, constants)


def classifier(path: Path) -> None:
    """Write a model with the outputs of exported classifiers: a label, and the probabilities of two classes."""
    nodes = [
        helper.make_node("Softmax", ["x"], ["probabilities"], axis=1),
        helper.make_node("ArgMax", ["probabilities"], ["label"], axis=1, keepdims=0),
    ]
    outputs = tensor("label", TensorProto.INT64, "N"), tensor("probabilities", TensorProto.FLOAT, "N", 2)
    save(nodes, [X], outputs, path)


def three_scores(path: Path) -> None:
    """Write a model with the outputs p = (x1, x2, x1 + x2) and sum = x1 + x2."""
    weights = constant("w", [[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]]), constant("v", [[1.0]] * 2)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("MatMul", ["x", "v"], ["sum"])]
    outputs = tensor("p", TensorProto.FLOAT, "N", 3), tensor("sum", TensorProto.FLOAT, "N", 1)
    save(nodes, [X], outputs, path, weights)


def contrib(path: Path) -> None:
    """Write a model: y = gelu(x1 + x2), with an operator of ONNX Runtime's own domain."""
    weights = constant("w", [[1.0]] * 2)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["s"]), helper.make_node("Gelu", ["s"], ["y"], domain="com.microsoft")]
    graph = helper.make_graph(nodes, "test", [X], [Y], [weights])
    model = helper.make_model(graph, opset_imports=[*OPSET, helper.make_opsetid("com.microsoft", 1)], ir_version=8)
    onnx.save(model, str(path))


def words(path: Path) -> None:
    """Write a model: y = sigmoid(2 * count of "good" - 2 * count of "bad") for texts (B,), in upper or lower case.

    Operators of the library onnxruntime-extensions read the texts.
    """
    nodes = [
        helper.make_node("StringLower", ["text"], ["lower"], domain="ai.onnx.contrib"),
        helper.make_node("StringSplit", ["lower", "space", "skip"], ["places", "words", "size"], domain="ai.onnx.contrib"),
        helper.make_node(
            "LabelEncoder",
            ["words"],
            ["weights"],
            domain="ai.onnx.ml",
            keys_strings=["good", "bad"],
            values_floats=[2.0, -2.0],
            default_float=0.0,
        ),
        helper.make_node("Gather", ["places", "first"], ["rows"], axis=1),
        helper.make_node("Shape", ["text"], ["count"]),
        helper.make_node("ConstantOfShape", ["count"], ["none"]),
        helper.make_node("ScatterElements", ["none", "rows", "weights"], ["sums"], reduction="add"),
        helper.make_node("Sigmoid", ["sums"], ["y"]),
    ]
    constants = [helper.make_tensor("space", TensorProto.STRING, [1], [b" "]), constant("skip", [True], np.bool_)]  # type: ignore[list-item]
    text, y = tensor("text", TensorProto.STRING, "N"), tensor("y", TensorProto.FLOAT, "N")
    graph = helper.make_graph(nodes, "test", [text], [y], [*constants, constant("first", 0, np.int64)])
    domains = [*OPSET, helper.make_opsetid("ai.onnx.ml", 2), helper.make_opsetid("ai.onnx.contrib", 1)]
    onnx.save(helper.make_model(graph, opset_imports=domains, ir_version=8), str(path))


def reading_outside(path: Path) -> None:
    """Write a model: y = x @ w, where w would be read from a file outside the package."""
    weights = constant("w", [[1.0]] * 2)
    onnx.external_data_helper.set_external_data(weights, "../secret.bin", offset=0, length=8)
    weights.ClearField("raw_data")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "test", [X], [Y], [weights])
    path.write_bytes(helper.make_model(graph, opset_imports=OPSET, ir_version=8).SerializeToString())


def package(
    folder: Path,
    write: Callable[[Path], None],
    signature: Mapping[str, Any] | None = LINEAR,
    golden: Sequence[Mapping[str, Any]] = (),
) -> Path:
    """Write a package to a new folder, with the model that `write` saves; return the folder."""
    folder.mkdir(parents=True)
    write(folder / "model.onnx")
    if signature is not None:
        (folder / "signature.json").write_text(json.dumps(signature))
    if golden:
        (folder / "golden.jsonl").write_text("".join(json.dumps(line) + "\n" for line in golden))
    (folder / "README.md").write_text(f"# {folder.name}\n\nA test model.\n")
    return folder


def joined_package(folder: Path, factor: float) -> Path:
    """Write a package with score = factor * (a + b), of which b is joined from the table customers; return its folder."""
    b = {"name": "customers.b", "from": "table:customers"}
    golden = [{"event": {"a": 1.0, "customers.b": 2.0}, "score": 3.0 * factor, "tolerance": 1e-5}]
    document = LINEAR | {"inputs": [{"tensor": "x", "dtype": "float32", "fields": ["a", b]}]}
    return package(folder, lambda path: linear(path, factor), document, golden)


def linear_package(folder: Path, factor: float) -> Path:
    """Write a package with score = factor * (a + b) and one golden example; return its folder."""
    golden = [{"event": {"a": 1.0, "b": 2.0}, "score": 3.0 * factor, "tolerance": 1e-5}]
    return package(folder, lambda path: linear(path, factor), golden=golden)
