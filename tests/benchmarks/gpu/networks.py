"""The measured networks, with random weights: an encoder of BERT's base size and a ResNet-50, both in float32 and float16, and
a table's perceptron.

Their outputs mean nothing; their computations are those of the real networks.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from tests.benchmarks.bench.workload import network
from tests.support import models
from tests.support.graphs import Graph, residual

TOKENS = 128


@dataclass(frozen=True, slots=True)
class Network:
    """A network.

    `stated` is its input `x` in signature.json, `event_format` the format of its events. `draw` draws the numbers of an event,
    `write` writes the model file with the weights of a seed.
    """

    name: str
    stated: dict[str, Any]
    event_format: str
    draw: Callable[[np.random.Generator], NDArray[Any]]
    write: Callable[[Path, int], None]

    def package(self, folder: Path, seed: int = 0) -> Path:
        signature = {"inputs": [{"tensor": "x", **self.stated}], "output": {"tensor": "y", "index": 0}}
        return models.package(folder, lambda path: self.write(path, seed), signature)

    def event(self, random: np.random.Generator) -> bytes:
        """Return a random event as a producer writes it."""
        numbers = self.draw(random)
        if self.event_format == "bytes":
            return numbers.tobytes()
        return json.dumps(numbers.tolist(), separators=(",", ":")).encode()


def networks(*, quick: bool) -> list[Network]:
    """Return all networks; `quick`: small ones, to test the benchmark itself."""
    bert = (2, 64, 1_000) if quick else (12, 768, 30_522)
    side, channels = (32, 8) if quick else (224, 64)
    large = []
    for number, name in ((np.float32, ""), (np.float16, "-float16")):
        large += [_bert(f"bert-base{name}", number, *bert), _resnet(f"resnet-50{name}", number, side, channels)]
    perceptron = Network(
        "tab30",
        {"dtype": "float32", **_array(30)},
        "json-array",
        lambda random: random.normal(size=30).round(6),
        lambda path, seed: network(path, (30, 64, 32, 1), seed),
    )
    return [*large, perceptron]


def pool(network: Network, count: int) -> Sequence[bytes]:
    """Return `count` events, of which up to 64 are distinct."""
    random = np.random.default_rng(1)
    distinct = [network.event(random) for _ in range(min(count, 64))]
    return [distinct[number % len(distinct)] for number in range(count)]


def _array(length: int) -> dict[str, Any]:
    return {"fields": [{"name": "x", "array": True, "length": length}]}


def _bert(name: str, number: type, layers: int, hidden: int, vocabulary: int) -> Network:
    return Network(
        name,
        {"dtype": "int64", **_array(TOKENS)},
        "json-array",
        lambda random: random.integers(0, vocabulary, TOKENS),
        lambda path, seed: _encoder(path, Graph(number, seed), layers, hidden, vocabulary),
    )


def _resnet(name: str, number: type, side: int, channels: int) -> Network:
    shape = (3, side, side)
    return Network(
        name,
        {"dtype": "uint8", "shape": [*shape], "fields": [{"name": "picture", "bytes": True, "from": "value"}]},
        "bytes",
        lambda random: random.integers(0, 256, shape, np.uint8),
        lambda path, seed: _classifier(path, Graph(number, seed), side, channels),
    )


def _answer() -> list[Any]:
    return [models.tensor("y", TensorProto.FLOAT, "N", 1)]


def _encoder(path: Path, g: Graph, layers: int, hidden: int, vocabulary: int) -> None:
    """BERT without its tokenizer: embeddings, `layers` of attention and feed-forward, a mean, one number."""
    heads = hidden // 64 if hidden >= 128 else 2
    x = g("Add", g("Gather", g.weight(vocabulary, hidden), "x"), g.weight(1, TOKENS, hidden))
    split = g.constant([0, TOKENS, heads, hidden // heads], np.int64)
    whole = g.constant([0, TOKENS, hidden], np.int64)

    def attention(y: str) -> str:
        q, v = (g("Transpose", g("Reshape", g.linear(y, hidden, hidden), split), perm=[0, 2, 1, 3]) for _ in range(2))
        k = g("Transpose", g("Reshape", g.linear(y, hidden, hidden), split), perm=[0, 2, 3, 1])
        weights = g("Softmax", g("Mul", g("MatMul", q, k), g.constant((hidden // heads) ** -0.5)), axis=-1)
        return g.linear(g("Reshape", g("Transpose", g("MatMul", weights, v), perm=[0, 2, 1, 3]), whole), hidden, hidden)

    x = g.norm(x, hidden)
    for _ in range(layers):
        x = g.norm(g("Add", x, attention(x)), hidden)
        x = g.norm(g("Add", x, g.linear(g.gelu(g.linear(x, hidden, 4 * hidden)), 4 * hidden, hidden)), hidden)
    number = g("Sigmoid", g.linear(g("ReduceMean", x, axes=[1], keepdims=0), hidden, 1))
    g("Cast", number, to=TensorProto.FLOAT, output="y")
    g.save(path, [models.tensor("x", TensorProto.INT64, "N", TOKENS)], _answer())


def _classifier(path: Path, g: Graph, side: int, channels: int) -> None:
    """ResNet-50 over pixels; the largest of 1000 probabilities."""
    x = g("Mul", g("Cast", "x", to=g.number), g.constant(1 / 255))
    largest = g("ReduceMax", residual(g, x, channels), axes=[1], keepdims=1)
    g("Cast", largest, to=TensorProto.FLOAT, output="y")
    g.save(path, [models.tensor("x", TensorProto.UINT8, "N", 3, side, side)], _answer())
