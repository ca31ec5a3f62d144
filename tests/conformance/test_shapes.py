"""Tensors of any shape, from an event's bytes to the model's numbers, compared with direct calls of ONNX Runtime."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from model_registry import package
from model_registry.onnx_tools import run_golden_examples
from model_registry.package.golden_examples import GoldenExample
from model_registry.package.model_inputs import neutral_rows
from model_registry.package.signature import Signature
from scorer.backends import select
from scorer.backends.base import Model, ModelRefused
from scorer.decoding.float32 import Float32Decoder
from scorer.decoding.json.arrays import JsonArrayDecoder, JsonEnvelopeDecoder
from scorer.decoding.json.decoder import JsonDecoder
from scorer.decoding.types import Decoder
from scorer.settings.model import ModelSettings
from tests.support import models

SHAPE = (3, 8, 8)
LARGEST = 1 << 20
RNG = np.random.default_rng(7)
IMAGE = {"tensor": "x", "dtype": "float32", "shape": [*SHAPE], "fields": [{"name": "image", "array": True}]}
BUCKETS = pytest.mark.parametrize("buckets", [(), (1, 4)], ids=["own size", "buckets"])


def convolution(path: Path) -> None:
    """y = the means of a convolution over (B, 3, 8, 8)."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3]),
        helper.make_node("GlobalAveragePool", ["c"], ["p"]),
        helper.make_node("Flatten", ["p"], ["y"]),
    ]
    weights = models.constant("w", np.random.default_rng(1).normal(size=(4, 3, 3, 3)))
    inputs, outputs = models.tensor("x", TensorProto.FLOAT, "N", 3, 8, 8), models.tensor("y", TensorProto.FLOAT, "N", 4)
    models.save(nodes, [inputs], [outputs], path, [weights])


def stateful(path: Path) -> None:
    """y = rate * sum(x) + (sum(state) + gain), with a rate of shape [], a state of (2, 1, 4) and a gain of (B,)."""
    nodes = [
        helper.make_node("Cast", ["rate"], ["r"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["x", "one"], ["s"], keepdims=0),
        helper.make_node("Mul", ["s", "r"], ["m"]),
        helper.make_node("ReduceSum", ["state"], ["t"], keepdims=0),
        helper.make_node("Add", ["m", "t"], ["u"]),
        helper.make_node("Add", ["u", "gain"], ["y"]),
    ]
    inputs = [
        models.tensor("x", TensorProto.FLOAT, "N", 3),
        models.tensor("rate", TensorProto.INT64),
        models.tensor("state", TensorProto.FLOAT, 2, 1, 4),
        models.tensor("gain", TensorProto.FLOAT, "N"),
    ]
    models.save(nodes, inputs, [models.tensor("y", TensorProto.FLOAT, "N")], path, [models.constant("one", [1], np.int64)])


STATE = [[[1.0, 2.0, 3.0, 4.0]], [[0.5, 0.5, 0.5, 0.5]]]
STATEFUL: list[dict[str, Any]] = [
    {"tensor": "x", "dtype": "float32", "fields": ["a", "b", "c"]},
    {"tensor": "rate", "dtype": "int64", "value": 16000, "batch": False},
    {"tensor": "state", "dtype": "float32", "value": STATE, "batch": False},
    {"tensor": "gain", "dtype": "float32", "value": 0.25},
]


def cast(path: Path, kind: int, *shape: int) -> None:
    """y = x as float32, of x of any dtype and shape."""
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)
    models.save([node], [models.tensor("x", kind, "N", *shape)], [models.tensor("y", TensorProto.FLOAT, "N", *shape)], path)


def opened(folder: Path, inputs: Sequence[Any], buckets: tuple[int, ...] = ()) -> Model:
    """Open the model of a folder that already contains its `model.onnx`."""
    (folder / "signature.json").write_text(json.dumps({"inputs": inputs, "output": {"tensor": "y"}}))
    version = package.read(folder, name="shaped", version="1", digest=f"sha256:{'1':0>64}")
    return select.backend_for(ModelSettings(source="oci:.", buckets=list(buckets))).open(version)


def directly(folder: Path, tensors: dict[str, NDArray[Any]]) -> NDArray[Any]:
    session = ort.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    (output,) = session.run(["y"], tensors)
    return np.asarray(output)


def images(count: int = 7) -> NDArray[np.float32]:
    return RNG.normal(size=(count, *SHAPE)).astype(np.float32)


def bare(signature: Signature) -> Decoder:
    return JsonArrayDecoder(signature, LARGEST)


FORMATS: dict[str, tuple[Any, Any]] = {
    "nested": (lambda s: JsonDecoder(s, "id", LARGEST), lambda at, x: {"id": at, "image": x.tolist()}),
    "flat": (lambda s: JsonDecoder(s, "id", LARGEST), lambda at, x: {"id": at, "image": x.ravel().tolist()}),
    "mixed": (lambda s: JsonDecoder(s, "id", LARGEST), lambda at, x: {"image": (x if at % 2 else x.ravel()).tolist()}),
    "json-array nested": (bare, lambda _, x: x.tolist()),
    "json-array flat": (bare, lambda _, x: x.ravel().tolist()),
    "json-envelope nested": (
        lambda s: JsonEnvelopeDecoder(s, "id", LARGEST),
        lambda at, x: {"id": at, "features": x.tolist()},
    ),
    "json-envelope flat": (
        lambda s: JsonEnvelopeDecoder(s, "id", LARGEST),
        lambda at, x: {"id": at, "features": x.ravel().tolist()},
    ),
}


@BUCKETS
@pytest.mark.parametrize("format_", FORMATS)
def test_a_convolution_over_images_in_json(tmp_path: Path, format_: str, buckets: tuple[int, ...]) -> None:
    convolution(tmp_path / "model.onnx")
    model = opened(tmp_path, [IMAGE], buckets)
    decoder, event = FORMATS[format_]
    x = images()
    decoded = decoder(model.signature()).decode([json.dumps(event(at, image)).encode() for at, image in enumerate(x)])
    assert (decoded.rows, decoded.rejected) == (list(range(len(x))), {})
    y = model.run(decoded.tensors)["y"]
    np.testing.assert_allclose(y, directly(tmp_path, {"x": x}), atol=1e-5)


@BUCKETS
def test_a_convolution_over_rows_of_float32(tmp_path: Path, buckets: tuple[int, ...]) -> None:
    convolution(tmp_path / "model.onnx")
    model, x = opened(tmp_path, [IMAGE], buckets), images()
    decoded = Float32Decoder(model.signature(), LARGEST).decode([image.tobytes() for image in x])
    np.testing.assert_allclose(model.run(decoded.tensors)["y"], directly(tmp_path, {"x": x}), atol=1e-5)


@BUCKETS
def test_constants_with_and_without_a_batch(tmp_path: Path, buckets: tuple[int, ...]) -> None:
    stateful(tmp_path / "model.onnx")
    model, x = opened(tmp_path, STATEFUL, buckets), RNG.normal(size=(9, 3)).astype(np.float32)
    state, gain = np.array(STATE, np.float32), np.full(9, 0.25, np.float32)
    expected = directly(tmp_path, {"x": x, "rate": np.array(16000), "state": state, "gain": gain})
    decoders: dict[Any, list[bytes]] = {
        JsonDecoder: [json.dumps(dict(zip("abc", map(float, row), strict=True))).encode() for row in x],
        JsonArrayDecoder: [json.dumps(row.tolist()).encode() for row in x],
        Float32Decoder: [row.tobytes() for row in x],
    }
    for decoder, values in decoders.items():
        decoded = decoder(model.signature(), *([None] if decoder is JsonDecoder else []), LARGEST).decode(values)
        np.testing.assert_allclose(model.run(decoded.tensors)["y"], expected, rtol=1e-6)
    assert model.run(neutral_rows(model.signature()))["y"].tolist() == [12.25]


def test_push_scores_the_golden_examples_of_shapes_and_constants(tmp_path: Path) -> None:
    convolution(tmp_path / "model.onnx")
    x = images(2)
    y = directly(tmp_path, {"x": x})
    nested, flat = {"image": x[0].tolist()}, {"image": x[1].ravel().tolist()}
    examples = [GoldenExample(event, row.tolist(), 1e-5) for event, row in zip((nested, flat), y, strict=True)]
    run_golden_examples.run(tmp_path / "model.onnx", opened(tmp_path, [IMAGE]).signature(), examples)
    stateful(tmp_path / "model.onnx")
    signature = opened(tmp_path, STATEFUL).signature()
    run_golden_examples.run(tmp_path / "model.onnx", signature, [GoldenExample({"a": 1.0, "b": 2.0, "c": 3.0}, 96012.25, 1e-2)])


KINDS: dict[str, tuple[int, list[Any]]] = {
    "float16": (TensorProto.FLOAT16, [0.5, -1.25, 65504.0, 0.0]),
    "float32": (TensorProto.FLOAT, [0.5, -1.25, 3.4e38, 0.0]),
    "float64": (TensorProto.DOUBLE, [0.5, -1.25, 1e30, 0.0]),
    "bool": (TensorProto.BOOL, [True, False, False, True]),
    **{
        name: (getattr(TensorProto, name.upper()), [int(np.iinfo(name).min), int(np.iinfo(name).max), 0, 7])
        for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
    },
}


@BUCKETS
@pytest.mark.parametrize("dtype", KINDS)
def test_every_dtype_in_a_shape(tmp_path: Path, dtype: str, buckets: tuple[int, ...]) -> None:
    kind, values = KINDS[dtype]
    cast(tmp_path / "model.onnx", kind, 2, 2)
    array = {"tensor": "x", "dtype": dtype, "shape": [2, 2], "fields": [{"name": "v", "array": True}]}
    scalars = {"tensor": "x", "dtype": dtype, "shape": [2, 2], "fields": ["a", "b", "c", "d"]}
    expected = directly(tmp_path, {"x": np.array(values, dtype).reshape(1, 2, 2)})
    events: list[tuple[Any, Any]] = [
        (array, {"v": values}),
        (array, {"v": [values[:2], values[2:]]}),
        (scalars, dict(zip("abcd", values, strict=True))),
    ]
    for fed, event in events:
        model = opened(tmp_path, [fed], buckets)
        decoded = JsonDecoder(model.signature(), None, LARGEST).decode([json.dumps(event).encode()])
        assert decoded.rejected == {}
        assert model.run(decoded.tensors)["y"].tolist() == expected.tolist()


def test_strings_in_a_shape(tmp_path: Path) -> None:
    node = helper.make_node("Identity", ["x"], ["y"])
    inputs, outputs = (models.tensor(name, TensorProto.STRING, "N", 2, 2) for name in "xy")
    models.save([node], [inputs], [outputs], tmp_path / "model.onnx")
    fed = {"tensor": "x", "dtype": "string", "shape": [2, 2], "fields": [{"name": "v", "array": True}]}
    model = opened(tmp_path, [fed])
    words = [["a", "é"], ["", "d"]]
    decoded = JsonDecoder(model.signature(), None, LARGEST).decode([json.dumps({"v": words}).encode()] * 2)
    assert model.run(decoded.tensors)["y"].tolist() == [words, words]


def test_one_scalar_field_is_a_tensor_of_the_batch_alone(tmp_path: Path) -> None:
    cast(tmp_path / "model.onnx", TensorProto.INT64)
    for inputs in ([{"tensor": "x", "dtype": "int64", "shape": [], "fields": ["x"]}],):
        model = opened(tmp_path, inputs)
        decoded = JsonDecoder(model.signature(), None, LARGEST).decode([b'{"x": 3}', b'{"x": -4}'])
        assert model.run(decoded.tensors)["y"].tolist() == [3.0, -4.0]


def test_a_shape_is_derived(tmp_path: Path) -> None:
    convolution(tmp_path / "model.onnx")
    version = package.read(tmp_path, name="shaped", version="1", digest=f"sha256:{'1':0>64}")
    model = select.backend_for(ModelSettings(source="oci:.")).open(version)
    x = images(1)
    decoded = JsonDecoder(model.signature(), None, LARGEST).decode([json.dumps({"x": x[0].tolist()}).encode()])
    np.testing.assert_allclose(model.run(decoded.tensors)["y"], directly(tmp_path, {"x": x}), atol=1e-5)


@pytest.mark.parametrize(
    ("fed", "message"),
    [
        (
            {"tensor": "x", "dtype": "float32", "fields": [{"name": "v", "array": True, "length": 192}]},
            "input 'x': the signature states (B, 192), but the model requires ['N', 3, 8, 8]; write \"shape\": [3, 8, 8]",
        ),
        (IMAGE | {"shape": [8, 8, 3]}, "the signature states (B, 8, 8, 3), but the model requires ['N', 3, 8, 8]"),
        (IMAGE | {"dtype": "uint8"}, "the signature states uint8, but the model requires float32"),
    ],
)
def test_another_shape_is_refused(tmp_path: Path, fed: dict[str, Any], message: str) -> None:
    convolution(tmp_path / "model.onnx")
    with pytest.raises(ModelRefused) as caught:
        opened(tmp_path, [fed])
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("at", "change", "message"),
    [
        (1, {"batch": True}, "input 'rate': the signature states (B), but the model requires []; \"batch\" says"),
        (2, {"batch": True}, "the signature states (B, 2, 1, 4), but the model requires [2, 1, 4]"),
        (2, {"value": 0.0, "shape": [2, 4]}, 'the model requires [2, 1, 4]; write "shape": [2, 1, 4]'),
        (3, {"batch": False}, "input 'gain': the signature states (), but the model requires ['N']; \"batch\" says"),
    ],
)
def test_a_constant_of_another_shape_is_refused(tmp_path: Path, at: int, change: dict[str, Any], message: str) -> None:
    stateful(tmp_path / "model.onnx")
    inputs = [declared | change if place == at else declared for place, declared in enumerate(STATEFUL)]
    with pytest.raises(ModelRefused) as caught:
        opened(tmp_path, inputs)
    assert message in str(caught.value)
