"""Schemas for producers and differences between signatures, compared with the decoders."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from model_registry.package.event_tree import build_event
from model_registry.package.json_path import parse
from model_registry.package.signature import Signature, SignatureError
from model_registry.package.signature_schema import parse_signature
from scorer.decoding.json.arrays import JsonArrayDecoder
from scorer.decoding.json.decoder import JsonDecoder
from scorer.decoding.schema_formats.decoder import SchemaDecoder
from scorer.decoding.types import FormatMismatch
from scorer.schema_export.example_records import example_event
from scorer.schema_export.generate import GENERATORS
from scorer.schema_export.incompatible_changes import find_incompatible_changes
from tests.unit.scorer.decoding.formats import (
    MIXED,
    NESTED,
    NUMBERS,
    assert_plain,
    by_path,
    mixed_events,
    nested,
    number_events,
)
from tests.unit.scorer.decoding.schema_events import Encode, avro_encoder, configured, proto_encoder


def signature(*fields: Any, dtype: str = "float32") -> Signature:
    """Return a signature with one tensor of these fields, or a tensor for each field with a dtype."""
    inputs = [
        {"tensor": f"t{at}", "dtype": field.pop("dtype", dtype), "shape": field.pop("shape", None), "fields": [field]}
        for at, field in enumerate({"name": field_} if isinstance(field_, str) else dict(field_) for field_ in fields)
    ]
    return parse_signature(json.dumps({"inputs": inputs, "output": {"tensor": "y"}}))


A, B = {"name": "a"}, {"name": "b", "default": 1}
IMAGE = {**A, "array": True, "shape": [2, 4]}
TEXT = {**A, "array": True, "shape": [-1], "max_length": 4}
FOUR = {**A, "array": True, "length": 4}
UP_TO_FOUR = "an array of shape [-1] with a length of at most 4"
INNER = {"name": "a", "path": "o.a"}
AGE = {"name": "customers.age", "from": "table:customers", "default": 0}
BREAKS = [
    ([A], [A, "b"], "b: is required now, and was no field before"),
    ([B], ["b"], "b: is required now, and might be absent before"),
    ([{"name": "b", "default": "nan"}], [B], "b: may not be NaN now, and might be before"),
    ([A], [{**A, "dtype": "int32"}], "a: is int32 now, and was float32 before"),
    ([{**A, "dtype": "int32"}], [{**A, "dtype": "uint64"}], "a: is uint64 now, and was int32 before"),
    ([{**A, "dtype": "int32"}], [{**A, "dtype": "float16"}], "a: is float16 now, and was int32 before"),
    ([{**A, "dtype": "float64"}], [A], "a: is float32 now, and was float64 before"),
    ([{**A, "dtype": "bool"}], [{**A, "dtype": "string"}], "a: is string now, and was bool before"),
    ([A], [{**A, "array": True, "length": 3}], "a: is an array of 3 now, and was one value before"),
    ([A, B], [A], None),
    ([A], [A, B], None),
    ([A, "b"], [B, A], None),
    ([A], [{**A, "default": "nan"}], None),
    ([{**A, "dtype": "uint8"}], [{**A, "dtype": "int16"}], None),
    ([{**A, "dtype": "int64"}], [{**A, "dtype": "float64"}], None),
    ([A], [{**A, "dtype": "float64"}], None),
    ([IMAGE], [{**IMAGE, "shape": [4, 2]}], "a: is an array of shape [4, 2] now, and was an array of shape [2, 4] before"),
    ([IMAGE], [{**A, "array": True, "length": 8}], "a: is an array of 8 now, and was an array of shape [2, 4] before"),
    ([{**A, "array": True, "length": 8}], [IMAGE], None),
    ([A], [{**A, "shape": []}], None),
    ([TEXT], [{**TEXT, "max_length": 3}], f"a: is {UP_TO_FOUR[:-1]}3 now, and was {UP_TO_FOUR} before"),
    ([TEXT], [{**TEXT, "max_length": 5}], None),
    ([FOUR], [TEXT], None),
    ([{**FOUR, "length": 5}], [TEXT], f"a: is {UP_TO_FOUR} now, and was an array of 5 before"),
    ([TEXT], [FOUR], f"a: is an array of 4 now, and was {UP_TO_FOUR} before"),
    ([A], [TEXT], f"a: is {UP_TO_FOUR} now, and was one value before"),
    ([{**TEXT, "required": False}], [TEXT], "a: is required now, and might be absent before"),
    ([TEXT], [{**TEXT, "required": False}], None),
    ([FOUR, {**FOUR, "name": "b"}], [TEXT, {**TEXT, "name": "b"}], None),
    (
        [FOUR, {**FOUR, "name": "b", "length": 3}],
        [TEXT, {**TEXT, "name": "b"}],
        "b: has the length of 'a' now, and might have another before",
    ),
    ([A], [INNER], "a: is read at o.a now, and was read at a before"),
    ([A], [INNER | {"default": 1}], "a: is read at o.a now, and was read at a before"),
    ([A], [{**B, "path": "a.b"}], "b: is read at a.b now, in conflict with field 'a' at a before"),
    ([INNER], [{"name": "o", "default": 1}], "o: is read at o now, in conflict with field 'a' inside of it before"),
    ([A], [{"name": "c", "path": "a", "dtype": "int8"}], "c: is int8 now, and was float32 before"),
    ([INNER], [INNER, {**B, "path": "o.b"}], None),
    ([INNER], [{"name": "c", "path": "o.a"}], None),
    ([A], [A, AGE], None),
    ([A], [A, {**AGE, "default": None}], "customers.age: is required now, and was no field before"),
    ([AGE], [{**AGE, "path": "years"}], "customers.age: is column years of table:customers now, and was column age before"),
    ([AGE], [{**AGE, "name": "years", "path": "age"}], None),
    (
        [AGE],
        [{**AGE, "from": "table:items"}],
        "customers.age: comes from table:items now, and came from table:customers before",
    ),
    (
        [AGE],
        [{**AGE, "from": None}],
        'customers.age: comes from the event ("customers.age") now, and came from table:customers before',
    ),
]


@pytest.mark.parametrize(("old", "new", "change"), BREAKS)
def test_diff_lists_exactly_the_breaking_changes(old: list[Any], new: list[Any], change: str | None) -> None:
    assert [
        f"{difference.field}: {difference.change}" for difference in find_incompatible_changes(signature(*old), signature(*new))
    ] == ([change] if change else [])


def test_order_of_fields_counts_without_names() -> None:
    old, new = signature("a", "b"), signature("b", "a", B | {"name": "c"})
    assert find_incompatible_changes(old, new) == []
    assert [difference.field for difference in find_incompatible_changes(old, new, positional=True)] == ["b", "a", "*"]
    differences = find_incompatible_changes(signature(INNER), signature(INNER), positional=True)
    assert [difference.change for difference in differences] == ["has the path o.a now: there are no names"]
    joined = {**AGE, "path": "address.age"}
    assert find_incompatible_changes(signature("a", joined), signature("a", joined), positional=True) == []


@pytest.mark.parametrize("format_", sorted(GENERATORS))
def test_schemas_for_producers_have_no_joined_fields(format_: str) -> None:
    assert GENERATORS[format_](signature("a", AGE), "m", None) == GENERATORS[format_](signature("a"), "m", None)


DEEP_PATHS = {"a": "after.a", "vector": "after.more.vector", "c": "after_more.c", "id": "meta.id"}
DEEP = by_path(NUMBERS, DEEP_PATHS)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "float32": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "float64": st.floats(allow_nan=False, allow_infinity=False),
    "int8": st.integers(-128, 127),
    "uint16": st.integers(0, 2**16 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "bool": st.booleans(),
    "string": st.text(max_size=3),
}
DEFAULTS = {"float32": 0.5, "float64": 0.5, "int8": 1, "uint16": 1, "int64": 1, "bool": True, "string": "-"}


@st.composite
def fields(draw: st.DrawFn) -> dict[str, Any]:
    dtype = draw(st.sampled_from(list(VALUES)))
    optional = {"default": DEFAULTS[dtype]} if draw(st.booleans()) else {}
    path = draw(st.sampled_from(["", "", "", "o", "o.a", "o.b", "l[0]", "l[1].a", "l[1].b", "l.a"]))
    return {"name": draw(st.sampled_from("abc")), "dtype": dtype, **optional, **({"path": path} if path else {})}


@st.composite
def signatures(draw: st.DrawFn) -> Signature:
    """Return signatures of fields that one event can hold."""
    field_definitions = draw(st.lists(fields(), min_size=1, max_size=3, unique_by=lambda field: str(field["name"])))
    for count in range(len(field_definitions), 1, -1):
        with contextlib.suppress(SignatureError):
            return signature(*field_definitions[:count])
    return signature(field_definitions[0])


@settings(max_examples=150)
@given(signatures(), signatures(), st.data())
def test_without_breaks_every_old_event_is_valid_for_the_new_version(
    old: Signature, new: Signature, data: st.DataObject
) -> None:
    event = {field.name: data.draw(VALUES[field.dtype]) for field in old.fields if field.required or data.draw(st.booleans())}
    value = json.dumps(build_event((field.steps, event[field.name]) for field in old.fields if field.name in event)).encode()
    assert JsonDecoder(old, None, 10_000).decode([value]).rows == [0]
    if not find_incompatible_changes(old, new):
        assert JsonDecoder(new, None, 10_000).decode([value]).rows == [0]
    if not find_incompatible_changes(old, new, positional=True):
        value = json.dumps([event.get(field.name) for field in old.fields]).encode()
        assert JsonArrayDecoder(new, 10_000).decode([value]).rows == [0]


@pytest.fixture(scope="module", params=["avro", "protobuf"])
def generated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Encode, SchemaDecoder]:
    schema = GENERATORS[request.param](NUMBERS, "event", "id")
    encode = avro_encoder(json.loads(schema)) if request.param == "avro" else proto_encoder(schema)
    return encode, SchemaDecoder(NUMBERS, configured(tmp_path_factory.mktemp("schemas"), request.param, schema))


@settings(max_examples=25)
@given(events=st.lists(number_events, max_size=3))
def test_events_of_the_generated_schemas_are_read(
    generated: tuple[Encode, SchemaDecoder], events: list[dict[str, Any]]
) -> None:
    encode, decoder = generated
    decoded = decoder.decode([encode(event) for event in events])
    assert_plain(decoded, NUMBERS, events)
    assert decoded.ids == [event["id"] for event in events]


@pytest.fixture(scope="module", params=["avro", "protobuf"])
def generated_nested(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Encode, SchemaDecoder]:
    """Return signatures with fields in nested records and messages."""
    schema = GENERATORS[request.param](DEEP, "event", "meta.id")
    encode = avro_encoder(json.loads(schema)) if request.param == "avro" else proto_encoder(schema)
    return encode, SchemaDecoder(DEEP, configured(tmp_path_factory.mktemp("schemas"), request.param, schema, id="meta.id"))


@settings(max_examples=25)
@given(events=st.lists(number_events, max_size=3))
def test_nested_events_of_the_generated_schemas_are_read(
    generated_nested: tuple[Encode, SchemaDecoder], events: list[dict[str, Any]]
) -> None:
    encode, decoder = generated_nested
    nested_events = [
        build_event((parse(DEEP_PATHS.get(k, k)), v) for k, v in event.items() if v is not None) for event in events
    ]
    decoded = decoder.decode([encode(event) for event in nested_events])
    assert_plain(decoded, DEEP, events)
    assert decoded.ids == [event["id"] for event in events]


@settings(max_examples=40)
@given(mixed_events, st.data())
def test_json_schema_admits_exactly_the_readable_events(event: dict[str, Any], data: st.DataObject) -> None:
    validator = Draft202012Validator(json.loads(GENERATORS["json-schema"](NESTED, "event", "meta.id")))
    nested_event = nested(event)
    for part, key in (("after", "more"), ("after", "a"), ("note", "other"), ("meta", "id")):
        if data.draw(st.integers(0, 4)) == 0:
            nested_event.setdefault(part, {})[key] = data.draw(st.sampled_from([None, {}, [], "x"]))
    if data.draw(st.integers(0, 4)) == 0:
        nested_event["items"] = data.draw(st.sampled_from([None, [], [{}, {}], [0, {"word": "w"}], {"word": "w"}]))
    is_readable = not JsonDecoder(NESTED, "meta.id", 10_000).decode([json.dumps(nested_event).encode()]).rejected
    assert validator.is_valid(nested_event) is is_readable or (is_readable and nested_event["meta"]["id"] is None)


def test_the_schemas_of_nested_events() -> None:
    document = json.loads(GENERATORS["json-schema"](NESTED, "m", "meta.id"))
    assert document["required"] == ["after", "items"]
    assert document["properties"]["items"]["minItems"] == 2
    assert document["properties"]["note"]["type"] == ["object", "null"]
    avro = json.loads(GENERATORS["avro"](DEEP, "my-model", None))
    assert avro["fields"][0]["type"]["name"] == "MyModel.after"
    for format_ in ("avro", "protobuf"):
        with pytest.raises(FormatMismatch, match="element 2 of an array has no type of its own"):
            GENERATORS[format_](NESTED, "m", None)
    with pytest.raises(FormatMismatch, match=r"id 'after': field 'a' is read at after.a, in conflict with the id at after"):
        GENERATORS["json-schema"](NESTED, "m", "after")
    with pytest.raises(FormatMismatch, match=r"id 'a\.\.b': 'a\.\.b' is not a valid path"):
        GENERATORS["json-schema"](NESTED, "m", "a..b")


def test_an_example_has_its_fields_at_their_paths() -> None:
    event = example_event(NESTED)
    assert event["items"][:2] == [None, {"word": "a", "size": 1}]
    assert JsonDecoder(NESTED, None, 10_000).decode([json.dumps(event).encode()]).rows == [0]


def test_every_dtype_has_a_type_in_every_format() -> None:
    assert 'syntax = "proto3"' in GENERATORS["protobuf"](MIXED, "2-fast", None)
    assert "message Event2Fast {" in GENERATORS["protobuf"](MIXED, "2-fast", None)
    assert json.loads(GENERATORS["avro"](MIXED, "m", None))["fields"][-1] == {
        "name": "vector",
        "type": {"type": "array", "items": "double"},
    }
    document = json.loads(GENERATORS["json-schema"](MIXED, "m", "id"))
    assert document["required"] == ["a", "count", "word", "vector"]
    assert document["properties"]["count"] == {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1}
    assert document["properties"]["size"]["type"] == ["integer", "null"]
    assert document["properties"]["vector"]["minItems"] == 3
    assert document["properties"]["id"]["type"] == ["string", "integer"]


@pytest.mark.parametrize("format_", ["avro", "protobuf"])
def test_name_that_the_format_does_not_allow_is_rejected(format_: str) -> None:
    with pytest.raises(FormatMismatch, match="seat no"):
        GENERATORS[format_](signature("seat no"), "m", None)
