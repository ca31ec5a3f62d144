"""ONNX graphs with random weights: a builder, a text encoder for sequences of any length, and a ResNet-50."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.support import models

BLOCKS = (3, 4, 6, 3)  # the number of blocks in each stage of a ResNet-50


class Graph:
    """Builds a graph: nodes and weights with generated names. `number` is the dtype, and `seed` determines the weights."""

    def __init__(self, number: type = np.float32, seed: int = 0) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.number = helper.np_dtype_to_tensor_dtype(np.dtype(number))
        self._kind = number
        self._random = np.random.default_rng(seed)

    def constant(self, values: Any, kind: type | None = None) -> str:
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values, kind or self._kind), name))
        return name

    def weight(self, *shape: int) -> str:
        inputs = int(np.prod(shape[1:])) if len(shape) == 4 else shape[0]
        return self.constant(self._random.standard_normal(shape, np.float32) / np.sqrt(inputs, dtype=np.float32))

    def __call__(self, operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        output = output or f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [output], **attributes))
        return output

    def linear(self, x: str, wide: int, narrow: int, output: str = "") -> str:
        return self("Add", self("MatMul", x, self.weight(wide, narrow)), self.constant(np.zeros(narrow)), output=output)

    def norm(self, x: str, wide: int) -> str:
        return self("LayerNormalization", x, self.constant(np.ones(wide)), self.constant(np.zeros(wide)), epsilon=1e-12)

    def gelu(self, x: str) -> str:
        factor = self("Add", self("Erf", self("Mul", x, self.constant(0.5**0.5))), self.constant(1.0))
        return self("Mul", self("Mul", x, factor), self.constant(0.5))

    def save(self, path: Path, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        graph = helper.make_graph(self.nodes, "network", list(inputs), list(outputs), self.weights)
        onnx.save(helper.make_model(graph, opset_imports=models.OPSET, ir_version=8), str(path))


def encoder_inputs(longest: int) -> list[dict[str, Any]]:
    """Return the signature's inputs for an encoder with token types: the arrays `ids` and `types`, and a mask.

    Both arrays of an event have the same length, at most `longest`.
    """
    common = {"dtype": "int64", "shape": [-1], "pad": 0}
    arrays = {"input_ids": "ids", "token_type_ids": "types"}
    return [
        {"tensor": tensor, **common, "fields": [{"name": name, "array": True, "max_length": longest}]}
        for tensor, name in arrays.items()
    ] + [{"tensor": "attention_mask", "dtype": "int64", "mask_of": "input_ids"}]


def encoder(path: Path, layers: int, hidden: int, vocabulary: int, longest: int, *, types: bool = False) -> None:
    """Write a text encoder with the inputs `input_ids` and `attention_mask`, (B, S) int64, and the output y (B, 1).

    The encoder adds the embeddings of tokens and positions, and of the input `token_type_ids` if `types` is true. `layers`
    layers of attention and feed-forward follow. y is computed from the mean over all positions that are not padding.
    """
    g, heads = Graph(), max(1, hidden // 64)
    ids, mask = "input_ids", g("Cast", "attention_mask", to=TensorProto.FLOAT)
    first, one, two = (g.constant(at, np.int64) for at in ([0], [1], [2]))
    length = g("Slice", g("Shape", ids), one, two)
    x = g("Add", g("Gather", g.weight(vocabulary, hidden), ids), g("Slice", g.weight(longest, hidden), first, length, first))
    if types:
        x = g("Add", x, g("Gather", g.weight(2, hidden), "token_type_ids"))
    hides = g("Mul", g("Sub", g("Unsqueeze", mask, g.constant([1, 2], np.int64)), g.constant(1.0)), g.constant(1e9))
    split, whole = g.constant([0, 0, heads, hidden // heads], np.int64), g.constant([0, 0, hidden], np.int64)

    def attention(y: str) -> str:
        q, v = (g("Transpose", g("Reshape", g.linear(y, hidden, hidden), split), perm=[0, 2, 1, 3]) for _ in range(2))
        k = g("Transpose", g("Reshape", g.linear(y, hidden, hidden), split), perm=[0, 2, 3, 1])
        scores = g("Add", g("Mul", g("MatMul", q, k), g.constant((hidden // heads) ** -0.5)), hides)
        mixed = g("MatMul", g("Softmax", scores, axis=-1), v)
        return g.linear(g("Reshape", g("Transpose", mixed, perm=[0, 2, 1, 3]), whole), hidden, hidden)

    x = g.norm(x, hidden)
    for _ in range(layers):
        x = g.norm(g("Add", x, attention(x)), hidden)
        x = g.norm(g("Add", x, g.linear(g.gelu(g.linear(x, hidden, 4 * hidden)), 4 * hidden, hidden)), hidden)
    total = g("ReduceSum", g("Mul", x, g("Unsqueeze", mask, two)), one, keepdims=0)
    g("Sigmoid", g.linear(g("Div", total, g("ReduceSum", mask, one, keepdims=1)), hidden, 1), output="y")
    names = [ids, "attention_mask", *(["token_type_ids"] if types else [])]
    inputs = [models.tensor(name, TensorProto.INT64, "batch", "sequence") for name in names]
    g.save(path, inputs, [models.tensor("y", TensorProto.FLOAT, "batch", 1)])


def residual(g: Graph, x: str, channels: int = 64) -> str:
    """Add a ResNet to the graph for images `x` (B, 3, side, side); return the name of its probabilities (B, 1000).

    With 64 channels the network is a ResNet-50. Its batch normalisations are folded into the convolutions.
    """

    def convolution(y: str, inputs: int, outputs: int, size: int, stride: int = 1) -> str:
        more: dict[str, Any] = {"kernel_shape": [size, size], "strides": [stride, stride], "pads": [size // 2] * 4}
        return g("Conv", y, g.weight(outputs, inputs, size, size), g.constant(np.zeros(outputs)), **more)

    def bottleneck(y: str, inputs: int, narrow: int, stride: int) -> str:
        z = g("Relu", convolution(y, inputs, narrow, 1))
        z = g("Relu", convolution(z, narrow, narrow, 3, stride))
        z = convolution(z, narrow, 4 * narrow, 1)
        past = convolution(y, inputs, 4 * narrow, 1, stride) if stride > 1 or inputs != 4 * narrow else y
        return g("Relu", g("Add", z, past))

    x = g("Relu", convolution(x, 3, channels, 7, 2))
    x = g("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    inputs = channels
    for stage, blocks in enumerate(BLOCKS):
        for block in range(blocks):
            narrow = channels << stage
            x = bottleneck(x, inputs, narrow, 2 if stage and not block else 1)
            inputs = 4 * narrow
    return g("Softmax", g.linear(g("Flatten", g("GlobalAveragePool", x)), inputs, 1_000), axis=-1)
