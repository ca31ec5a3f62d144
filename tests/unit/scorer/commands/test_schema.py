"""Schemas for producers and the difference between two signatures, held against the decoders."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_registry.package.signature import Signature
from scorer.events.decoder import Unsuited
from scorer.events.for_producers.compatibility import breaks
from scorer.events.for_producers.schemas import GENERATORS
from scorer.events.json.arrays import JsonArrayDecoder
from scorer.events.json.objects import JsonDecoder
from scorer.events.schemas.decoder import SchemaDecoder
from tests.unit.scorer.events.formats import MIXED, NUMBERS, assert_plain, number_events
from tests.unit.scorer.events.schema_events import Encode, avro_encoder, configured, proto_encoder


def signature(*fields: Any, dtype: str = "float32") -> Signature:
    """One tensor of these fields, or a tensor a field where it says its dtype."""
    inputs = [
        {"tensor": f"t{at}", "dtype": field.pop("dtype", dtype), "shape": field.pop("shape", None), "fields": [field]}
        for at, field in enumerate({"name": one} if isinstance(one, str) else dict(one) for one in fields)
    ]
    return Signature.parse(json.dumps({"inputs": inputs, "output": {"tensor": "y"}}))


A, B = {"name": "a"}, {"name": "b", "default": 1}
IMAGE = {**A, "array": True, "shape": [2, 4]}
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
]


@pytest.mark.parametrize(("old", "new", "said"), BREAKS)
def test_what_breaks_is_said_and_nothing_else(old: list[Any], new: list[Any], said: str | None) -> None:
    assert [f"{one.field}: {one.change}" for one in breaks(signature(*old), signature(*new))] == ([said] if said else [])


def test_without_names_the_order_counts() -> None:
    old, new = signature("a", "b"), signature("b", "a", B | {"name": "c"})
    assert breaks(old, new) == []
    assert [one.field for one in breaks(old, new, positional=True)] == ["b", "a", "*"]


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
    return {"name": draw(st.sampled_from("abc")), "dtype": dtype, **optional}


signatures = st.lists(fields(), min_size=1, max_size=3, unique_by=lambda one: str(one["name"])).map(
    lambda all_: signature(*all_)
)


@settings(max_examples=150)
@given(signatures, signatures, st.data())
def test_where_nothing_breaks_every_event_of_the_old_is_valid_for_the_new(
    old: Signature, new: Signature, data: st.DataObject
) -> None:
    event = {field.name: data.draw(VALUES[field.dtype]) for field in old.fields if field.required or data.draw(st.booleans())}
    value = json.dumps(event).encode()
    assert JsonDecoder(old, None, 10_000).decode([value]).rows == [0]
    if not breaks(old, new):
        assert JsonDecoder(new, None, 10_000).decode([value]).rows == [0]
    if not breaks(old, new, positional=True):
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
def test_a_name_that_the_format_cannot_have_is_refused(format_: str) -> None:
    with pytest.raises(Unsuited, match="seat no"):
        GENERATORS[format_](signature("seat no"), "m", None)
