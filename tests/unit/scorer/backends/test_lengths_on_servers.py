"""Arrays of varying length in the requests of both protocols, to channels in this process."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from model_registry import package
from model_registry.package.model_inputs import ragged
from model_registry.package.padding import bucket
from scorer.backends import select
from scorer.backends.base import Model, ModelRefused
from scorer.backends.remote.remote_model import RemoteBackend
from scorer.models.length_bucketing import LengthBucketedRuns
from scorer.settings.model import ModelSettings
from tests.unit.scorer.backends.test_shapes_on_servers import KINDS, Channel

INPUTS = [
    {
        "tensor": "x",
        "dtype": "int64",
        "shape": [-1],
        "fields": [{"name": "x", "array": True, "max_length": 100}],
        "pad": 7,
    },
    {"tensor": "mask", "dtype": "float32", "mask_of": "x"},
]
SHAPES = {"x": ("int64", [-1, -1]), "mask": ("float32", [-1, -1])}


def open_model(kind: str, folder: Path, shapes: Any = SHAPES) -> tuple[Channel, Model]:
    def answer(server: Channel, tensors: dict[str, NDArray[Any]]) -> NDArray[np.float32]:
        server.sent.append(tensors)
        return np.asarray((tensors["x"] * tensors["mask"]).sum(axis=1, keepdims=True), np.float32)

    settings = ModelSettings.model_validate({"source": "oci:.", "backend": kind, "endpoints": ["here:1"], "load_seconds": 1})
    backend = select.backend_for(settings)
    assert isinstance(backend, RemoteBackend)
    channel: Any = type("Summing", (KINDS[kind],), {"answer": answer})(shapes)
    backend._channels = [channel]
    (folder / "signature.json").write_text(json.dumps({"inputs": INPUTS, "output": {"tensor": "y"}}))
    (folder / "remote.json").write_text('{"model": "texts"}')
    return channel, backend.open(package.read(folder, name="texts", version="1", digest=f"sha256:{'1':0>64}"))


@pytest.mark.parametrize("kind", KINDS)
def test_events_of_nearly_one_length_are_one_request(tmp_path: Path, kind: str) -> None:
    channel, model = open_model(kind, tmp_path)
    lengths = [3, 100, 5, 0, 60, 40, 33, 4] * 20
    rows = {"x": ragged((np.full(length, at, np.int64) for at, length in enumerate(lengths)), len(lengths))}
    sums = LengthBucketedRuns(model.signature(), 1.0).run(model, rows, lambda: None)["y"]
    assert sums.ravel().tolist() == [at * length for at, length in enumerate(lengths)]
    warmup, *requests = channel.sent
    assert warmup["x"].shape == warmup["mask"].shape == (1, 100)
    assert [request["x"].shape for request in requests] == [(80, 8), (40, 48), (20, 64), (20, 100)]
    assert all(request["x"].shape == request["mask"].shape for request in requests)
    assert all((request["x"][request["mask"] == 0] == 7).all() for request in requests)
    assert {bucket(length, 100) for length in lengths} == {8, 48, 64, 100}


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_whose_model_has_one_length_is_refused(tmp_path: Path, kind: str) -> None:
    with pytest.raises(ModelRefused, match=r"the signature states \(B, -1\), but the model requires \[None, 128\]"):
        open_model(kind, tmp_path, SHAPES | {"x": ("int64", [-1, 128])})
