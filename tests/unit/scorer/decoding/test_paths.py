"""Fields by path: the errors of invalid events, the equivalence of nested and flat events, and ids."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_registry.package.event_tree import WrongStep, build_event, look_up
from model_registry.package.json_path import parse
from model_registry.package.signature import Signature
from scorer.dead_letters.reasons import Reason
from scorer.decoding.float32 import Float32Decoder
from scorer.decoding.json.arrays import JsonArrayDecoder, JsonEnvelopeDecoder
from scorer.decoding.json.decoder import JsonDecoder
from scorer.decoding.json.error_hints import NO_NAN
from scorer.decoding.row_schema import RowSchema
from scorer.decoding.schema_formats.decoder import SchemaDecoder, SchemaIdReader
from scorer.decoding.types import Decoded, Decoder, FormatMismatch
from tests.unit.scorer.decoding.formats import MIXED, NESTED, NUMBERS, assert_same, by_path, mixed_events, nested, signature_of
from tests.unit.scorer.decoding.schema_events import avro_encoder, configured, proto_encoder, record

AMOUNT = {"name": "amount", "path": "after.amount"}
PRICE = {"name": "price", "path": "items[1].price", "default": 2.5}
SIGNATURE = signature_of(("x", "float32", [AMOUNT, PRICE]), ("n", "int8", [{"name": "n", "path": "after.n", "default": 7}]))
ITEMS: list[Any] = [None, {"price": 3}]


def values_of(decoded: Decoded) -> list[float]:
    """Return the tensors of the one valid event."""
    (x,), (n,) = decoded.tensors["x"].tolist(), decoded.tensors["n"].tolist()
    return [*x, *n]


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({"after": {"amount": 1, "n": 2}, "items": ITEMS}, [1, 3, 2]),
        ({"after": {"amount": 1, "n": None, "after": 5}, "items": [7, {"price": None, "x": []}, "more"]}, [1, 2.5, 7]),
        ({"after": {"amount": 1}, "items": None}, [1, 2.5, 7]),
        ({"after": {"amount": 1}, "items": [{"price": 9}]}, [1, 2.5, 7]),
        ({"after": {"amount": 1}, "items": [{"price": 9}, None]}, [1, 2.5, 7]),
        ({"after": {"amount": 1}}, [1, 2.5, 7]),
    ],
)
def test_a_missing_or_null_step_is_an_absent_field(event: Any, expected: list[float]) -> None:
    for min_events in (None, 0):
        decoder = JsonDecoder(SIGNATURE, None, 1_000, min_events=min_events)
        assert values_of(decoder.decode([json.dumps(event).encode()])) == expected


AFTER = "field 'amount' (after.amount)"
ITEM = "field 'price' (items[1].price)"


@pytest.mark.parametrize(
    ("event", "reason", "message"),
    [
        ({}, Reason.MISSING_FIELD, f"required {AFTER} is missing or null"),
        ({"after": None}, Reason.MISSING_FIELD, f"required {AFTER} is missing or null"),
        ({"after": {"amount": None}}, Reason.MISSING_FIELD, f"required {AFTER} is missing or null"),
        ({"after.amount": 1}, Reason.MISSING_FIELD, f"required {AFTER} is missing or null"),
        ({"after": "x"}, Reason.WRONG_TYPE, f"{AFTER}: after is a string, not an object with 'amount'"),
        ({"after": []}, Reason.WRONG_TYPE, f"{AFTER}: after is an array, not an object with 'amount'"),
        ({"after": {"amount": "?"}}, Reason.WRONG_TYPE, f"{AFTER}: Expected `float`, got `str`"),
        (
            {"after": {"amount": 1}, "items": {}},
            Reason.WRONG_TYPE,
            f"{ITEM}: items is an object, not an array with an element 1",
        ),
        (
            {"after": {"amount": 1}, "items": [0, 1]},
            Reason.WRONG_TYPE,
            f"{ITEM}: items[1] is a number, not an object with 'price'",
        ),
        ({"after": {"amount": 1, "n": 128}}, Reason.OUT_OF_RANGE, "field 'n' (after.n): Expected `int` <= 127"),
        ({"after": {"amount": math.nan}}, Reason.NOT_FINITE, f"{AFTER} is nan; {NO_NAN}"),
        ([], Reason.WRONG_TYPE, "the event is a JSON list, not an object"),
    ],
)
def test_an_invalid_field_is_named_with_its_path(event: Any, reason: Reason, message: str) -> None:
    valid_event = json.dumps({"after": {"amount": 1}}).encode()
    decoded = JsonDecoder(SIGNATURE, None, 1_000).decode([valid_event, json.dumps(event).encode(), valid_event])
    assert decoded.rows == [0, 2]
    assert (decoded.rejected[1].reason, str(decoded.rejected[1])) == (reason, message)


MORE = {"type": {"type": "map", "values": "double"}}
RECORDS = {
    "after": record("After", amount={"type": "double"}, n={"type": "int"}),
    "item": record("Item", price={"type": "double"}),
}
AVRO = record(
    "Event",
    after={"type": ["null", "string", RECORDS["after"]]},
    items={"type": {"type": "array", "items": ["null", "double", RECORDS["item"]]}},
    more=MORE,
)
PROTO = """syntax = "proto3";
message Event {
  message After { optional double amount = 1; int32 n = 2; }
  message Item { double price = 1; }
  After after = 1; repeated Item items = 2; map<string, double> more = 3; map<int32, Item> by = 4;
}
"""


def avro(folder: Path, signature: Signature, **options: Any) -> tuple[Decoder, Callable[..., bytes]]:
    encode = avro_encoder(AVRO)
    full = lambda after, items=(), more=None: encode({"after": after, "items": list(items), "more": more or {}})  # noqa: E731
    return SchemaDecoder(signature, configured(folder, "avro", json.dumps(AVRO), **options)), full


def test_avro_records_in_records(tmp_path: Path) -> None:
    decoder, encode = avro(tmp_path, SIGNATURE, id="header:ce_id")
    assert values_of(decoder.decode([encode({"amount": 1, "n": 2}, ITEMS)])) == [1, 3, 2]
    assert values_of(decoder.decode([encode({"amount": 1, "n": 2})])) == [1, 2.5, 2]
    invalid_events = [encode(None), encode("x"), encode({"amount": 1, "n": 200}), encode({"amount": 1, "n": 1}, [None, 5.0])]
    assert [str(poison) for poison in decoder.decode(invalid_events).rejected.values()] == [
        f"required {AFTER} is missing or null",
        f"{AFTER}: after is a string, not an object with 'amount'",
        "field 'n' (after.n): Expected `int` <= 127",
        f"{ITEM}: items[1] is a number, not an object with 'price'",
    ]


def test_protobuf_messages_in_messages(tmp_path: Path) -> None:
    decoder = SchemaDecoder(SIGNATURE, configured(tmp_path, "protobuf", PROTO, id="header:ce_id"))
    encode = proto_encoder(PROTO)
    price = {"price": 3}
    assert values_of(decoder.decode([encode({"after": {"amount": 1, "n": 2}, "items": [{}, price, price]})])) == [1, 3, 2]
    assert values_of(decoder.decode([encode({"after": {"amount": 1}, "items": [price]})])) == [1, 2.5, 0]
    invalid_events = [encode({"items": [price]}), encode({"after": {"n": 1}})]
    assert [str(poison) for poison in decoder.decode(invalid_events).rejected.values()] == [
        f"required {AFTER} is missing or null",
        f"required {AFTER} is missing or null",
    ]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("after[0]", "after is an object, not an array with an element 0"),
        ("items.price", "items is an array, not an object with 'price'"),
        ("items[0][0]", "items[0] is an object, not an array with an element 0"),
        ("after.amount.x", "after.amount is a number, not an object with 'x'"),
        ("more[0]", "more is an object, not an array with an element 0"),
    ],
)
def test_protobuf_steps_that_are_missing_in_the_schema(tmp_path: Path, path: str, message: str) -> None:
    signature = signature_of(("x", "float32", [{"name": "f", "path": path}]))
    decoder = SchemaDecoder(signature, configured(tmp_path, "protobuf", PROTO, id="header:ce_id"))
    event = proto_encoder(PROTO)({"after": {"amount": 1}, "items": [{"price": 1}], "more": {"x": 1.0}})
    poison = decoder.decode([event]).rejected[0]
    assert (poison.reason, str(poison)) == (Reason.WRONG_TYPE, f"field 'f' ({path}): {message}")


def test_keys_of_maps_are_names(tmp_path: Path) -> None:
    fields: list[Any] = [{"name": "a", "path": "more.a"}, {"name": "b", "path": "more.b", "default": "nan"}]
    signature = signature_of(("x", "float32", fields))
    decoder, encode = avro(tmp_path, signature, id="header:ce_id")
    np.testing.assert_array_equal(decoder.decode([encode(None, (), {"a": 1.0, "z": 2.0})]).tensors["x"], [[1, math.nan]])
    protobuf_signature = signature_of(("x", "float32", [*fields, {"name": "c", "path": "by.5.price"}]))
    protobuf_decoder = SchemaDecoder(protobuf_signature, configured(tmp_path, "protobuf", PROTO, id="header:ce_id"))
    event = proto_encoder(PROTO)({"more": {"a": 1.0, "z": 2.0}, "by": {5: {"price": 3}, 6: {"price": 4}}})
    np.testing.assert_array_equal(protobuf_decoder.decode([event]).tensors["x"], [[1, math.nan, 3]])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-200, 200) | st.floats(width=32) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["after", "items", "amount", "price", "n", "id"]), inner, max_size=4)
    ),
    max_leaves=12,
)
EVENTS = st.fixed_dictionaries(
    {},
    optional={
        "after": JSON | st.fixed_dictionaries({"amount": JSON}, optional={"n": JSON, "id": JSON}),
        "items": JSON | st.lists(JSON | st.fixed_dictionaries({"price": JSON}), max_size=3),
    },
)


@given(st.lists(EVENTS, max_size=4))
def test_any_event_is_read_by_its_paths(events: list[Any]) -> None:
    """A batch is read like its single events. A dead letter names the first invalid step."""
    values = [json.dumps(event).encode() for event in events]
    decoded_batch = JsonDecoder(SIGNATURE, "after.id", 10_000).decode(values)
    for row, event in enumerate(events):
        alone = JsonDecoder(SIGNATURE, "after.id", 10_000).decode([values[row]])
        assert (row in decoded_batch.rejected) == (0 in alone.rejected)
        try:
            values_at_paths = [
                look_up(event, parse(path)) for path in ("after.amount", "items[1].price", "after.n", "after.id")
            ]
        except WrongStep as error:
            explanation = str(error)
        else:
            explanation = ""
        if explanation:
            assert not alone.rows
            assert str(alone.rejected[0]).endswith(explanation) or "not an" not in str(alone.rejected[0])
            continue
        if alone.rows:
            expected = [
                default if value is None else value for value, default in zip(values_at_paths, [None, 2.5, 7], strict=False)
            ]
            assert values_of(alone) == [*np.array(expected[:2], np.float32).tolist(), expected[2]]
            assert alone.ids == [values_at_paths[3]]
        elif values_at_paths[0] is None and "price" not in str(alone.rejected[0]):
            assert alone.rejected[0].reason is Reason.MISSING_FIELD


anything = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=3) | st.just([1.0, 2.0])


@given(st.lists(mixed_events, max_size=4), st.data())
def test_nested_events_equal_flat_events(events: list[dict[str, Any]], data: st.DataObject) -> None:
    for event in events:
        if data.draw(st.booleans()):
            event[data.draw(st.sampled_from([*event, "other", "size"]))] = data.draw(anything)
    flat_batch = JsonDecoder(MIXED, "id", 10_000).decode([json.dumps(event).encode() for event in events])
    nested_batch = JsonDecoder(NESTED, "meta.id", 10_000).decode([json.dumps(nested(event)).encode() for event in events])
    assert {row: poison.reason for row, poison in flat_batch.rejected.items()} == {
        row: poison.reason for row, poison in nested_batch.rejected.items()
    }
    flat_batch.rejected, nested_batch.rejected = {}, {}
    assert_same(flat_batch, nested_batch, len(events))


def test_wide_arrays_below_the_top() -> None:
    signature = by_path(NUMBERS, {"vector": "after.vector", "a": "after.a"})
    vector = [float(number) for number in range(40)]
    flat_batch = JsonDecoder(NUMBERS, None, 10_000).decode([json.dumps({"a": 1, "vector": vector}).encode()])
    nested_batch = JsonDecoder(signature, None, 10_000).decode([json.dumps({"after": {"a": 1, "vector": vector}}).encode()])
    assert_same(flat_batch, nested_batch, 1)


def test_ids_of_avro_and_protobuf_by_path(tmp_path: Path) -> None:
    _, encode = avro(tmp_path, SIGNATURE)
    reader = SchemaIdReader(configured(tmp_path, "avro", json.dumps(AVRO), id="after.n"))
    assert [reader.read_id(encode(after)) for after in ({"amount": 1, "n": 5}, "x", None)] == [5, None, None]
    reader = SchemaIdReader(configured(tmp_path, "protobuf", PROTO, id="after.n"))
    assert reader.read_id(proto_encoder(PROTO)({"after": {"n": 5}})) == 5


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            "after",
            "input.id 'after' conflicts with the signature: "
            "the id is read at after, in conflict with field 'amount' inside of it",
        ),
        ("after.amount.x", "the id is read at after.amount.x, in conflict with field 'amount' at after.amount"),
        ("items.id", "the id is read at items.id, but items is an array for field 'price'"),
    ],
)
def test_an_id_that_conflicts_with_the_fields_is_refused(path: str, message: str) -> None:
    with pytest.raises(FormatMismatch) as raised:
        RowSchema(SIGNATURE, path, 1_000)
    assert message in str(raised.value)


def test_formats_without_names_refuse_paths() -> None:
    signature = signature_of(("x", "float32", [AMOUNT]))
    factories: list[Callable[[], Decoder]] = [
        lambda: JsonArrayDecoder(signature, 1_000),
        lambda: JsonEnvelopeDecoder(signature, "id", 1_000),
        lambda: Float32Decoder(signature, 1_000),
    ]
    for format_, create in zip(("json-array", "json-envelope", "float32"), factories, strict=True):
        with pytest.raises(FormatMismatch) as raised:
            create()
        assert str(raised.value) == (
            f"input.format {format_} has no field names, but field 'amount' has the path after.amount; "
            "use json, avro or protobuf"
        )


def test_an_event_that_is_built_from_paths_is_decoded() -> None:
    event = build_event((field.steps, 1) for field in SIGNATURE.fields)
    assert values_of(JsonDecoder(SIGNATURE, None, 1_000).decode([json.dumps(event).encode()])) == [1, 1, 1]
