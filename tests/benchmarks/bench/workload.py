"""The workload of the measurements: a small network over any number of features, its package, and events for it.

With 30 features it is the workload `tab30` of the side-by-side benchmark: 30 named floats in about 500 bytes of JSON, and a
network of 30-64-32-1. Everything follows from the number of features and a fixed seed.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from model_registry.package.signature import Signature
from model_registry.package.signature_schema import parse_signature
from tests.support import models

POOL = 200  # distinct events; their ids differ
HIDDEN = (64, 32)
KEYS = 1_000


@dataclass(frozen=True, slots=True)
class Workload:
    """Float features, named by the pattern `named`, or one `array` of them, `x`.

    Numbers are written with `decimals` decimal places. `hidden` are the widths of the network's hidden layers.
    """

    features: int = 30
    named: str = "f{}"
    decimals: int = 6
    hidden: tuple[int, ...] = HIDDEN
    array: bool = False

    @property
    def names(self) -> list[str]:
        return ["x"] if self.array else [self.named.format(k) for k in range(self.features)]

    @property
    def signature(self) -> Signature:
        fields = [{"name": "x", "array": True, "length": self.features}] if self.array else self.names
        inputs = [{"tensor": "x", "dtype": "float32", "fields": fields}]
        return parse_signature(json.dumps({"inputs": inputs, "output": {"tensor": "y"}}))

    def package(self, folder: Path, seed: int = 0) -> Path:
        """Write a model version; the weights depend on the seed."""
        signature = json.loads(self.signature.to_json())
        return models.package(folder, lambda path: network(path, (self.features, *self.hidden, 1), seed), signature)

    def rows(self) -> list[list[float]]:
        rows: list[list[float]] = np.random.default_rng(7).normal(size=(POOL, self.features)).round(self.decimals).tolist()
        return rows

    def event(self, row: list[float]) -> dict[str, Any]:
        """Return a row of the pool by the names of its fields."""
        return {"x": row} if self.array else dict(zip(self.names, row, strict=True))

    def bodies(self) -> list[bytes]:
        """Return the pool as JSON: the text of each event after its id."""
        names, digits = self.names, self.decimals
        if self.array:
            return [b'"x":%b}' % json.dumps(row).encode() for row in self.rows()]
        return [
            b",".join(b'"%s":%.*f' % (n.encode(), digits, v) for n, v in zip(names, row, strict=True)) + b"}"
            for row in self.rows()
        ]

    def events(self, count: int) -> Iterator[bytes]:
        """Return the events with the ids 0 to `count`, each once."""
        pool = self.bodies()
        for number in range(count):
            yield event(pool, number)


HELD_OUT = Workload(75, "minutes_lost_at_checkpoint_{}", 9, (128, 128, 16))
"""A workload with other fields and sizes and another model; no design was chosen by its cost."""


def event(pool: list[bytes], number: int) -> bytes:
    """Return an event of the pool with this id."""
    return b'{"id":%d,' % number + pool[number % len(pool)]


def key(number: int) -> bytes:
    return b"k%d" % (number % KEYS)


def headers(number: int) -> list[tuple[str, str | bytes | None]]:
    """Return headers of an event as a producer may set them: its id, its deadline and its trace."""
    trace = b"00-%032x-%016x-01" % (number + 1, number + 1)
    return [("ce_id", b"%d" % number), ("deadline", b"4102444800000"), ("traceparent", trace)]


def network(path: Path, sizes: tuple[int, ...], seed: int) -> None:
    """Write a multilayer perceptron with a sigmoid at its end."""
    random, nodes, weights, last = np.random.default_rng(seed), [], [], "x"
    for layer, (wide, narrow) in enumerate(pairwise(sizes)):
        final = layer == len(sizes) - 2
        matrix = (random.normal(size=(wide, narrow)) / np.sqrt(wide)).astype(np.float32)
        weights.append(numpy_helper.from_array(matrix, f"w{layer}"))
        weights.append(numpy_helper.from_array(np.zeros(narrow, np.float32), f"b{layer}"))
        nodes.append(helper.make_node("Gemm", [last, f"w{layer}", f"b{layer}"], [f"g{layer}"]))
        last = "y" if final else f"a{layer}"
        nodes.append(helper.make_node("Sigmoid" if final else "Relu", [f"g{layer}"], [last]))
    io = models.tensor("x", TensorProto.FLOAT, "N", sizes[0]), models.tensor("y", TensorProto.FLOAT, "N", sizes[-1])
    models.save(nodes, [io[0]], [io[1]], path, weights)


def configuration(name: str, bootstrap_servers: str, delivery: str) -> str:
    """Return a configuration that differs from the defaults in names and addresses only. JSON is YAML."""
    return json.dumps(
        {
            "name": name,
            "kafka": {"bootstrap_servers": bootstrap_servers},
            "input": {"topics": [f"{name}.events"], "id": "id"},
            "output": {"topic": f"{name}.scores"},
            "model": {"source": "oci:./registry/model", "cache": "./cache"},
            "delivery": delivery,
            "http": {"listen": "127.0.0.1:0"},
        },
        indent=1,
    )
