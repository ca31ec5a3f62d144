"""Arrays whose length varies on any axis, nested, flat, absent and as rows of numbers."""

import json
from pathlib import Path

import numpy as np
import pytest

from model_registry.package.signature_schema import parse_signature
from scorer.dead_letters.reasons import Reason
from scorer.decoding import decoder_factory
from tests.conformance.lengths import encode, loaded, scores, total
from tests.unit.scorer.decoding.schema_events import avro_encoder, settings_of


@pytest.mark.parametrize("pad", [None, 0])
@pytest.mark.parametrize("shape", [(-1,), (-1, 3), (3, -1)])
def test_any_axis_nested_and_flat_with_a_length_and_without_a_mask(
    tmp_path: Path, shape: tuple[int, ...], pad: int | None
) -> None:
    total(tmp_path / "model.onnx", tuple("T" if size < 0 else size for size in shape))
    x = {"tensor": "x", "dtype": "float32", "shape": [*shape], "fields": [{"name": "x", "array": True, "max_length": 40}]}
    fed = [x | {"pad": pad}, {"tensor": "n", "dtype": "float32", "length_of": "x"}]
    model = loaded(tmp_path, {"inputs": fed, "output": {"tensor": "y"}})
    random = np.random.default_rng(5)
    rows = [random.integers(0, 9, [size if size > 0 else length for size in shape]) for length in (0, 1, 7, 7, 30, 40, 9)]
    values = [json.dumps({"x": (row if at % 2 else row.ravel()).tolist()}).encode() for at, row in enumerate(rows)]
    decoded = model.decoder.decode(values)
    assert decoded.rejected == {}
    lengths = [row.shape[shape.index(-1)] for row in rows]
    assert scores(model, decoded).tolist() == [row.sum() + n for row, n in zip(rows, lengths, strict=True)]


def test_frames_are_nested_in_avro_too(tmp_path: Path) -> None:
    tensor = {"tensor": "x", "dtype": "float32", "shape": [-1, 2], "fields": [{"name": "x", "array": True, "max_length": 3}]}
    signature = parse_signature(json.dumps({"inputs": [tensor], "output": {"tensor": "y"}}))
    frames = {"type": "array", "items": {"type": "array", "items": "float"}}
    schema = {"type": "record", "name": "Event", "fields": [{"name": "x", "type": frames}]}
    (tmp_path / "event.avsc").write_text(json.dumps(schema))
    configured = settings_of("avro", schema_file=tmp_path / "event.avsc", id="header:ce_id")
    write, good = avro_encoder(schema), [[[1.0, 2.0]], [], [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]]
    bad = [[[1.0, 2.0], [3.0]], [[1.0, 2.0]] * 4]
    decoded = decoder_factory.create_decoder(configured, signature).decode([write({"x": frames}) for frames in good + bad])
    assert [row.tolist() for row in decoded.tensors["x"]] == good
    assert [str(poison) for poison in decoded.rejected.values()] == [
        "field 'x'[1]: an array of 2 was expected, not of 1 (shape [-1, 2], nested or flat)",
        "field 'x': a length of at most 3 was expected, not 4 (shape [-1, 2], nested or flat)",
    ]


def test_an_absent_array_may_be_an_empty_one(tmp_path: Path) -> None:
    total(tmp_path / "model.onnx", ("T",))
    field = {"name": "x", "array": True, "max_length": 40, "required": False}
    fed = [
        {"tensor": "x", "dtype": "float32", "shape": [-1], "fields": [field], "pad": 0},
        {"tensor": "n", "dtype": "float32", "length_of": "x"},
    ]
    model = loaded(tmp_path, {"inputs": fed, "output": {"tensor": "y"}})
    signature = model.model.signature()
    for format_ in ("json", "avro", "protobuf"):
        configured, write = encode(format_, signature, tmp_path)
        values = [write({"x": [1.0, 2.0]}), write({}), write({"x": []})]
        decoded = decoder_factory.create_decoder(configured, signature).decode(values)
        assert decoded.rejected == {}
        assert scores(model, decoded).tolist() == [5.0, 0.0, 0.0]


def test_numbers_that_are_not_finite_in_an_array(tmp_path: Path) -> None:
    total(tmp_path / "model.onnx", ("T",))
    x = {"tensor": "x", "dtype": "float32", "shape": [-1], "fields": [{"name": "x", "array": True, "max_length": 40}]}
    model = loaded(tmp_path, {"inputs": [x, {"tensor": "n", "dtype": "float32", "length_of": "x"}], "output": {"tensor": "y"}})
    decoded = model.decoder.decode([b'{"x": [1]}', b'{"x": [1, NaN]}', b'{"x": [1e39]}', b'{"x": [1, 2]}'])
    assert decoded.rows == [0, 3]
    assert {row: poison.reason for row, poison in decoded.rejected.items()} == {1: Reason.NOT_FINITE, 2: Reason.NOT_FINITE}
    assert scores(model, decoded).tolist() == [2.0, 5.0]


@pytest.mark.parametrize(("shape", "multiple"), [([-1], 4), ([-1, 2], 8), ([2, -1], 8)])
def test_rows_of_float32_have_any_length_up_to_the_bound(shape: list[int], multiple: int) -> None:
    tensor = {"tensor": "x", "dtype": "float32", "shape": shape, "fields": [{"name": "x", "array": True, "max_length": 4}]}
    signature = parse_signature(json.dumps({"inputs": [tensor], "output": {"tensor": "y"}}))
    decoder = decoder_factory.create_decoder(settings_of("float32", id="header:ce_id"), signature)
    rows = [np.arange(length * multiple // 4, dtype="<f4") for length in (0, 1, 4, 5)]
    decoded = decoder.decode([*(row.tobytes() for row in rows), b"123", np.full(multiple // 4, np.nan, "<f4").tobytes(), None])
    assert decoded.rows == [0, 1, 2]
    for array, row in zip(decoded.tensors["x"], rows, strict=False):
        np.testing.assert_array_equal(array, row.reshape(shape))
    expected = f"the length must be a multiple of {multiple} and at most {4 * multiple}"
    assert {row: str(poison) for row, poison in decoded.rejected.items()} == {
        3: f"the value has {5 * multiple} bytes; {expected}",
        4: f"the value has 3 bytes; {expected}",
        5: f"field 'x'{'[0]' * len(shape)} is nan",
        6: "the value is null",
    }
