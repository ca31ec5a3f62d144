"""Tensors of any shape and constants in the requests of both protocols, to channels in this process."""

import json
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from model_registry import package
from model_registry.package import Package
from scorer.backends import select
from scorer.backends.base import ModelRefused
from scorer.backends.remote import oip_codec, tf_codec
from scorer.backends.remote.remote_model import RemoteBackend
from scorer.settings.model import ModelSettings

SHAPE = (3, 8, 8)
INPUTS = [
    {"tensor": "x", "dtype": "float16", "shape": [*SHAPE], "fields": [{"name": "image", "array": True}]},
    {"tensor": "flag", "dtype": "bool", "value": True},
    {"tensor": "state", "dtype": "float32", "value": 0.5, "shape": [2, 1, 4], "batch": False},
]
SHAPES: dict[str, tuple[str, list[int]]] = {
    "x": ("float16", [-1, 3, 8, 8]),
    "flag": ("bool", [-1]),
    "state": ("float32", [2, 1, 4]),
}
SentTensors = list[dict[str, NDArray[Any]]]


class Channel:
    """A server that answers y = the mean of each x, and records the tensors of its requests."""

    def __init__(self, shapes: Mapping[str, tuple[str, list[int]]] = SHAPES) -> None:
        self.shapes = shapes
        self.sent: SentTensors = []

    def unary_unary(self, path: str, **_: Any) -> Callable[..., Any]:
        method = getattr(self, path.rpartition("/")[2])

        def call(request: Any, timeout: float) -> Any:
            assert timeout > 0
            return method(request)

        def future(request: Any, timeout: float) -> Future[Any]:
            response: Future[Any] = Future()
            response.set_result(call(request, timeout))
            return response

        call.future = future  # type: ignore[attr-defined]
        return call

    def answer(self, tensors: dict[str, NDArray[Any]]) -> NDArray[np.float32]:
        self.sent.append(tensors)
        x = tensors["x"]
        return np.asarray(x.reshape(len(x), -1).mean(axis=1, keepdims=True, dtype=np.float32))


class OpenInference(Channel):
    def ModelReady(self, _: Any) -> Any:  # noqa: N802
        return oip_codec.M["ModelReadyResponse"](ready=True)

    def ModelMetadata(self, _: Any) -> Any:  # noqa: N802
        reply = oip_codec.M["ModelMetadataResponse"]()
        for name, (dtype, shape) in self.shapes.items():
            reply.inputs.add(name=name, datatype=oip_codec.describe(np.empty(0, dtype)), shape=shape)
        reply.outputs.add(name="y", datatype="FP32", shape=[-1, 1])
        return reply

    def ModelInfer(self, request: Any) -> Any:  # noqa: N802
        raw = zip(request.inputs, request.raw_input_contents, strict=True)
        y = self.answer({tensor.name: oip_codec.unpack(tensor, content) for tensor, content in raw})
        reply = oip_codec.M["ModelInferResponse"](raw_output_contents=[y.tobytes()])
        reply.outputs.add(name="y", datatype="FP32", shape=y.shape)
        return reply

    RepositoryModelLoad = RepositoryModelUnload = ModelReady


class TensorFlow(Channel):
    def GetModelStatus(self, _: Any) -> Any:  # noqa: N802
        reply = tf_codec.M["GetModelStatusResponse"]()
        reply.model_version_status.add(version=1, state=30)
        return reply

    def GetModelMetadata(self, _: Any) -> Any:  # noqa: N802
        signatures = tf_codec.M["SignatureDefMap"]()
        signature = signatures.signature_def["serving_default"]
        for name, (dtype, shape) in self.shapes.items():
            signature.inputs[name].dtype = tf_codec.DTYPES[dtype]
            for size in shape:
                signature.inputs[name].tensor_shape.dim.add(size=size)
        signature.outputs["y"].dtype = 1
        reply = tf_codec.M["GetModelMetadataResponse"]()
        reply.metadata["signature_def"].value = signatures.SerializeToString()
        return reply

    def Predict(self, request: Any) -> Any:  # noqa: N802
        y = self.answer({name: tf_codec.decode(tensor) for name, tensor in request.inputs.items()})
        reply = tf_codec.M["PredictResponse"]()
        tf_codec.encode(y, reply.outputs["y"])
        return reply

    HandleReloadConfigRequest = GetModelStatus


KINDS: dict[str, type[Channel]] = {"open-inference": OpenInference, "tf-serving": TensorFlow}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def opened(kind: str, channel: Channel, folder: Path) -> Any:
    settings = ModelSettings.model_validate({"source": "oci:.", "backend": kind, "endpoints": ["here:1"], "load_seconds": 1})
    backend = select.backend_for(settings)
    assert isinstance(backend, RemoteBackend)
    backend._channels = [channel]
    return backend.open(shaped(folder))


def shaped(folder: Path) -> Package:
    (folder / "signature.json").write_text(json.dumps({"inputs": INPUTS, "output": {"tensor": "y"}}))
    (folder / "remote.json").write_text('{"model": "shaped"}')
    return package.read(folder, name="shaped", version="1", digest=f"sha256:{'1':0>64}")


def test_requests_have_the_shapes_and_the_constants(tmp_path: Path, kind: str) -> None:
    model = opened(kind, channel := KINDS[kind](), tmp_path)
    rows = np.random.default_rng(3).normal(size=(1_300, 192)).astype(np.float16)
    means = model.run({"x": rows})["y"]
    np.testing.assert_allclose(means, rows.mean(axis=1, keepdims=True, dtype=np.float32), atol=1e-5)
    warmup, *requests = channel.sent
    assert warmup["x"].shape == (1, *SHAPE)
    assert sum(len(request["x"]) for request in requests) == len(rows)
    assert len(requests) > 1
    for request in channel.sent:
        count = len(request["x"])
        assert {name: (tensor.dtype.name, tensor.shape) for name, tensor in request.items()} == {
            "x": ("float16", (count, *SHAPE)),
            "flag": ("bool", (count,)),
            "state": ("float32", (2, 1, 4)),
        }
        assert request["flag"].all()
        assert (request["state"] == 0.5).all()


@pytest.mark.parametrize(
    ("name", "stated", "message"),
    [
        ("x", ("float16", [-1, 8, 8, 3]), r"signature states \(B, 3, 8, 8\), but the model requires \[None, 8, 8, 3\]"),
        ("x", ("float32", [-1, 3, 8, 8]), "the signature states float16, but the model requires float32"),
        ("x", ("float16", [4, 3, 8, 8]), "input 'x' has the fixed batch size 4"),
        ("flag", ("bool", []), r"signature states \(B\), but the model requires \[\]"),
        ("state", ("float32", [-1, 4]), r"signature states \(2, 1, 4\), but the model requires \[None, 4\]"),
    ],
)
def test_a_model_of_another_shape_is_refused(
    tmp_path: Path, kind: str, name: str, stated: tuple[str, list[int]], message: str
) -> None:
    with pytest.raises(ModelRefused, match=message):
        opened(kind, KINDS[kind](SHAPES | {name: stated}), tmp_path)
