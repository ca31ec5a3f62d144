"""The networks that are measured, with random weights: an encoder of BERT's base size, a ResNet-50, and a table's perceptron.

What they answer means nothing; what they compute is what the real ones compute.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto

from tests.proofs.bench.workload import network
from tests.support import models
from tests.support.graphs import Graph, residual

TOKENS = 128


@dataclass(frozen=True, slots=True)
class Network:
    """One of them: its input's dtype and width, the format of its events, how a number of an event is drawn, its file."""

    name: str
    dtype: str
    width: int
    event_format: str
    draw: Callable[[np.random.Generator, int], Any]
    write: Callable[[Path], None]

    def package(self, folder: Path) -> Path:
        field = {"name": "x", "array": True, "length": self.width}
        signature = {"inputs": [{"tensor": "x", "dtype": self.dtype, "fields": [field]}], "output": {"tensor": "y", "index": 0}}
        return models.package(folder, self.write, signature)

    def event(self, random: np.random.Generator) -> bytes:
        """As a producer writes it."""
        numbers = self.draw(random, self.width)
        if self.event_format == "float32":
            return bytes(numbers.astype("<f4").tobytes())
        return json.dumps(numbers.tolist(), separators=(",", ":")).encode()


def networks(*, quick: bool) -> list[Network]:
    """All three; `quick`: as small as shows that everything works."""
    bert = (2, 64, 1_000) if quick else (12, 768, 30_522)
    side, channels = (32, 8) if quick else (224, 64)
    return [
        Network("bert-base", "int64", TOKENS, "json-array", _tokens(bert[2]), lambda path: _encoder(path, *bert)),
        Network("resnet-50", "float32", 3 * side * side, "float32", _pixels, lambda path: _resnet(path, side, channels)),
        Network("tab30", "float32", 30, "json-array", _normal, lambda path: network(path, (30, 64, 32, 1), 0)),
    ]


def _tokens(vocabulary: int) -> Callable[[np.random.Generator, int], Any]:
    return lambda random, count: random.integers(0, vocabulary, count)


def _pixels(random: np.random.Generator, count: int) -> Any:
    return random.integers(0, 256, count, np.uint8)


def _normal(random: np.random.Generator, count: int) -> Any:
    return random.normal(size=count).round(6)


def _io(kind: int, width: int) -> tuple[list[Any], list[Any]]:
    return [models.tensor("x", kind, "N", width)], [models.tensor("y", TensorProto.FLOAT, "N", 1)]


def _encoder(path: Path, layers: int, hidden: int, vocabulary: int) -> None:
    """BERT without its tokenizer: embeddings, `layers` of attention and feed-forward, a mean, one number."""
    g, heads = Graph(), hidden // 64 if hidden >= 128 else 2
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
    g("Sigmoid", g.linear(g("ReduceMean", x, axes=[1], keepdims=0), hidden, 1), output="y")
    g.save(path, *_io(TensorProto.INT64, TOKENS))


def _resnet(path: Path, side: int, channels: int) -> None:
    """ResNet-50; the largest of 1000 probabilities."""
    g = Graph()
    x = g("Mul", g("Reshape", "x", g.constant([0, 3, side, side], np.int64)), g.constant(1 / 255))
    g("ReduceMax", residual(g, x, channels), axes=[1], keepdims=1, output="y")
    g.save(path, *_io(TensorProto.FLOAT, 3 * side * side))


def pool(network: Network, count: int) -> Sequence[bytes]:
    """`count` events, of which a few differ."""
    random = np.random.default_rng(1)
    few = [network.event(random) for _ in range(min(count, 64))]
    return [few[number % len(few)] for number in range(count)]
