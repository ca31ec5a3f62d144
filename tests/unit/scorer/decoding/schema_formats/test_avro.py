"""Avro schemas with references in every shape, and decimals."""

import io
import itertools
import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest

from scorer.dead_letters.reasons import Reason
from scorer.decoding.row_schema import RowSchema
from scorer.decoding.schema_formats.avro import AvroReader
from scorer.decoding.schema_formats.decoder import SchemaDecoder
from scorer.decoding.schema_formats.schema import BadSchema, Schema
from scorer.decoding.types import Decoded
from tests.unit.scorer.decoding.formats import signature_of
from tests.unit.scorer.decoding.schema_events import avro_encoder, configured

A_AND_B = signature_of(("x", "float64", ["a", {"name": "b", "path": "part.inner.b", "default": -1}]))
INNER = {"type": "record", "name": "Inner", "namespace": "n.deep", "fields": [{"name": "b", "type": "double"}]}
PART = {"type": "record", "name": "Part", "namespace": "n", "fields": [{"name": "inner", "type": "n.deep.Inner"}]}
EVENT = {
    "type": "record",
    "name": "E",
    "namespace": "n",
    "fields": [{"name": "a", "type": "float"}, {"name": "part", "type": "Part"}],
}
COLOUR = {"type": "enum", "name": "n.Colour", "symbols": ["RED"]}
OTHER = {"type": "record", "name": "n.Other", "fields": [{"name": "z", "type": "Colour"}]}
BODY = b"\0\0\x80\x3f" + b"\0\0\0\0\0\0\0\x40"  # a is 1, b is 2


def reader(document: Any, references: Sequence[Any]) -> AvroReader:
    named_references = tuple((str(number), json.dumps(reference)) for number, reference in enumerate(references))
    return AvroReader(Schema("avro", json.dumps(document), named_references), RowSchema(A_AND_B, None, 1_000), None)


@pytest.mark.parametrize("references", list(itertools.permutations([INNER, PART, COLOUR])))
def test_references_of_references_come_in_any_order(references: Sequence[Any]) -> None:
    assert tuple(reader(EVENT, references).row(BODY, 0)) == (1, 2)


@pytest.mark.parametrize(
    ("document", "before"),
    [
        ("n.E", b""),
        (["n.E", "n.Other"], b"\0"),
        (["null", "n.Other", "n.E"], b"\4"),
        ({"type": "n.E"}, b""),
        (["n.Other", EVENT], b"\2"),
    ],
)
def test_an_event_may_be_a_reference_or_a_union_of_references(document: Any, before: bytes) -> None:
    references = [OTHER, *([] if before == b"\2" else [EVENT]), PART, INNER, COLOUR]
    assert tuple(reader(document, references).row(before + BODY, 0)) == (1, 2)


def test_a_union_in_a_field_may_hold_references() -> None:
    document = {**EVENT, "fields": [EVENT["fields"][0], {"name": "part", "type": ["null", "n.Other", "n.Part"]}]}
    assert tuple(reader(document, [OTHER, PART, INNER, COLOUR]).row(BODY[:4] + b"\4" + BODY[4:], 0)) == (1, 2)


def test_two_references_may_be_the_same_schema() -> None:
    assert tuple(reader(EVENT, [INNER, INNER, PART]).row(BODY, 0)) == (1, 2)


def test_a_reference_that_no_event_needs_may_be_incomplete() -> None:
    assert tuple(reader(EVENT, [OTHER, PART, INNER]).row(BODY, 0)) == (1, 2)


@pytest.mark.parametrize("default", ["x", None, {"type": "n.E"}])
def test_an_invalid_default_does_not_invalidate_a_schema(default: Any) -> None:
    document = {**EVENT, "fields": [{**EVENT["fields"][0], "default": default}, EVENT["fields"][1]]}  # type: ignore[dict-item]
    assert tuple(reader(document, [PART, INNER]).row(BODY, 0)) == (1, 2)


SAME = {"type": "record", "name": "Inner", "namespace": "n.deep", "doc": "again", "fields": INNER["fields"]}
TWICE = {
    **EVENT,
    "fields": [EVENT["fields"][0], {"name": "part", "type": {**PART, "fields": [{"name": "inner", "type": INNER}]}}],
}


def field(name: str, type_: Any) -> dict[str, Any]:
    return {"name": name, "type": type_}


@pytest.mark.parametrize(
    ("added_fields", "before"),
    [
        ([field("again", SAME)], b"\0" * 8),
        ([field("again", ["null", SAME])], b"\2" + b"\0" * 8),
        (
            [field("again", {"type": "array", "items": SAME}), field("name", "n.deep.Inner")],
            b"\2" + b"\0" * 8 + b"\0" + b"\0" * 8,
        ),
        ([field("c", COLOUR), field("d", {**COLOUR, "default": "RED"})], b"\0\0"),
        ([field("c", {**COLOUR, "name": "Colour"}), field("d", COLOUR)], b"\0\0"),
    ],
)
def test_a_type_may_be_defined_again_in_the_same_way(added_fields: list[Any], before: bytes) -> None:
    document = {**TWICE, "fields": [*added_fields, *TWICE["fields"]]}
    assert tuple(reader(document, []).row(before + BODY, 0)) == (1, 2)


def test_a_type_may_not_be_defined_again_in_another_way() -> None:
    document = {**TWICE, "fields": [field("other", {**INNER, "fields": []}), *TWICE["fields"]]}
    with pytest.raises(BadSchema, match="redefined named type"):
        reader(document, [])


def test_a_top_level_union_may_use_a_type_twice() -> None:
    document = ["null", {**TWICE, "fields": [*TWICE["fields"], field("again", "n.deep.Inner")]}]
    assert tuple(reader(document, []).row(b"\2" + BODY + b"\0" * 8, 0)) == (1, 2)


def test_two_references_may_share_a_type() -> None:
    diamond = {"type": "record", "name": "n.Diamond", "fields": [field("inner", "n.deep.Inner")]}
    document = {**EVENT, "fields": [*EVENT["fields"], field("diamond", "Diamond")]}
    for references in itertools.permutations([INNER, PART, diamond]):
        assert tuple(reader(document, references).row(BODY + b"\0" * 8, 0)) == (1, 2)


def test_a_type_without_namespace_is_found_from_within_one() -> None:
    alone = {"type": "record", "name": "Inner", "namespace": "", "fields": INNER["fields"]}
    part = {**PART, "fields": [field("inner", "Inner")]}
    for references in itertools.permutations([alone, part]):
        assert tuple(reader(EVENT, references).row(BODY, 0)) == (1, 2)
    namespaced = {**alone, "name": "n.Inner", "fields": [field("b", "float"), field("c", "float")]}
    assert tuple(reader(EVENT, [alone, part, namespaced]).row(BODY[:4] + b"\0\0\x80\x3f" * 2, 0)) == (1, 1)


@pytest.mark.parametrize("name", ["my-server.shop", "my-server.1shop", "$x"])
def test_names_that_only_strict_libraries_reject_are_read(name: str) -> None:
    inner = {**INNER, "namespace": name}
    part = {**PART, "namespace": name, "fields": [field("inner", "Inner")]}
    assert tuple(reader({**EVENT, "namespace": name}, [inner, part]).row(BODY, 0)) == (1, 2)


def test_a_change_of_a_row_with_a_reference_is_read() -> None:
    """Debezium defines the type of the row in `before` and names it in `after`."""
    value = {"type": "record", "name": "Value", "fields": [field("a", "double")], "connect.name": "s.shop.Value"}
    fields = [field("before", ["null", value]), field("after", ["null", "Value"]), field("source", "io.debezium.Source")]
    document = {"type": "record", "name": "Envelope", "namespace": "s.shop", "fields": fields}
    source = {"type": "record", "name": "Source", "namespace": "io.debezium", "fields": [field("lsn", "long")]}
    signature = signature_of(("x", "float64", [{"name": "a", "path": "after.a"}]))
    schema = Schema("avro", json.dumps(document), (("io.debezium.Source", json.dumps(source)),))
    row = AvroReader(schema, RowSchema(signature, None, 1_000), None).row(b"\0\2" + BODY[4:] + b"\4", 0)
    assert tuple(row) == (2,)


def test_a_missing_type_is_named() -> None:
    with pytest.raises(BadSchema, match=r"neither the schema nor its references define the type 'n\.deep\.Inner'"):
        reader({**EVENT, "fields": [{"name": "inner", "type": "n.deep.Inner"}]}, [PART])


DECIMALS = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}]},
        {
            "name": "rate",
            "type": {"type": "fixed", "name": "F", "size": 3, "logicalType": "decimal", "precision": 6, "scale": 4},
        },
        {"name": "count", "type": {"type": "bytes", "logicalType": "decimal", "precision": 19}},
        {"name": "amounts", "type": {"type": "array", "items": {"type": "bytes", "logicalType": "decimal", "scale": 1}}},
        {
            "name": "number",
            "type": {
                "type": "record",
                "name": "VariableScaleDecimal",
                "namespace": "io.debezium.data",
                "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
            },
        },
        {"name": "opaque", "type": {"type": "bytes", "logicalType": "decimal", "scale": -1}},
    ],
}
SIGNATURE = signature_of(
    ("x", "float64", [{"name": "price", "default": 0}, "rate", "number"]),
    ("n", "int64", ["count"]),
    ("v", "float32", [{"name": "amounts", "array": True, "length": 2}]),
)


def plain(schema: Any) -> Any:
    if isinstance(schema, list):
        return list(map(plain, schema))
    return {key: plain(value) for key, value in schema.items() if key != "logicalType"} if isinstance(schema, dict) else schema


def decode(folder: Path, **changes: Any) -> Decoded:
    """Decode one row whose bytes are written without logical types."""
    event = {
        "price": b"\x04\xe2",
        "rate": b"\xff\xff\x85",
        "count": b"\x2a",
        "amounts": [b"\5", b"\xfb"],
        "number": {"scale": 3, "value": b"\7\xd0"},
        "opaque": b"\xff",
    }
    decoder = SchemaDecoder(SIGNATURE, configured(folder, "avro", json.dumps(DECIMALS), id="number"))
    return decoder.decode([avro_encoder(plain(DECIMALS))(event | changes)])


def test_decimals_are_numbers(tmp_path: Path) -> None:
    decoded = decode(tmp_path)
    assert decoded.tensors["x"].tolist() == [[12.5, -0.0123, 2]]
    assert decoded.tensors["n"].tolist() == [[42]]
    assert decoded.tensors["v"].tolist() == [[0.5, -0.5]]
    assert decoded.ids == [2]


def test_a_decimal_with_more_digits_than_its_precision_loses_none(tmp_path: Path) -> None:
    decoded = decode(tmp_path, count=(2**62 + 1).to_bytes(8, "big"), price=(123_456_789_01).to_bytes(5, "big"))
    assert decoded.tensors["n"].tolist() == [[2**62 + 1]]
    assert decoded.tensors["x"][0, 0] == 123_456_789.01


def test_a_decimal_is_a_number_in_a_schema_that_nests_in_itself(tmp_path: Path) -> None:
    """The record is read by fastavro's reader in Python."""
    decimal = {"name": "a", "type": {"type": "bytes", "logicalType": "decimal", "scale": 2}}
    schema = {"type": "record", "name": "E", "fields": [decimal, {"name": "next", "type": ["null", "E"]}]}
    signature = signature_of(("x", "float64", ["a"]))
    decoder = SchemaDecoder(signature, configured(tmp_path, "avro", json.dumps(schema), id="header:ce_id"))
    assert decoder.decode([b"\4\x04\xe2\2\2\1\0"]).tensors["x"].tolist() == [[12.5]]


def test_a_null_decimal_is_absent(tmp_path: Path) -> None:
    assert decode(tmp_path, price=None).tensors["x"][0, 0] == 0


def test_bytes_without_a_scale_in_the_schema_name_debeziums_setting(tmp_path: Path) -> None:
    schema = {"type": "record", "name": "Row", "fields": [{"name": "a", "type": "bytes", "logicalType": "decimal", "scale": 2}]}
    decoder = SchemaDecoder(
        signature_of(("x", "float64", ["a"])), configured(tmp_path, "avro", json.dumps(schema), id="header:ce_id")
    )
    poison = decoder.decode([b"\2\1"]).rejected[0]
    assert (poison.reason, "decimal.handling.mode" in str(poison)) == (Reason.WRONG_TYPE, True)


def test_a_decimal_beyond_all_floats_is_named(tmp_path: Path) -> None:
    poison = decode(tmp_path, number={"scale": -400, "value": b"\1"}).rejected[0]
    assert (poison.reason, str(poison)) == (Reason.NOT_FINITE, "field 'number': a number is not finite in float64")


def test_fastavro_writes_what_is_read(tmp_path: Path) -> None:
    """Decimals that fastavro encodes are decoded to the same numbers."""
    schema = {"type": "record", "name": "Row", "fields": DECIMALS["fields"][:3]}
    stream = io.BytesIO()
    row = {"price": Decimal("-1.25"), "rate": Decimal("3.0001"), "count": Decimal(-7)}
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
    signature = signature_of(("x", "float64", ["price", "rate", "count"]))
    decoder = SchemaDecoder(signature, configured(tmp_path, "avro", json.dumps(schema), id="header:ce_id"))
    assert decoder.decode([stream.getvalue()]).tensors["x"].tolist() == [[-1.25, 3.0001, -7]]


TEXTS: dict[str, Any] = {
    "type": "record",
    "name": "E",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "words", "type": {"type": "array", "items": "string"}},
        {"name": "unread", "type": {"type": "map", "values": "string"}},
    ],
}
WORDS = signature_of(("s", "string", [{"name": "words", "array": True, "length": 2}]))


@pytest.mark.parametrize("recursive", [False, True])
@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"iiii", r"field 'id' is b'\xed\xa0\xbd!', which is not UTF-8; write text in UTF-8"),
        (b"wwww", r"field 'words[1]' is b'\xed\xa0\xbd!', which is not UTF-8; write text in UTF-8"),
        (b"uuuu", r"field 'unread.kkkk' is b'\xed\xa0\xbd!', which is not UTF-8; write text in UTF-8"),
        (b"kkkk", "a text or the key of a map in the Avro record is not UTF-8; write text in UTF-8"),
    ],
)
def test_text_that_is_not_utf8_is_named(tmp_path: Path, text: bytes, error: str, recursive: bool) -> None:
    """A record that may nest in itself is read by another reader of fastavro."""
    nested = [{"name": "next", "type": ["null", "E"], "default": None}]
    schema = TEXTS | {"fields": TEXTS["fields"] + (nested if recursive else [])}
    valid = avro_encoder(schema)({"id": "iiii", "words": ["a", "wwww"], "unread": {"kkkk": "uuuu"}})
    invalid = valid.replace(text, b"\xed\xa0\xbd!")
    decoded = SchemaDecoder(WORDS, configured(tmp_path, "avro", json.dumps(schema))).decode([valid, invalid, valid])
    assert decoded.rows == [0, 2]
    assert (decoded.rejected[1].reason, str(decoded.rejected[1])) == (Reason.NOT_UTF8, error)
