"""Events of different lengths in one batch: each gets the answer that ONNX Runtime, called directly, returns for it alone."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from onnx import TensorProto, helper

from model_registry.errors import Refused
from model_registry.onnx_tools import run_golden_examples
from model_registry.package.golden_examples import GoldenExample
from model_registry.package.signature_schema import parse_signature
from scorer.backends.base import BackendMissing, ModelRefused
from scorer.dead_letters.reasons import Reason
from scorer.decoding import decoder_factory
from scorer.decoding.types import FormatMismatch
from scorer.models.loaded_model import LoadedModel
from scorer.schema_export.generate import GENERATORS
from tests.conformance.lengths import LONGEST, TEXT, VOCABULARY, Event, encode, loaded, scores, total
from tests.support import models
from tests.support.graphs import encoder
from tests.unit.scorer.decoding.formats import damaged
from tests.unit.scorer.decoding.schema_events import settings_of

FORMATS = ("json", "json-array", "json-envelope", "avro", "protobuf")
some = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def texts(min_length: int = 1) -> Any:
    """Draw events whose arrays have the same length."""
    return st.integers(min_length, LONGEST).flatmap(
        lambda n: st.fixed_dictionaries(
            {
                "ids": st.lists(st.integers(0, VOCABULARY - 1), min_size=n, max_size=n),
                "types": st.lists(st.integers(0, 1), min_size=n, max_size=n),
            }
        )
    )


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = tmp_path_factory.mktemp("text")
    encoder(folder / "model.onnx", 1, 16, VOCABULARY, LONGEST, types=True)
    return loaded(folder)


@pytest.fixture(scope="module")
def session(text: LoadedModel) -> Any:
    inside: Any = text.model
    return inside._session


def alone(session: Any, event: Event) -> float:
    """Return the score of an event by a direct call of ONNX Runtime, without padding."""
    ids, types = (np.array([event[name]], np.int64) for name in ("ids", "types"))
    inputs = {"input_ids": ids, "token_type_ids": types, "attention_mask": np.ones_like(ids)}
    return float(session.run(["y"], inputs)[0][0, 0])


@some
@given(events=st.lists(texts(), min_size=1, max_size=12))
def test_each_event_gets_the_same_answer_as_alone(text: LoadedModel, session: Any, events: list[Event]) -> None:
    decoded = text.decoder.decode([json.dumps(event).encode() for event in events])
    assert (decoded.rows, decoded.rejected) == (list(range(len(events))), {})
    np.testing.assert_allclose(scores(text, decoded), [alone(session, event) for event in events], atol=1e-5)


@pytest.fixture(scope="module", params=FORMATS)
def codec(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    signature = parse_signature(json.dumps(TEXT))
    configured, write = encode(request.param, signature, tmp_path_factory.mktemp("schemas"))
    return decoder_factory.create_decoder(configured, signature), write


@some
@given(data=st.data())
def test_every_format_reads_the_same(text: LoadedModel, codec: Any, data: st.DataObject) -> None:
    decoder, write = codec
    events = data.draw(st.lists(texts(), max_size=5))
    decoded = decoder.decode([write(event) for event in events])
    assert (decoded.rows, decoded.rejected) == (list(range(len(events))), {})
    expected = text.decoder.decode([json.dumps(event).encode() for event in events])
    for name, tensor in expected.tensors.items():
        assert [row.tolist() for row in decoded.tensors[name]] == [row.tolist() for row in tensor]
        assert {row.dtype for row in decoded.tensors[name]} <= {np.dtype(np.int64)}


@some
@given(data=st.data())
def test_any_bytes_are_decoded_or_rejected_alone_as_in_a_batch(codec: Any, data: st.DataObject) -> None:
    decoder, write = codec
    encoded = [write(event) for event in data.draw(st.lists(texts(0), max_size=4))]
    values = [data.draw(st.just(value) | damaged(value) | st.binary(max_size=20)) for value in encoded]
    batch = decoder.decode(values)
    assert sorted([*batch.rows, *batch.rejected]) == list(range(len(values)))
    for row, poison in batch.rejected.items():
        single = decoder.decode([values[row]]).rejected[0]
        assert (single.reason, str(single)) == (poison.reason, str(poison))
    for at, row in enumerate(batch.rows):
        single = decoder.decode([values[row]])
        for name, tensor in batch.tensors.items():
            assert tensor[at].shape[0] <= LONGEST
            np.testing.assert_array_equal(tensor[at], single.tensors[name][0])


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats() | st.text(max_size=3),
    lambda inside: st.lists(inside, max_size=6) | st.dictionaries(st.text(max_size=2), inside, max_size=2),
    max_leaves=20,
)


@some
@given(value=anything)
@pytest.mark.parametrize("shape", [[-1], [-1, 2], [2, -1], [1, 2, -1]])
@pytest.mark.parametrize("dtype", ["int8", "float32", "string"])
def test_any_array_has_the_shape_or_is_rejected_with_the_field_name(shape: list[int], dtype: str, value: Any) -> None:
    tensor = {"tensor": "x", "dtype": dtype, "shape": shape, "fields": [{"name": "x", "array": True, "max_length": 3}]}
    signature = parse_signature(json.dumps({"inputs": [tensor], "output": {"tensor": "y"}}))
    decoded = decoder_factory.create_decoder(settings_of("json"), signature).decode([json.dumps({"x": value}).encode()])
    if decoded.rows:
        (row,) = decoded.tensors["x"]
        assert row.ndim == len(shape)
        assert all(size in (-1, length) for size, length in zip(shape, row.shape, strict=True))
        assert row.shape[shape.index(-1)] <= 3
        assert row.dtype == ("object" if dtype == "string" else dtype)
        assert dtype != "string" or all(isinstance(element, str) for element in row.ravel())
    else:
        assert "'x'" in str(decoded.rejected[0])


@some
@given(value=st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False) | st.text(max_size=2), max_size=6) | anything)
@pytest.mark.parametrize("required", [True, False])
def test_exactly_the_events_that_the_json_schema_allows_are_read(required: bool, value: Any) -> None:
    field = {"name": "x", "array": True, "max_length": 5, "required": required}
    tensor = {"tensor": "x", "dtype": "string", "shape": [-1], "fields": [field]}
    signature = parse_signature(json.dumps({"inputs": [tensor], "output": {"tensor": "y"}}))
    schema = Draft202012Validator(json.loads(GENERATORS["json-schema"](signature, "m", None)))
    decoded = decoder_factory.create_decoder(settings_of("json"), signature).decode([json.dumps({"x": value}).encode()])
    assert (decoded.rows == [0]) is schema.is_valid({"x": value})


def test_the_json_schema_of_frames() -> None:
    tensor = {"tensor": "x", "dtype": "float32", "shape": [-1, 3], "fields": [{"name": "x", "array": True, "max_length": 5}]}
    signature = parse_signature(json.dumps({"inputs": [tensor], "output": {"tensor": "y"}}))
    schema = Draft202012Validator(json.loads(GENERATORS["json-schema"](signature, "m", None)))
    for good in ([], [1, 2, 3], [[1, 2, 3]] * 5, [0.5] * 15):
        assert schema.is_valid({"x": good}), good
    for bad in ([[1, 2]], [[1, 2, 3]] * 6, [0.5] * 16, "a", [["a"] * 3]):
        assert not schema.is_valid({"x": bad}), bad


@pytest.mark.parametrize(
    ("event", "reason", "error"),
    [
        (
            {"ids": [1] * 201, "types": [0]},
            Reason.WRONG_TYPE,
            "field 'ids': a length of at most 200 was expected, not 201 (shape [-1])",
        ),
        ({"ids": [1, 2, "a"], "types": [0] * 3}, Reason.WRONG_TYPE, "field 'ids'[2]: 'a' is not a valid int64"),
        ({"ids": [1, None], "types": [0] * 2}, Reason.WRONG_TYPE, "field 'ids'[1]: None is not a valid int64"),
        ({"ids": [1, 2.5], "types": [0] * 2}, Reason.WRONG_TYPE, "field 'ids'[1]: 2.5 is not a valid int64"),
        (
            {"ids": [[1, 2]], "types": [0]},
            Reason.WRONG_TYPE,
            "field 'ids'[0]: one value was expected, not an array (shape [-1])",
        ),
        ({"ids": [1 << 63], "types": [0]}, Reason.OUT_OF_RANGE, "field 'ids'[0]: 9223372036854775808 is not a valid int64"),
        ({"ids": 5, "types": [0]}, Reason.WRONG_TYPE, "field 'ids': Expected `array`, got `int`"),
        (
            {"ids": [1, 2, 3], "types": [0]},
            Reason.WRONG_TYPE,
            "fields 'ids' and 'types' have the lengths 3 and 1; one length for both was expected",
        ),
        ({"types": [0]}, Reason.MISSING_FIELD, "required field 'ids' is missing or null"),
    ],
)
def test_a_bad_event_is_rejected_with_the_expected_value(text: LoadedModel, event: Event, reason: Reason, error: str) -> None:
    valid = {"ids": [1, 2], "types": [0, 1]}
    decoded = text.decoder.decode([json.dumps(value).encode() for value in (valid, event, valid)])
    assert decoded.rows == [0, 2]
    assert decoded.rejected[1].reason is reason
    assert error in str(decoded.rejected[1])


def test_golden_examples_of_any_lengths(tmp_path: Path, session: Any) -> None:
    encoder(tmp_path / "model.onnx", 1, 16, VOCABULARY, LONGEST, types=True)
    events = [{"ids": [n % VOCABULARY] * n, "types": [0] * n} for n in (3, 170, 5, 40)]
    golden = [GoldenExample(event, alone(session, event), 1e-5) for event in events]
    lines = [{"event": example.event, "score": example.score, "tolerance": 1e-5} for example in golden]
    (tmp_path / "golden.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    signature = loaded(tmp_path).model.signature()
    assert run_golden_examples.run(tmp_path / "model.onnx", signature, golden)
    with pytest.raises(Refused, match="golden example 2 must score"):
        run_golden_examples.run(tmp_path / "model.onnx", signature, [golden[0], GoldenExample(events[1], 7.0, 1e-5)])


def per_token(path: Path) -> None:
    """y (B, S) = x (B, S)."""
    inputs, outputs = models.tensor("x", TensorProto.FLOAT, "N", "S"), models.tensor("y", TensorProto.FLOAT, "N", "S")
    models.save([helper.make_node("Identity", ["x"], ["y"])], [inputs], [outputs], path)


def test_an_output_of_the_events_lengths_is_refused(tmp_path: Path) -> None:
    per_token(tmp_path / "model.onnx")
    x = {"tensor": "x", "dtype": "float32", "shape": [-1], "fields": [{"name": "x", "array": True, "max_length": 40}]}
    with pytest.raises(ModelRefused, match="output 'y' has the length of input 'x'"):
        loaded(tmp_path, {"inputs": [x], "output": {"tensor": "y"}})


def test_a_model_of_fixed_lengths_is_refused(tmp_path: Path) -> None:
    total(tmp_path / "model.onnx", (3,))
    x = {"tensor": "x", "dtype": "float32", "shape": [-1], "fields": [{"name": "x", "array": True, "max_length": 40}]}
    n = {"tensor": "n", "dtype": "float32", "length_of": "x"}
    with pytest.raises(ModelRefused, match=r'states \(B, -1\), but the model requires \[.N., 3\]; write "shape": \[3\]'):
        loaded(tmp_path, {"inputs": [x, n], "output": {"tensor": "y"}})


def test_formats_and_options_that_do_not_support_lengths_are_refused(tmp_path: Path) -> None:
    encoder(tmp_path / "model.onnx", 0, 16, VOCABULARY, LONGEST, types=True)
    with pytest.raises(ModelRefused, match=r"model\.buckets does not support .*; remove model\.buckets"):
        loaded(tmp_path, buckets=[1, 8])
    with pytest.raises((ModelRefused, BackendMissing), match="tensorrt"):
        loaded(tmp_path, device="tensorrt")
    signature = parse_signature(json.dumps(TEXT))
    with pytest.raises(FormatMismatch, match="supports a varying length only for a single tensor of floats, not input_ids"):
        decoder_factory.create_decoder(settings_of("float32", id="header:ce_id"), signature)
