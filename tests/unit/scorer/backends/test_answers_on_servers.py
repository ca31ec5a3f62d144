"""Outputs of any shape and dtype in the answers of both protocols, and their metadata on the server."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from model_registry import package
from scorer.backends import select
from scorer.backends.base import InferenceFailed, ModelRefused
from scorer.backends.remote import oip_codec, tf_codec
from scorer.backends.remote.remote_model import RemoteBackend
from scorer.scores.outputs import Scores
from scorer.settings.model import ModelSettings
from tests.support import detector
from tests.unit.scorer.backends import test_shapes_on_servers as servers

STATED: dict[str, tuple[str, list[int]]] = {
    "boxes": ("float32", [-1, 2, 4]),
    "p": ("float32", [-1, 3]),
    "word": ("string", [-1]),
    "sure": ("bool", [-1]),
    "best": ("int64", [-1]),
}
DTYPES = {"string": object}


def detector_outputs_of(x: NDArray[Any]) -> dict[str, NDArray[Any]]:
    rows = [detector.answer(*row) for row in x.tolist()]
    p = np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
    outputs = {"boxes": np.array([row["boxes"] for row in rows], np.float32), "p": p.astype(np.float32)}
    kinds = {"word": object, "sure": bool, "best": np.int64}
    return outputs | {name: np.array([row[name] for row in rows], kind) for name, kind in kinds.items()}


class OpenInference(servers.OpenInference):
    stated = STATED

    def ModelMetadata(self, _: Any) -> Any:  # noqa: N802
        reply = oip_codec.M["ModelMetadataResponse"]()
        reply.inputs.add(name="x", datatype="FP32", shape=[-1, 3])
        for name, (dtype, shape) in self.stated.items():
            reply.outputs.add(name=name, datatype=oip_codec.describe(np.empty(0, DTYPES.get(dtype, dtype))), shape=shape)
        return reply

    def ModelInfer(self, request: Any) -> Any:  # noqa: N802
        outputs = detector_outputs_of(oip_codec.unpack(request.inputs[0], request.raw_input_contents[0]))
        reply = oip_codec.M["ModelInferResponse"](raw_output_contents=map(oip_codec.pack, outputs.values()))
        for name, output in outputs.items():
            reply.outputs.add(name=name, datatype=oip_codec.describe(output), shape=output.shape)
        return reply


class TensorFlow(servers.TensorFlow):
    stated = STATED

    def GetModelMetadata(self, _: Any) -> Any:  # noqa: N802
        signatures = tf_codec.M["SignatureDefMap"]()
        signature = signatures.signature_def["serving_default"]
        for signature_tensors, stated in ((signature.inputs, {"x": ("float32", [-1, 3])}), (signature.outputs, self.stated)):
            for name, (dtype, shape) in stated.items():
                signature_tensors[name].dtype = tf_codec.DTYPES[dtype]
                for size in shape:
                    signature_tensors[name].tensor_shape.dim.add(size=size)
        reply = tf_codec.M["GetModelMetadataResponse"]()
        reply.metadata["signature_def"].value = signatures.SerializeToString()
        return reply

    def Predict(self, request: Any) -> Any:  # noqa: N802
        reply = tf_codec.M["PredictResponse"]()
        for name, output in detector_outputs_of(tf_codec.decode(request.inputs["x"])).items():
            tf_codec.encode(output, reply.outputs[name])
        return reply


KINDS: dict[str, Any] = {"open-inference": OpenInference, "tf-serving": TensorFlow}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def open_detector(kind: str, folder: Path, channel: Any = None, **parts: Any) -> Any:
    (folder / "signature.json").write_text(json.dumps(detector.SIGNATURE | parts))
    (folder / "remote.json").write_text('{"model": "detector"}')
    settings = ModelSettings.model_validate({"source": "oci:.", "backend": kind, "endpoints": ["here:1"], "load_seconds": 1})
    backend = select.backend_for(settings)
    assert isinstance(backend, RemoteBackend)
    backend._channels = [channel or KINDS[kind]()]
    return backend.open(package.read(folder, name="detector", version="1", digest=f"sha256:{'1':0>64}"))


def test_a_detector_on_a_server_answers(tmp_path: Path, kind: str) -> None:
    model = open_detector(kind, tmp_path)
    x = np.random.default_rng(5).normal(size=(700, 3)).astype(np.float32)
    scores = Scores(model.signature(), model.run({"x": x}))
    for row, encoded in zip(x.tolist(), scores.encoded(), strict=True):
        expected, score = detector.answer(*row), json.loads(encoded)
        assert [detected["label"] for detected in score["classes"]] == [detected["label"] for detected in expected["classes"]]
        np.testing.assert_allclose(score["boxes"], expected["boxes"], rtol=1e-5)
        assert [score[name] for name in ("word", "sure", "best")] == [expected[name] for name in ("word", "sure", "best")]


@pytest.mark.parametrize(
    ("name", "stated", "message"),
    [
        ("boxes", ("float32", [-1, 3, 4]), "the signature states (B, 2, 4), but the model gives (-1, 3, 4)"),
        (
            "p",
            ("float32", [-1, 1000]),
            "output 'p' must have the shape (B, 3), one column for each label, but the model gives (-1, 1000)",
        ),
        ("p", ("string", [-1, 3]), "output 'p' is string; only a row of numbers has a largest element"),
    ],
)
def test_server_metadata_that_conflicts_with_the_signature_is_refused(
    tmp_path: Path, kind: str, name: str, stated: tuple[str, list[int]], message: str
) -> None:
    channel = KINDS[kind]()
    channel.stated = STATED | {name: stated}
    with pytest.raises(ModelRefused) as refused:
        open_detector(kind, tmp_path, channel)
    assert message in str(refused.value)


def test_an_answer_without_a_row_for_each_event_fails(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = open_detector(kind, tmp_path)
    detector_outputs = detector_outputs_of
    monkeypatch.setitem(
        globals(), "detector_outputs_of", lambda x: detector_outputs(x) | {"boxes": np.zeros((100, 4), np.float32)}
    )
    with pytest.raises(InferenceFailed, match="output 'boxes' has shape"):
        model.run({"x": np.zeros((3, 3), np.float32)})
