"""The schemas and examples for producers: fields from outside of the value, and bytes."""

import json

import jsonschema
import pytest

from model_registry.package import binary_fields
from scorer.decoding import decoder_factory
from scorer.decoding.record_metadata import ListedMetadata
from scorer.schema_export.example_records import create_example_record, example_event
from scorer.schema_export.generate import GENERATORS
from scorer.schema_export.incompatible_changes import find_incompatible_changes
from tests.unit.scorer.decoding.formats import signature_of
from tests.unit.scorer.decoding.schema_events import avro_encoder, configured, proto_encoder, settings_of

IMAGE = {"name": "image", "bytes": True, "length": 4}
MIXED = signature_of(
    ("image", "uint8", [IMAGE]),
    ("x", "float32", ["a", {"name": "store", "from": "header:store"}, {"name": "late", "from": "key", "default": "nan"}]),
    ("t", "int64", [{"name": "at", "from": "time"}]),
    ("s", "string", [{"name": "note", "bytes": True, "required": False, "default": "-"}]),
)
OTHER_SOURCES = "Elsewhere in the record: store (float32) from header:store, late (float32) from key, at (int64) from time"
OF_WHOLE_VALUE = signature_of(
    ("image", "uint8", [IMAGE | {"from": "value"}]), ("s", "string", [{"name": "s", "from": "header:a.b"}])
)


def test_schemas_have_the_fields_of_the_value_and_list_the_other_sources() -> None:
    result = json.loads(GENERATORS["json-schema"](MIXED, "m", "id"))
    assert result["description"] == OTHER_SOURCES
    assert result["required"] == ["image", "a"]
    assert result["properties"]["image"] == {"type": "string", "contentEncoding": "base64", "minLength": 8, "maxLength": 8}
    assert result["properties"]["note"] == {"type": ["string", "null"], "contentEncoding": "base64"}
    jsonschema.validate({"image": "AAECAw==", "a": 1}, result)
    record_schema = json.loads(GENERATORS["avro"](MIXED, "m", None))
    assert record_schema["doc"] == OTHER_SOURCES
    assert [(item["name"], item["type"]) for item in record_schema["fields"]] == [
        ("image", "bytes"),
        ("a", "float"),
        ("note", ["null", "bytes"]),
    ]
    text = GENERATORS["protobuf"](MIXED, "m", None)
    assert (
        f"// {OTHER_SOURCES}\nmessage M {{\n  optional bytes image = 1;\n  optional float a = 2;\n  optional bytes note = 3;\n"
        in text
    )


def test_a_name_that_is_not_printable_ends_no_comment() -> None:
    hostile = signature_of(("x", "float32", ["a", {"name": "b", "from": "header:b\nmessage Evil {}"}]))
    assert "header:b?message Evil {}" in GENERATORS["protobuf"](hostile, "m", None)


@pytest.mark.parametrize("format_", ["avro", "protobuf"])
def test_events_of_the_schemas_are_read(format_: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    text = GENERATORS[format_](MIXED, "event", None)
    encode = avro_encoder(json.loads(text)) if format_ == "avro" else proto_encoder(text)
    settings = configured(tmp_path_factory.mktemp("schema"), format_, text, id="header:ce_id")
    value = encode({"image": b"\0\1\2\3", "a": 1.5, "note": "é".encode()})
    result = decoder_factory.create_decoder(settings, MIXED).decode([value], ListedMetadata([None], [7], [[("store", b"2")]]))
    assert result.rejected == {}
    assert (result.tensors["image"].tolist(), result.tensors["s"].tolist()) == ([[0, 1, 2, 3]], [["é"]])
    assert result.tensors["x"].tolist()[0][:2] == [1.5, 2.0]


def test_an_example_becomes_the_record_that_is_read() -> None:
    for signature, format_ in ((MIXED, "json"), (OF_WHOLE_VALUE, "bytes")):
        example = create_example_record(signature, example_event(signature))
        parts = ListedMetadata([example.key], [example.time], [example.headers])
        result = decoder_factory.create_decoder(settings_of(format_, id="header:ce_id"), signature).decode(
            [example.value], parts
        )
        assert (result.rows, result.rejected) == ([0], {})
    joined = signature_of(("x", "float32", ["a", {"name": "customers.age", "from": "table:customers", "default": 0}]))
    assert create_example_record(joined, {"a": 1, "customers.age": 41}).value == b'{"a":1}'
    assert (
        create_example_record(OF_WHOLE_VALUE, {"image": "AAECAw==", "s": None}).value,
        create_example_record(OF_WHOLE_VALUE, {"s": "é"}).headers,
    ) == (
        b"\0\1\2\3",
        [("a.b", "é".encode())],
    )


def test_another_place_or_kind_breaks_events() -> None:
    old = signature_of(("x", "float32", ["a", {"name": "b", "from": "key"}]))
    renamed = signature_of(("x", "float32", ["a", {"name": "c", "from": "key"}]))
    inside = signature_of(("x", "float32", ["a", "b"]))
    assert (
        find_incompatible_changes(old, old)
        == find_incompatible_changes(old, renamed)
        == find_incompatible_changes(old, old, positional=True)
        == []
    )
    assert [(item.field, item.change) for item in find_incompatible_changes(old, inside)] == [
        ("b", "comes from the event (b) now, and came from key before")
    ]
    assert [item.change for item in find_incompatible_changes(old, inside, positional=True)][1:] == [
        "an event has 2 fields now, and had 1 before"
    ]
    array = signature_of(("x", "uint8", [{"name": "v", "array": True, "length": 4}]))
    as_bytes, wider = (signature_of(("x", dtype, [{"name": "v", "bytes": True, "length": 4}])) for dtype in ("uint8", "uint16"))
    assert [item.change for item in find_incompatible_changes(array, as_bytes)] == [
        "is bytes of 4 elements now, and was an array of 4 before"
    ]
    assert [item.change for item in find_incompatible_changes(as_bytes, wider)] == ["is uint16 now, and was uint8 before"]


def test_base64_is_read_back_exactly() -> None:
    assert binary_fields.from_base64(binary_fields.to_base64(bytes(range(256)))) == bytes(range(256))
