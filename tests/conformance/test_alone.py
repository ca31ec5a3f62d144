"""Models that take one event at a time: their tensors have no batch dimension or a fixed one."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from model_registry.onnx_tools import run_golden_examples
from model_registry.package.golden_examples import GoldenExample
from model_registry.package.signature_schema import parse_signature
from scorer.backends.base import ModelRefused
from tests.conformance.lengths import loaded, scores
from tests.support import models
from tests.unit.scorer.backends.test_shapes_on_servers import KINDS, opened

LENGTHS = (3, 40, 1, 7, 7)


def recogniser(path: Path) -> None:
    """y (1, 2) of x (1, 2, W): the mean of each row of one image."""
    node = helper.make_node("ReduceMean", ["x"], ["y"], axes=[2], keepdims=0)
    inputs, outputs = models.tensor("x", TensorProto.FLOAT, 1, 2, "W"), models.tensor("y", TensorProto.FLOAT, 1, 2)
    models.save([node], [inputs], [outputs], path)


def sound(path: Path) -> None:
    """y () of x (T,) and gain (): the sum of one sound's samples, times the gain."""
    nodes = [helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0), helper.make_node("Mul", ["s", "gain"], ["y"])]
    inputs = [models.tensor("x", TensorProto.FLOAT, "T"), models.tensor("gain", TensorProto.FLOAT)]
    models.save(nodes, inputs, [models.tensor("y", TensorProto.FLOAT)], path)


IMAGE = {
    "tensor": "x",
    "dtype": "float32",
    "shape": [1, 2, -1],
    "fields": [{"name": "x", "array": True, "max_length": 50}],
    "batch": False,
}
SOUND = [IMAGE | {"shape": [-1]}, {"tensor": "gain", "dtype": "float32", "shape": [], "fields": ["gain"], "batch": False}]


def test_images_of_many_widths(tmp_path: Path) -> None:
    recogniser(tmp_path / "model.onnx")
    model = loaded(tmp_path, {"inputs": [IMAGE], "output": {"tensor": "y"}})
    images = [np.arange(2 * width).reshape(1, 2, width) for width in LENGTHS]
    decoded = model.decoder.decode([json.dumps({"x": image.tolist()}).encode() for image in images])
    expected = [image.mean(axis=2)[0].tolist() for image in images]
    assert scores(model, decoded).tolist() == expected
    golden = [GoldenExample({"x": image.ravel().tolist()}, score, 1e-6) for image, score in zip(images, expected, strict=True)]
    assert run_golden_examples.run(tmp_path / "model.onnx", model.model.signature(), golden)


def test_sounds_without_any_batch(tmp_path: Path) -> None:
    sound(tmp_path / "model.onnx")
    model = loaded(tmp_path, {"inputs": SOUND, "output": {"tensor": "y"}})
    values = [json.dumps({"x": [1.0] * length, "gain": at}).encode() for at, length in enumerate(LENGTHS)]
    assert scores(model, model.decoder.decode(values)).tolist() == [at * length for at, length in enumerate(LENGTHS)]
    signature = model.model.signature()
    assert parse_signature(signature.to_json()) == signature
    assert run_golden_examples.run(
        tmp_path / "model.onnx", signature, [GoldenExample({"x": [1.0, 2.0], "gain": 2}, 6.0, 0.0)] * 2
    )


def test_a_fixed_length_too(tmp_path: Path) -> None:
    node = helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)
    models.save(
        [node], [models.tensor("x", TensorProto.FLOAT, 3)], [models.tensor("y", TensorProto.FLOAT)], tmp_path / "model.onnx"
    )
    fed = {"tensor": "x", "dtype": "float32", "fields": ["a", "b", "c"], "batch": False}
    model = loaded(tmp_path, {"inputs": [fed], "output": {"tensor": "y"}})
    decoded = model.decoder.decode([b'{"a": 1, "b": 2, "c": 3}', b'{"a": 0, "b": 0, "c": 1}'])
    assert scores(model, decoded).tolist() == [6.0, 1.0]


def test_a_fixed_batch_size_without_batch_false_is_refused_with_the_remedy(tmp_path: Path) -> None:
    recogniser(tmp_path / "model.onnx")
    with pytest.raises(ModelRefused, match=r'fixed batch size 1; .* or one event at a time \("batch": false\)'):
        loaded(tmp_path, {"inputs": [IMAGE | {"shape": [2, -1], "batch": True}], "output": {"tensor": "y"}})


@pytest.mark.parametrize("kind", KINDS)
def test_servers_do_not_support_one_event_at_a_time(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs: Any = [IMAGE]
    monkeypatch.setattr("tests.unit.scorer.backends.test_shapes_on_servers.INPUTS", inputs)
    with pytest.raises(ModelRefused, match=rf'has "batch": false \(one event at a time\), which {kind} does not support'):
        opened(kind, KINDS[kind](), tmp_path)
