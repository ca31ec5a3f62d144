"""Shared by tests of variable lengths: a small text model, sums of arrays, and events in each format."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper

from model_registry import package
from model_registry.package.signature import Signature
from scorer.decoding.types import Decoded
from scorer.models.loaded_model import LoadedModel, loader
from scorer.schema_export.generate import GENERATORS
from scorer.settings import Settings, load
from tests.support import models
from tests.support.graphs import encoder_inputs
from tests.unit.scorer.decoding.schema_events import avro_encoder, proto_class, settings_of

LONGEST, VOCABULARY = 200, 50
IDS, TYPES, MASK = encoder_inputs(LONGEST)
TEXT: dict[str, Any] = {"inputs": [IDS, TYPES, MASK], "output": {"tensor": "y"}}
Event = dict[str, Any]


def loaded(folder: Path, signature: dict[str, Any] = TEXT, **values: Any) -> LoadedModel:
    """Load a version as a scorer does. The folder contains its `model.onnx`."""
    (folder / "signature.json").write_text(json.dumps(signature))
    basis: dict[str, Any] = {
        "name": "lengths",
        "kafka": {"bootstrap_servers": "127.0.0.1:1"},
        "input": {"topics": ["events"]},
        "output": {"topic": "scores"},
        "model": {"source": "oci:.", **values},
        "batching": {"max_events": 8},
    }
    return loader(load(basis).settings)(package.read(folder, name="lengths", version="1", digest=f"sha256:{'1':0>64}"))


def scores(model: LoadedModel, decoded: Decoded) -> NDArray[Any]:
    return np.asarray(model.score(decoded.tensors).columns[None])


def encode(format_: str, signature: Signature, folder: Path) -> tuple[Settings, Callable[[Event], bytes]]:
    """Return the settings of a format and a function that writes an event in it, by the schema that the product prints."""

    def elements(event: Event) -> list[Any]:
        return [event.get(field.name) for field in signature.fields]

    if format_ == "json":
        return settings_of("json"), lambda event: json.dumps(event).encode()
    if format_ == "json-array":
        return settings_of("json-array", id="header:ce_id"), lambda event: json.dumps(elements(event)).encode()
    if format_ == "json-envelope":
        return settings_of("json-envelope"), lambda event: json.dumps({"features": elements(event)}).encode()
    schema = GENERATORS[format_](signature, "event", None)
    file = folder / ("event.avsc" if format_ == "avro" else "event.proto")
    file.write_text(schema)
    configured = settings_of(format_, schema_file=file, id="header:ce_id")
    if format_ == "avro":
        return configured, avro_encoder(json.loads(schema))
    message = proto_class(schema, "Event")
    return configured, lambda event: bytes(message(**event).SerializeToString())


def total(path: Path, shape: tuple[Any, ...]) -> None:
    """y (B, 1) = the sum of x (B, *shape) and its length n (B,)."""
    axes = list(range(1, len(shape) + 1))
    nodes = [
        helper.make_node("ReduceSum", ["x", "axes"], ["s"], keepdims=0),
        helper.make_node("Add", ["s", "n"], ["t"]),
        helper.make_node("Unsqueeze", ["t", "one"], ["y"]),
    ]
    inputs = [models.tensor("x", TensorProto.FLOAT, "N", *shape), models.tensor("n", TensorProto.FLOAT, "N")]
    constants = [models.constant("axes", axes, np.int64), models.constant("one", [1], np.int64)]
    models.save(nodes, inputs, [models.tensor("y", TensorProto.FLOAT, "N", 1)], path, constants)
