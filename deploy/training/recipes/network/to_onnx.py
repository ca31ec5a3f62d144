"""The network as ONNX, written node by node from its weights: equal weights give equal bytes.

The graph has the inputs and the output of the signature, and encodes the inputs like `encoding.py`.
"""

# torch's exporter is not used because it writes paths of the environment into the file.

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from model_registry.package.signature import Signature, TensorInput
from training.recipes.check_signature import output_row
from training.recipes.network.encoding import STRING, Numbers, TensorEncodings
from training.recipes.network.head import BINARY, Head

OPSETS = {"": 18, "ai.onnx.ml": 3}
IR_VERSION = 8


def onnx(signature: Signature, encoding: TensorEncodings, weights: Sequence[NDArray[np.float32]], head: Head = BINARY) -> bytes:
    """Return the bytes of the ONNX model. `weights` are the tables and layers in the order of `model.shapes`."""
    graph = _Graph()
    tables = len(encoding.vocabularies)
    features = [graph.numbers(column) for column in encoding.numbers]
    columns = [(names, at, vocabulary) for names in encoding.names for at, vocabulary in enumerate(names.known)]
    for (names, at, vocabulary), table in zip(columns, weights[:tables], strict=True):
        features.append(graph.looked_up(names.tensor, at, vocabulary, table))
    row = output_row(signature, head.target)
    outputs = graph.layers(graph.add("Concat", features, axis=1), weights[tables:], head.dtype)
    graph.score(outputs, head, row)
    output = helper.make_tensor_value_info(signature.outputs[0].tensor, TensorProto.FLOAT, [None, *row])
    graph.nodes[-1].output[0] = output.name
    inputs = [helper.make_tensor_value_info(tensor.tensor, _dtype(tensor), [None, *tensor.row]) for tensor in signature.inputs]
    onnx_graph = helper.make_graph(graph.nodes, "network", inputs, [output], graph.constants)
    opsets = [helper.make_opsetid(domain, version) for domain, version in OPSETS.items()]
    model = helper.make_model(onnx_graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="scorestream training")
    return bytes(model.SerializeToString(deterministic=True))


def _dtype(tensor: TensorInput) -> int:
    return int(TensorProto.STRING if tensor.dtype == STRING else helper.np_dtype_to_tensor_dtype(np.dtype(tensor.dtype)))


class _Graph:
    """The nodes and constants of an ONNX graph. A method that adds nodes returns the name of the last node's output."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, operator: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Add a node and return the name of its only output."""
        name = f":{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], name=f"{operator}{name}", **attributes))
        return name

    def constant(self, value: Any, dtype: type[np.generic] = np.float64) -> str:
        name = f"constant:{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(value, dtype), name))
        return name

    def flat(self, tensor: str) -> str:
        """Add the node that flattens the rows of a tensor, (B, *row); return the name of the result, (B, n)."""
        return self.add("Flatten", [tensor], axis=1)

    def numbers(self, column: Numbers) -> str:
        """Add the nodes that standardize a numeric tensor; return the name of their result, (B, n) float32."""
        median, low, high, mean, scale = (
            self.constant(part) for part in (column.median, column.low, column.high, column.mean, column.scale)
        )
        value = self.add("Cast", [self.flat(column.tensor)], to=TensorProto.DOUBLE)
        value = self.add("Where", [self.add("IsNaN", [value]), median, value])
        value = self.add("Min", [self.add("Max", [value, low]), high])
        value = self.add("Mul", [self.add("Sub", [value, mean]), scale])
        return self.add("Cast", [value], to=TensorProto.FLOAT)

    def looked_up(self, tensor: str, at: int, vocabulary: Sequence[str], table: NDArray[np.float32]) -> str:
        """Add the nodes that look up the embeddings of the names in column `at` of a tensor.

        Returns the name of the result, (B, dimensions) float32. Row 0 of `table` is the embedding of unknown names.
        """
        indices = {"": 0}  # ONNX requires a key, even without known names
        indices |= {name: number for number, name in enumerate(vocabulary, 1)}
        column = self.add("Gather", [self.flat(tensor), self.constant(at, np.int64)], axis=1)
        index = self.add(
            "LabelEncoder",
            [column],
            domain="ai.onnx.ml",
            keys_strings=list(indices),
            values_int64s=list(indices.values()),
            default_int64=0,
        )
        return self.add("Gather", [self.constant(table, np.float32), index], axis=0)

    def layers(self, value: str, weights: Sequence[NDArray[np.float32]], dtype: type[np.floating[Any]]) -> str:
        """Add the nodes that apply all layers to `value` in `dtype`; return the name of the outputs, (B, outputs)."""
        if dtype is np.float64:
            value = self.add("Cast", [value], to=TensorProto.DOUBLE)
        for at in range(0, len(weights), 2):
            value = self.add("Relu", [value]) if at else value
            layer, bias = (self.constant(part, dtype) for part in weights[at : at + 2])
            value = self.add("Gemm", [value, layer, bias], transB=1)
        return value

    def score(self, value: str, head: Head, row: tuple[int, ...]) -> str:
        """Add the nodes that convert the outputs of the layers to scores, and return the name of their result, (B, *row).

        Args:
            value: The name of the outputs, (B, outputs).
            head: The meaning of the outputs.
            row: The shape of a row of the result. For two classes, it is (1,) for the probability of the second class, or (2,)
                for the probabilities of both.
        """
        if head.target.kind == "classes":
            return self.add("Softmax", [value], axis=1)
        if head.target.kind == "regression":
            value = self.add("Add", [self.add("Mul", [value, self.constant(head.deviation)]), self.constant(head.mean)])
            value = self.add("Cast", [value], to=TensorProto.FLOAT)
            return value if row else self.add("Squeeze", [value, self.constant([1], np.int64)])
        value = self.add("Sigmoid", [value])
        if row == (1,):
            return value
        return self.add("Concat", [self.add("Sub", [self.constant(1, np.float32), value]), value], axis=1)
