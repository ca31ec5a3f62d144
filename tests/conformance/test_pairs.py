"""Pairs of signature features: varying lengths, one event at a time, places of a record, answers, carried fields."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from model_registry import package
from model_registry.onnx_tools.prepare_package import prepare
from model_registry.package.signature_schema import parse_signature
from scorer.decoding import decoder_factory
from scorer.decoding.batch import Headers
from scorer.decoding.record_metadata import ListedMetadata
from scorer.models.loaded_model import LoadedModel, loader
from scorer.schema_export.example_records import create_example_record, example_event
from tests.support import models
from tests.unit.scorer.minimal import minimal

X: dict[str, Any] = {
    "tensor": "x",
    "dtype": "float32",
    "shape": [-1],
    "fields": [{"name": "x", "array": True, "max_length": 20}],
}
GAIN = {"tensor": "gain", "dtype": "float32", "shape": [], "fields": [{"name": "gain", "from": "header:gain"}]}
ALONE = {"batch": False}
LABELS = ["low", "middle", "high"]
TOP: dict[str, Any] = {"output": {"tensor": "y", "top": 2}, "labels": LABELS}
ARGMAX: dict[str, Any] = {"output": {"tensor": "y"}, "labels": LABELS, "decision": {"argmax": True}}
NESTED: dict[str, Any] = {"output": {"tensor": "z", "shape": [3, 1]}}


def save_three_scores(path: Path, *, alone: bool) -> None:
    """y (B, 3) = 0, gain and twice the gain, plus the sum of x (B, S); z is y as (B, 3, 1). `alone`: all without B."""
    batch: tuple[str, ...] = () if alone else ("B",)
    last = [] if alone else [helper.make_node("Unsqueeze", ["gain", "axis"], ["g"])]
    gain, rank = ("gain", 1) if alone else ("g", 2)
    nodes = [
        *last,
        helper.make_node("ReduceSum", ["x", "last"], ["sum"], keepdims=1),
        helper.make_node("Mul", [gain, "steps"], ["many"]),
        helper.make_node("Add", ["many", "sum"], ["y"]),
        helper.make_node("Unsqueeze", ["y", "end"], ["z"]),
    ]
    constants = [models.constant(name, [at], int) for name, at in (("axis", 1), ("last", -1), ("end", rank))]  # type: ignore[arg-type]
    inputs = [models.tensor("x", TensorProto.FLOAT, *batch, "S"), models.tensor("gain", TensorProto.FLOAT, *batch)]
    outputs = [models.tensor("y", TensorProto.FLOAT, *batch, 3), models.tensor("z", TensorProto.FLOAT, *batch, 3, 1)]
    models.save(nodes, inputs, outputs, path, [*constants, models.constant("steps", [0, 1, 2])])


def load_version(folder: Path, answer: Mapping[str, Any], *, alone: bool, **values: Any) -> LoadedModel:
    batch = ALONE if alone else {}
    document = {"inputs": [X | batch, GAIN | batch], **answer}
    models.package(folder, lambda path: save_three_scores(path, alone=alone), document)
    assert prepare(folder).package.signature == parse_signature(json.dumps(document))
    version = package.read(folder, name="pairs", version="1", digest=f"sha256:{'1':0>64}")
    return loader(minimal(batching={"max_events": 8}, **values))(version)


def parts(gains: list[bytes | None]) -> ListedMetadata:
    return ListedMetadata([None] * len(gains), [1] * len(gains), [None if gain is None else [("gain", gain)] for gain in gains])


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize(
    ("answer", "expected", "decisions"),
    [
        (TOP, [[("high", 5.0), ("middle", 4.0)], [("low", 6.0), ("middle", 5.0)]], [None] * 2),
        (ARGMAX, [[3.0, 4.0, 5.0], [6.0, 5.0, 4.0]], ["high", "low"]),
        (NESTED, [[[3.0], [4.0], [5.0]], [[6.0], [5.0], [4.0]]], [None] * 2),
    ],
    ids=["top", "argmax", "nested"],
)
def test_answers_of_lengths_that_vary_and_of_one_event_at_a_time(
    tmp_path: Path, answer: dict[str, Any], expected: list[Any], decisions: list[Any], alone: bool
) -> None:
    model = load_version(tmp_path / "pairs", answer, alone=alone, output={"carry": ["x[0]", "word"]})
    values = [b'{"x": [1, 2], "word": "w"}', b'{"x": [1, 2, 3]}', b'{"x": []}', b'{"x": "?"}']
    decoded = model.decoder.decode(values, parts([b"1", b"-1", None, b"1"]))
    assert decoded.rows == [0, 1]
    assert {row: str(poison) for row, poison in decoded.rejected.items()} == {
        2: "required field 'gain' (header:gain) is missing or null",
        3: "field 'x': Expected `array`, got `str`",
    }
    assert [list(row) for row in decoded.carried or ()] == [[1, "w"], [1, None]]
    scores = model.score(decoded.tensors)
    if answer is TOP and decisions == [None] * 2:
        expected = [[{"label": label, "score": score} for label, score in row] for row in expected]
    assert [json.loads(score) for score in scores.encoded()] == expected
    if answer is not TOP:
        assert scores.decisions() == decisions


BYTES = {
    "tensor": "b",
    "dtype": "int16",
    "shape": [-1],
    "fields": [{"name": "b", "bytes": True, "max_length": 4, "from": "key"}],
}
LENGTH = {"tensor": "n", "dtype": "int64", "length_of": "b"}
some = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def test_a_length_of_the_value_is_compared_with_one_of_the_key() -> None:
    signature = parse_signature(json.dumps({**TOP, "inputs": [X | {"fields": [{**X["fields"][0], "max_length": 4}]}, BYTES]}))
    decoder = decoder_factory.create_decoder(minimal(), signature)
    keys = [b"\1\0\2\0", b"\1\0", b"\1\0\2"]
    decoded = decoder.decode([b'{"x": [1, 2]}'] * 3, ListedMetadata(keys, [1] * 3, [None] * 3))
    assert decoded.rows == [0]
    assert {row: str(poison) for row, poison in decoded.rejected.items()} == {
        1: "fields 'x' and 'b' have the lengths 2 and 1; one length for both was expected",
        2: "field 'b' (key): 3 bytes, but a multiple of 2 was expected (int16[-1])",
    }


@some
@given(
    events=st.lists(
        st.tuples(
            st.sampled_from([b'{"x": [1]}', b'{"x": [1, 2, 3, 4]}', b"[]", b"\xff", b'{"x": [[1]]}']) | st.binary(max_size=9),
            st.none() | st.binary(max_size=10),
            st.none() | st.sampled_from([b"1", b"nan", b"", b"1,2"]) | st.binary(max_size=5),
        ),
        max_size=6,
    )
)
def test_any_record_is_decoded_or_rejected(events: list[tuple[bytes, bytes | None, bytes | None]]) -> None:
    shared = [X | {"fields": [{**X["fields"][0], "max_length": 4}]}, BYTES, LENGTH]
    for inputs in ([GAIN, BYTES], shared, [X | {"axis": "x"}, BYTES | {"axis": "b"}, GAIN, LENGTH]):
        signature = parse_signature(json.dumps({**TOP, "inputs": inputs}))
        assert parse_signature(signature.to_json()) == signature
        decoder = decoder_factory.create_decoder(minimal(output={"carry": ["x[0]"]}), signature)
        values, keys, gains = ([event[at] for event in events] for at in range(3))
        headers: list[Headers] = [None if gain is None else [("gain", gain)] for gain in gains]
        decoded = decoder.decode([value or b"" for value in values], ListedMetadata(keys, [1] * len(events), headers))
        assert sorted([*decoded.rows, *decoded.rejected]) == list(range(len(events)))
        assert all(len(tensor) == len(decoded.rows) for tensor in decoded.tensors.values())


def test_examples_of_a_signature_are_events_of_it() -> None:
    signature = parse_signature(json.dumps({**TOP, "inputs": [X | {"axis": "x"}, BYTES, GAIN, LENGTH]}))
    event = example_event(signature)
    record = create_example_record(signature, event)
    assert len(base64.b64decode(event["b"])) == len(record.key or b"") == 8
    metadata = ListedMetadata([record.key], [record.time], [record.headers])
    decoded = decoder_factory.create_decoder(minimal(), signature).decode([record.value], metadata)
    assert (decoded.rows, decoded.rejected) == ([0], {})
