"""Bytes of any length, such as files: from every place of a record to the model's own decoder, and rejected ones."""

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from model_registry import package
from model_registry.errors import Refused
from model_registry.onnx_tools.prepare_package import prepare
from model_registry.package.signature import Signature
from model_registry.package.signature_schema import parse_signature
from scorer.backends.base import ModelRefused
from scorer.dead_letters.reasons import Reason
from scorer.decoding import decoder_factory
from scorer.decoding.record_metadata import ListedMetadata
from scorer.decoding.types import FormatMismatch
from scorer.models.loaded_model import LoadedModel, loader
from scorer.schema_export.generate import GENERATORS
from scorer.schema_export.incompatible_changes import find_incompatible_changes
from tests.conformance.test_bytes import WAYS, ways
from tests.support import images, models
from tests.unit.scorer.decoding.schema_events import settings_of
from tests.unit.scorer.minimal import minimal

MAX_LENGTH = 6
DOMAINS = ["com.microsoft", images.DOMAIN]
GOLDEN = [{"event": {"image": base64.b64encode(images.plain(3, 2, 1)).decode()}, "score": [1, 2, 3], "tolerance": 1e-4}]


@pytest.fixture(scope="module")
def byte_sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return ways(tmp_path_factory.mktemp("schemas"))


def of_files(dtype: str, source: str | None, shape: Sequence[int] = (-1,), **more: Any) -> Signature:
    field = {"name": "v", "bytes": True, "max_length": MAX_LENGTH, **({"from": source} if source else {}), **more}
    tensor = {"tensor": "x", "dtype": dtype, "shape": shape, "fields": [field]}
    return parse_signature(json.dumps({"inputs": [tensor], "output": {"tensor": "y"}}))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("dtype", "shape"), [("uint8", [-1]), ("int16", [-1]), ("float32", [2, -1]), ("bool", [-1])])
@settings(max_examples=10)
@given(
    data=st.lists(st.integers(0, MAX_LENGTH * 8 + 3).map(lambda n: bytes([0, 1] * 30)[:n]) | st.binary(max_size=9), max_size=5)
)
def test_bytes_become_rows_or_are_rejected_with_their_length(
    byte_sources: Mapping[str, Any], way: str, dtype: str, shape: list[int], data: list[bytes]
) -> None:
    configuration, source, write = byte_sources[way]
    values, keys, headers = ([write(content)[at] for content in data] for at in range(3))
    decoded = decoder_factory.create_decoder(configuration, of_files(dtype, source, shape)).decode(
        values, ListedMetadata(keys, [5] * len(data), headers)
    )
    step = (2 if len(shape) > 1 else 1) * np.dtype(dtype).itemsize
    fits = [row for row, content in enumerate(data) if len(content) % step == 0 and len(content) <= MAX_LENGTH * step]
    assert sorted([*decoded.rows, *decoded.rejected]) == list(range(len(data)))
    assert set(decoded.rows) <= set(fits)
    for at, row in enumerate(decoded.rows):
        tensor = decoded.tensors["x"][at]
        assert (tensor.tobytes(), tensor.dtype) == (data[row], np.dtype(dtype))
        assert tensor.shape == tuple(len(data[row]) // step if size == -1 else size for size in shape)
    where = f" ({source})" if source else ""
    for row, poison in decoded.rejected.items():
        if row in fits:  # of a bool, or an infinity
            assert dtype in ("bool", "float32")
            continue
        expected = f"at most {MAX_LENGTH * step} were" if len(data[row]) > MAX_LENGTH * step else f"a multiple of {step} was"
        assert poison.reason is Reason.WRONG_TYPE
        assert str(poison).startswith(f"field 'v'{where}: {len(data[row])} bytes, but {expected} expected ({dtype}{shape}")


def test_absent_bytes_may_be_none() -> None:
    decoder = decoder_factory.create_decoder(settings_of("json"), of_files("uint8", None, required=False))
    assert [row.tolist() for row in decoder.decode([b'{"v": "AQI="}', b"{}", b'{"v": null}']).tensors["x"]] == [[1, 2], [], []]
    strict = decoder_factory.create_decoder(settings_of("json"), of_files("uint8", None)).decode(
        [b"{}", b'{"v": "!"}', b'{"v": [1]}']
    )
    assert {row: str(poison) for row, poison in strict.rejected.items()} == {
        0: "required field 'v' is missing or null",
        1: "field 'v': the text is not base64 (standard alphabet, padded)",
        2: "field 'v': Expected `bytes`, got `array`",
    }


def test_rows_of_float32_do_not_support_varying_bytes() -> None:
    message = r"supports a varying length only for a single tensor of floats, not x \(bytes of float32\)"
    with pytest.raises(FormatMismatch, match=message):
        decoder_factory.create_decoder(settings_of("float32", id="header:ce_id"), of_files("float32", None))


def test_schemas_of_byte_fields() -> None:
    signature = of_files("int16", None)
    assert json.loads(GENERATORS["json-schema"](signature, "event", None))["properties"]["v"] == {
        "type": "string",
        "contentEncoding": "base64",
        "minLength": 0,
        "maxLength": 16,
    }
    assert json.loads(GENERATORS["avro"](signature, "event", None))["fields"] == [{"name": "v", "type": "bytes"}]
    assert "optional bytes v = 1;" in GENERATORS["protobuf"](signature, "event", None)


def test_a_smaller_bound_is_an_incompatible_change() -> None:
    smaller, larger, fixed = (
        of_files("uint8", None, max_length=n) if n else of_files("uint8", None, (4,), max_length=None) for n in (6, 9, 0)
    )
    assert (find_incompatible_changes(smaller, larger), find_incompatible_changes(fixed, smaller)) == ([], [])
    (change,) = find_incompatible_changes(larger, smaller)
    assert change.change == "is the bytes of uint8[-1] up to 6 now, and was the bytes of uint8[-1] up to 9 before"
    (change,) = find_incompatible_changes(smaller, fixed)
    assert change.change == "is bytes of 4 elements now, and was the bytes of uint8[-1] up to 6 before"


def load_version(folder: Path, signature: Mapping[str, Any], **values: Any) -> LoadedModel:
    version = package.read(folder, name="files", version="1", digest=f"sha256:{'1':0>64}")
    assert version.signature == parse_signature(json.dumps(signature))
    return loader(minimal(model={"op_domains": DOMAINS}, batching={"max_events": 8}, **values))(version)


def test_image_files_go_to_the_models_own_decoder(tmp_path: Path) -> None:
    field = images.FILE | {"from": "value"}
    signature = images.COLOUR | {"inputs": [images.COLOUR["inputs"][0] | {"fields": [field]}]}
    folder = models.package(tmp_path / "colour", images.colour, signature, GOLDEN)
    assert prepare(folder, op_domains=DOMAINS).onnxruntime_version
    model = load_version(folder, signature, input={"format": "bytes", "id": "header:ce_id", "max_event_bytes": 3_000_000})
    files = [images.plain(10, 20, 30), images.plain(1, 2, 3, 400, 300), images.plain(255, 0, 0, 1, 1)]
    decoded = model.decoder.decode([*files, bytes(2_000_001)])
    assert model.score(decoded.tensors).encoded() == [b"[30.0,20.0,10.0]", b"[3.0,2.0,1.0]", b"[0.0,0.0,255.0]"]
    message = "2000001 bytes, but at most 2000000 were expected (uint8[-1] up to 2000000)"
    assert str(decoded.rejected[3]) == f"field 'image' (value): {message}"


def test_a_decoder_of_files_is_not_tried_on_zeros(tmp_path: Path) -> None:
    folder = models.package(tmp_path / "colour", images.colour, images.COLOUR)
    message = "field 'image' holds bytes of any length, such as a file, and there is no example of a valid value"
    with pytest.raises(Refused, match=message):
        prepare(folder, op_domains=DOMAINS)
    with pytest.raises(ModelRefused, match=f"{message}; give at least one event in golden.jsonl"):
        load_version(folder, images.COLOUR)


def padded(dtype: str) -> dict[str, Any]:
    field = {"name": "x", "bytes": True, "max_length": 40}
    fed = {"tensor": "x", "dtype": dtype, "shape": [-1], "pad": 0, "fields": [field]}
    return {"inputs": [fed, {"tensor": "n", "dtype": "float32", "length_of": "x"}], "output": {"tensor": "y"}}


@pytest.mark.parametrize(("dtype", "kind"), [("uint8", TensorProto.UINT8), ("int16", TensorProto.INT16)])
def test_bytes_of_many_lengths_are_padded_and_run_together(tmp_path: Path, dtype: str, kind: int) -> None:
    sound = np.arange(7).astype(np.dtype(dtype).newbyteorder("<"))
    golden = [{"event": {"x": base64.b64encode(sound.tobytes()).decode()}, "score": 2107.0, "tolerance": 1e-3}]
    folder = models.package(tmp_path / "total", lambda path: images.total(path, kind), padded(dtype), golden)
    assert prepare(folder).onnxruntime_version
    model = load_version(folder, padded(dtype))
    rows = [sound[:length] for length in (7, 0, 1, 3, 7)]
    decoded = model.decoder.decode([json.dumps({"x": base64.b64encode(row.tobytes()).decode()}).encode() for row in rows])
    expected = [100.0 * row.sum() + len(row) for row in rows]
    assert [float(score) for score in model.score(decoded.tensors).encoded()] == expected
