"""Enums, wrappers and decimals of Protobuf are read like those of Avro."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from model_registry.package.json_path import parse
from scorer.dead_letters.reasons import Reason
from scorer.decoding.row_schema import RowSchema
from scorer.decoding.schema_formats import proto_files
from scorer.decoding.schema_formats.decoder import SchemaDecoder
from scorer.decoding.schema_formats.protobuf import MAX_SEARCHED, ProtobufReader
from scorer.decoding.schema_formats.schema import Schema, SchemaId
from scorer.decoding.schema_formats.schema_registry import SchemaRegistry
from scorer.decoding.schema_formats.schema_source import SchemaRegistrySource
from scorer.decoding.types import Decoded
from tests.unit.scorer.decoding.formats import signature_of
from tests.unit.scorer.decoding.schema_events import configured, proto_class, settings_of

TEXT = """syntax = "proto3";
import "google/protobuf/wrappers.proto";
import "confluent/type/decimal.proto";
enum Colour { option allow_alias = true; RED = 0; GREEN = 5; LIME = 5; }
message Variable { int32 scale = 1; bytes value = 2; }
message Row {
  Colour colour = 1;
  optional Colour other = 2;
  repeated Colour all = 3;
  map<string, Colour> by_name = 4;
  Colour number = 5;
  google.protobuf.DoubleValue a = 6;
  google.protobuf.Int64Value n = 7;
  google.protobuf.StringValue word = 8;
  google.protobuf.BoolValue flag = 9;
  repeated google.protobuf.FloatValue vector = 10;
  map<string, google.protobuf.DoubleValue> amounts = 11;
  confluent.type.Decimal price = 12;
  Variable rate = 13;
  google.protobuf.StringValue id = 14;
}
"""
SIGNATURE = signature_of(
    (
        "s",
        "string",
        [
            "colour",
            {"name": "other", "default": "-"},
            {"name": "named", "path": "by_name.x", "default": "-"},
            {"name": "second", "path": "all[1]", "default": "-"},
            {"name": "word", "default": "-"},
        ],
    ),
    ("k", "int64", ["number", {"name": "n", "default": -1}]),
    (
        "x",
        "float64",
        [
            {"name": "a", "default": "nan"},
            {"name": "amount", "path": "amounts.eur", "default": 0},
            {"name": "price", "default": 0},
            {"name": "rate", "default": 0},
        ],
    ),
    ("f", "bool", [{"name": "flag", "default": True}]),
    ("v", "float32", [{"name": "vector", "array": True, "length": 2, "default": 9}]),
)
New = Callable[..., Any]


def decode(folder: Path, *rows: Any) -> Decoded:
    decoder = SchemaDecoder(SIGNATURE, configured(folder, "protobuf", TEXT, message="Row"))
    return decoder.decode([row.SerializeToString() for row in rows])


def full(new: New) -> Any:
    row = new(colour=5, other=5, all=[0, 5], number=5, price={"value": b"\x04\xe2", "scale": 2})
    row.by_name["x"] = 5
    row.a.value, row.n.value, row.word.value, row.flag.value, row.id.value = 1.5, 7, "w", False, "e"
    for number in (0.5, -0.5):
        row.vector.add(value=number)
    row.amounts["eur"].value = 3.0
    row.rate.value, row.rate.scale = b"\xff", 1
    return row


def test_enums_are_symbols_for_text_and_wrappers_and_decimals_are_values(tmp_path: Path) -> None:
    new = proto_class(TEXT, "Row")
    decoded = decode(tmp_path, full(new), new())
    assert decoded.tensors["s"].tolist() == [["GREEN", "GREEN", "GREEN", "GREEN", "w"], ["RED", "-", "-", "-", "-"]]
    assert decoded.tensors["k"].tolist() == [[5, 7], [0, -1]]
    assert decoded.tensors["x"].tolist()[0] == [1.5, 3, 12.5, -0.1]
    assert str(decoded.tensors["x"].tolist()[1]) == "[nan, 0.0, 0.0, 0.0]"
    assert decoded.tensors["f"].tolist() == [[False], [True]]
    assert decoded.tensors["v"].tolist() == [[0.5, -0.5], [9, 9]]
    assert decoded.ids == ["e", None]


def test_a_wrapper_of_zero_is_not_absent(tmp_path: Path) -> None:
    new = proto_class(TEXT, "Row")
    row = new()
    row.a.SetInParent()
    row.n.SetInParent()
    decoded = decode(tmp_path, row)
    assert (decoded.tensors["x"][0, 0], decoded.tensors["k"][0, 1]) == (0, 0)


def test_a_number_that_is_no_symbol_is_named(tmp_path: Path) -> None:
    new = proto_class(TEXT, "Row")
    poison = decode(tmp_path, new(colour=9)).rejected[0]
    assert (poison.reason, str(poison)) == (Reason.WRONG_TYPE, "field 'colour': Expected `str`, got `int`")


def test_repeated_enums_are_symbols_too(tmp_path: Path) -> None:
    signature = signature_of(("s", "string", [{"name": "all", "array": True, "length": 2}]))
    decoder = SchemaDecoder(signature, configured(tmp_path, "protobuf", TEXT, message="Row", id="header:ce_id"))
    value = proto_class(TEXT, "Row")(all=[5, 0]).SerializeToString()
    assert decoder.decode([value]).tensors["s"].tolist() == [["GREEN", "RED"]]


def test_the_value_of_a_wrapper_may_be_named_by_its_path(tmp_path: Path) -> None:
    signature = signature_of(("x", "float64", [{"name": "a", "path": "a.value"}]))
    decoder = SchemaDecoder(signature, configured(tmp_path, "protobuf", TEXT, message="Row", id="header:ce_id"))
    value = proto_class(TEXT, "Row")(a={"value": 2.5}).SerializeToString()
    assert decoder.decode([value]).tensors["x"].tolist() == [[2.5]]


def test_wrappers_and_decimals_are_carried() -> None:
    message = proto_files.message_named(proto_files.compiled(Schema("protobuf", TEXT)), "Row")
    reader = ProtobufReader(message, RowSchema(SIGNATURE, None, 1_000), None)
    paths = [parse(path) for path in ("a", "word", "price", "n")]
    values = reader.path_reader(paths)
    assert values(full(proto_class(TEXT, "Row")).SerializeToString(), 0) == [1.5, "w", 12.5, 7]
    assert values(b"", 0) == [None] * 4


DEFAULTS = """
enum Colour { RED = 0; GREEN = 5; }
message Inner { optional int32 k = 1 [default = 7]; }
message E {
  optional double a = 1 [default = 2.5];
  optional double b = 2;
  optional Colour colour = 3 [default = GREEN];
  optional Inner inner = 4;
  oneof one { double c = 5 [default = 4]; double d = 6; }
}
"""
DEFAULTED = signature_of(
    ("x", "float64", ["a", {"name": "b", "default": -1}, {"name": "c", "default": -1}]),
    ("s", "string", ["colour"]),
    ("k", "int64", [{"name": "k", "path": "inner.k", "default": -1}]),
)


@pytest.mark.parametrize("syntax", ['syntax = "proto2";', 'edition = "2023";'])
def test_an_absent_field_has_the_default_of_its_schema(tmp_path: Path, syntax: str) -> None:
    text = syntax + (DEFAULTS if "proto2" in syntax else DEFAULTS.replace("optional ", ""))
    decoder = SchemaDecoder(DEFAULTED, configured(tmp_path, "protobuf", text, message="E", id="header:ce_id"))
    new = proto_class(text, "E")
    decoded = decoder.decode([new(**fields).SerializeToString() for fields in ({}, {"a": 0, "inner": {}, "c": 1})])
    assert decoded.tensors["x"].tolist() == [[2.5, -1, -1], [0, -1, 1]]
    assert decoded.tensors["s"].tolist() == [["GREEN"], ["GREEN"]]
    assert decoded.tensors["k"].tolist() == [[-1], [7]]


TWO = """syntax = "proto3"; message A { message B { double b = 1; } message C { double c = 1; } } message D { double d = 1; }"""


class SingleSchemaClient:
    """A registry's client that knows one schema."""

    def schema(self, schema_id: SchemaId) -> Schema:  # noqa: ARG002 - it is the only one
        return Schema("protobuf", TWO)

    def probe(self) -> None:
        """Answer."""


@pytest.mark.parametrize(
    ("path", "message", "error"),
    [
        (b"\0", "A", ""),
        (b"\2\0", "A", ""),
        (b"\2\2", "D", ""),
        (b"\4\0\2", "A.C", ""),
        (b"\2\x0a", "", "the schema has no message at the index path [5]"),
        (b"\4\0\x0a", "", "the schema has no message at the index path [0, 5]"),
        (b"\1\1", "", "use.deprecated.format"),
        (b"\2", "", "use.deprecated.format"),
        (b"", "", "use.deprecated.format"),
        (b"\x09" + b"\0" * 8, "", "use.deprecated.format"),
    ],
)
def test_the_path_of_a_message_is_read_or_named(path: bytes, message: str, error: str) -> None:
    names = {"A": "z", "D": "d", "A.C": "c"}
    signature = signature_of(("x", "float64", [{"name": names.get(message, "z"), "default": -1}]))
    registry = SchemaRegistry(settings_of("protobuf").schema_registry, SingleSchemaClient())
    decoder = SchemaDecoder(signature, settings_of("protobuf", id="header:ce_id"), SchemaRegistrySource("protobuf", registry))
    body = b"" if error else b"\x09" + struct.pack("<d", 3)
    decoded = decoder.decode([b"\0\0\0\0\7" + path + body])
    if error:
        assert error in str(decoded.rejected[0])
    else:
        assert decoded.tensors["x"].tolist() == [[-1 if message == "A" else 3]]


@pytest.mark.parametrize(
    ("value", "serialiser"),
    [
        (b"\3\0" + b"u" * 16 + b"x", "AWS Glue"),
        (b"\3\5" + b"u" * 16 + b"x", "AWS Glue"),
        (b"\xc3\1" + b"f" * 8, "single-object"),
        (b"Obj\1\4\x16avro.schema", "Avro file"),
        (b'{"a": 1}', "does not begin with a zero byte and the id of its schema"),
    ],
)
@pytest.mark.parametrize("format_", ["avro", "protobuf"])
def test_events_with_another_serialisers_prefix_name_it(format_: str, value: bytes, serialiser: str) -> None:
    registry = SchemaRegistry(settings_of(format_).schema_registry, SingleSchemaClient())
    decoder = SchemaDecoder(SIGNATURE, settings_of(format_), SchemaRegistrySource(format_, registry))
    poison = decoder.decode([value]).rejected[0]
    assert poison.reason is Reason.MALFORMED
    assert serialiser in str(poison)


TEXTS = """syntax = "%s";
message Part { %s string word = 1; }
message Event { %s string id = 1; repeated string words = 2; %s Part part = 3; %s string unread = 4; }
"""
WORDS = signature_of(("s", "string", [{"name": "word", "path": "part.word"}, {"name": "first", "path": "words[0]"}]))


@pytest.mark.parametrize("syntax", ["proto2", "proto3"])
@pytest.mark.parametrize(("text", "field"), [(b"iiii", "id"), (b"wwww", "words"), (b"pppp", "part.word"), (b"uuuu", "unread")])
def test_text_that_is_not_utf8_is_named(tmp_path: Path, syntax: str, text: bytes, field: str) -> None:
    """The library rejects the text in proto3, and returns it as bytes in proto2."""
    schema = TEXTS % (syntax, *["optional"] * 4)
    new = proto_class(schema, "Event")
    valid = new(id="iiii", words=["wwww"], part={"word": "pppp"}, unread="uuuu").SerializeToString()
    invalid = valid.replace(text, b"\xed\xa0\xbd!")
    decoded = SchemaDecoder(WORDS, configured(tmp_path, "protobuf", schema, message="Event")).decode([valid, invalid, valid])
    if (syntax, field) == ("proto2", "unread"):
        assert (decoded.rows, decoded.rejected) == ([0, 1, 2], {})
        return
    assert decoded.rows == [0, 2]
    expected = rf"field '{field}' is b'\xed\xa0\xbd!', which is not UTF-8; write text in UTF-8"
    assert (decoded.rejected[1].reason, str(decoded.rejected[1])) == (Reason.NOT_UTF8, expected)


def test_text_that_is_not_utf8_is_not_searched_in_a_large_message(tmp_path: Path) -> None:
    schema = TEXTS % ("proto3", *["optional"] * 4)
    value = proto_class(schema, "Event")(unread="u" * MAX_SEARCHED).SerializeToString()[:-1] + b"\xff"
    settings = configured(tmp_path, "protobuf", schema, message="Event", max_event_bytes=2 * MAX_SEARCHED)
    poison = SchemaDecoder(WORDS, settings).decode([value]).rejected[0]
    assert (poison.reason, str(poison)) == (Reason.NOT_UTF8, "a text in the message is not UTF-8; write text in UTF-8")
