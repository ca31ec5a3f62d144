"""Convert boosted trees to ONNX.

The graph encodes strings as numbers, joins all columns, evaluates the trees, and converts their sums to scores.
"""

# Thresholds and leaves are doubles, and columns are cast to doubles. The graph therefore takes every branch that LightGBM
# takes, and adds in doubles like LightGBM. A NaN takes the same branch as in LightGBM. Other converters write 32-bit floats:
# the thresholds are rounded, and therefore some rows take the wrong branch. With 1,500 trees their sums differ from LightGBM's
# by 1.6e-6. The sums of this graph differ by 1.5e-7, at the same speed.

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from model_registry.package.signature import Signature
from training.recipes import check_signature
from training.recipes.encoding import UNKNOWN, EncodedColumn, MatrixEncoding
from training.snapshot.target import Target

OPSETS = {"": 18, "ai.onnx.ml": 3}
IR_VERSION = 10
TYPES = {
    name: helper.np_dtype_to_tensor_dtype(np.dtype(name))
    for name in (
        "float16",
        "float32",
        "float64",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "bool",
    )
} | {"string": TensorProto.STRING}

Tree = Mapping[str, Any]
"""A node of `Booster.dump_model` with its subtrees."""


def model(
    signature: Signature, target: Target, encoding: MatrixEncoding, start: NDArray[np.float64], trees: Sequence[Tree]
) -> bytes:
    """Return the bytes of the ONNX model, whose raw scores are `start` plus the sum of the trees.

    For K classes, `start` has the shape (K,), and the tree with the number i belongs to the class i modulo K.
    """
    nodes = _Nodes()
    columns = [
        nodes.add("Cast", nodes.column(run_of_columns, signature), to=TensorProto.DOUBLE)
        for run_of_columns in _runs(encoding, signature)
    ]
    matrix = nodes.add("Concat", *columns, axis=1)
    total = nodes.add("TreeEnsembleRegressor", matrix, domain="ai.onnx.ml", **_attributes(trees, start.ravel()))
    nodes.scores(total, signature, target)
    output = helper.make_tensor_value_info(
        signature.outputs[0].tensor, TensorProto.FLOAT, [None, *check_signature.output_row(signature, target)]
    )
    graph = helper.make_graph(nodes.nodes, "trees", [_input(tensor) for tensor in signature.inputs], [output], nodes.constants)
    opsets = [helper.make_opsetid(domain, version) for domain, version in OPSETS.items()]
    model_proto: ModelProto = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="scorestream")
    return model_proto.SerializeToString(deterministic=True)


class _Nodes:
    """The nodes and constants of an ONNX graph. The name of a node's output is the number of the node."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    def add(self, operator: str, *inputs: str, output: str = "", domain: str = "", **attributes: Any) -> str:
        name = output or f":{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], domain=domain, **attributes))
        return name

    def constant(self, value: NDArray[Any]) -> str:
        name = f":c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def column(self, columns: Sequence[EncodedColumn], signature: Signature) -> str:
        """Add the nodes that read columns of one tensor as numbers; return the name of their result, (B, n).

        `columns` are all columns of a numeric tensor, or one column of categories.
        """
        first = columns[0]
        tensor = next(candidate for candidate in signature.inputs if candidate.tensor == first.tensor)
        flat = first.tensor if len(tensor.row) == 1 else self.add("Flatten", first.tensor, axis=1)
        if first.names is None:
            return flat
        if tensor.width > 1:
            flat = self.add("Gather", flat, self.constant(np.array([first.place])), axis=1)
        numbers = [float(number) for number in range(len(first.names))]
        return self.add(
            "LabelEncoder", flat, domain="ai.onnx.ml", keys_strings=first.names, values_floats=numbers, default_float=UNKNOWN
        )

    def scores(self, total: str, signature: Signature, target: Target) -> None:
        """Add the output of the graph: the scores for the raw scores `total`, in the signature's output shape.

        `total` is (B, K) for K classes, else (B, 1).
        """
        output = signature.outputs[0].tensor
        row = check_signature.output_row(signature, target)
        if target.kind == "classes":
            self.add("Softmax", total, output=output, axis=1)
            return
        if target.kind == "regression":
            if row == ():
                self.add("Squeeze", total, self.constant(np.array([1])), output=output)
            else:
                self.add("Identity", total, output=output)
            return
        if row == (1,):
            self.add("Sigmoid", total, output=output)
            return
        second = self.add("Sigmoid", total)
        if row == ():
            self.add("Squeeze", second, self.constant(np.array([1])), output=output)
            return
        first = self.add("Sub", self.constant(np.array(1, np.float32)), second)
        self.add("Concat", first, second, output=output, axis=1)


def _runs(encoding: MatrixEncoding, signature: Signature) -> list[list[EncodedColumn]]:
    """Group the columns that are read together: all columns of a numeric tensor, or one string column."""
    numbers = {tensor.tensor for tensor in signature.fed if tensor.dtype != "string"}
    runs: list[list[EncodedColumn]] = []
    for column in encoding.columns:
        if column.tensor in numbers and runs and runs[-1][0].tensor == column.tensor:
            runs[-1].append(column)
        else:
            runs.append([column])
    return runs


def _input(tensor: Any) -> ValueInfoProto:
    return helper.make_tensor_value_info(tensor.tensor, TYPES[tensor.dtype], list(tensor.full_shape))


def _attributes(trees: Sequence[Tree], start: NDArray[np.float64]) -> dict[str, Any]:
    """Return the attributes of a TreeEnsembleRegressor with one target for each element of `start`.

    Nodes are numbered depth first.
    """
    names = ("treeids", "nodeids", "modes", "featureids", "truenodeids", "falsenodeids", "missing_value_tracks_true")
    nodes: dict[str, list[Any]] = {name: [] for name in names}
    values: list[float] = []
    leaves: list[tuple[int, int, float]] = []
    for number, tree in enumerate(trees):
        for at, (node, left_child, right) in enumerate(_flat(tree)):
            leaf = "left_child" not in node
            row = (
                (number, at, "LEAF", 0, 0, 0, 0)
                if leaf
                else (number, at, "BRANCH_LEQ", node["split_feature"], left_child, right, _missing_goes_left(node))
            )
            for name, value in zip(names, row, strict=True):
                nodes[name].append(value)
            values.append(0.0 if leaf else node["threshold"])
            if leaf:
                leaves.append((number, at, float(node["leaf_value"])))
    trees_, nodes_, weights = zip(*leaves, strict=True)
    return {f"nodes_{name}": stated for name, stated in nodes.items()} | {
        "nodes_values_as_tensor": numpy_helper.from_array(np.array(values)),
        "target_treeids": trees_,
        "target_nodeids": nodes_,
        "target_ids": [tree % len(start) for tree in trees_],
        "target_weights_as_tensor": numpy_helper.from_array(np.array(weights)),
        "base_values_as_tensor": numpy_helper.from_array(start),
        "n_targets": len(start),
    }


def _flat(tree: Tree) -> list[tuple[Tree, int, int]]:
    """Return the nodes of a tree depth first, each with the numbers of its left and right child; (0, 0) for a leaf."""
    flat: list[tuple[Tree, int, int]] = []
    waiting: list[tuple[Tree, int, bool]] = [(tree, -1, False)]
    while waiting:
        node, parent, is_left = waiting.pop()
        if parent >= 0:
            above = flat[parent]
            flat[parent] = (above[0], len(flat), above[2]) if is_left else (above[0], above[1], len(flat))
        if "left_child" in node:
            waiting += [(node["right_child"], len(flat), False), (node["left_child"], len(flat), True)]
        flat.append((node, 0, 0))
    return flat


def _missing_goes_left(node: Tree) -> int:
    """Return 1 if a NaN takes the left branch of a node, else 0.

    LightGBM treats NaN as 0 in a column that had no missing values in training.
    """
    return int(node["default_left"] if node["missing_type"] == "NaN" else node["threshold"] >= 0)
