"""Schema ids in headers as Confluent's and Apicurio's serialisers write them, and headers with invalid or ambiguous ids."""

import json
import struct
from typing import Any

import pytest
from confluent_kafka.schema_registry import header_schema_id_serializer
from confluent_kafka.schema_registry.common.serde import SchemaId as ConfluentId
from confluent_kafka.serialization import MessageField, SerializationContext

from scorer.dead_letters.reasons import Poison
from scorer.decoding.batch import Headers
from scorer.decoding.record_metadata import ListedMetadata
from scorer.decoding.schema_formats.decoder import SchemaDecoder, SchemaIdReader
from scorer.decoding.schema_formats.schema import LookUpFailed, Schema, SchemaId
from scorer.decoding.schema_formats.schema_id_headers import frame, reference
from scorer.decoding.schema_formats.schema_registry import SchemaRegistry
from scorer.decoding.schema_formats.schema_source import SchemaRegistrySource
from scorer.decoding.types import Decoded
from scorer.settings.input import SchemaRegistrySettings
from tests.unit.scorer.decoding.formats import signature_of
from tests.unit.scorer.decoding.schema_events import avro_encoder, avro_record, settings_of

GUID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
FIRST, OTHER = avro_record(id="string", a="float", b="float"), avro_record(b="float")
FLAT = signature_of(("x", "float32", ["a", "b"]))


class ScriptedClient:
    """A client of a registry with these schemas."""

    def __init__(self, schemas: dict[SchemaId, Schema]) -> None:
        self.schemas = schemas

    def schema(self, schema_id: SchemaId) -> Schema:
        if schema_id not in self.schemas:
            raise LookUpFailed("nothing here", 404)
        return self.schemas[schema_id]

    def probe(self) -> None:
        """Answer."""


def source(schemas: dict[SchemaId, Schema], format_: str = "avro") -> SchemaRegistrySource:
    return SchemaRegistrySource(
        format_, SchemaRegistry(SchemaRegistrySettings(url="http://127.0.0.1:1"), ScriptedClient(schemas))
    )


def decoded(schemas: dict[SchemaId, Schema], *events: tuple[bytes, Headers], format_: str = "avro") -> Decoded:
    decoder = SchemaDecoder(FLAT, settings_of(format_), source(schemas, format_))
    values, headers = [value for value, _ in events], [headers for _, headers in events]
    return decoder.decode(values, ListedMetadata([None] * len(events), [0] * len(events), headers))


def confluent(type_: str, indexes: list[int] | None = None) -> Headers:
    """Return the header that Confluent's own serialiser writes."""
    headers: list[tuple[str, Any]] = []
    context = SerializationContext("t", MessageField.VALUE, headers)
    header_schema_id_serializer(b"", context, ConfluentId(type_, 1, GUID, indexes))
    return headers


def long(name: str, number: int) -> Headers:
    return [(f"apicurio.value.{name}", number.to_bytes(8, "big"))]


BODY = avro_encoder(FIRST)({"id": "e", "a": 1.0, "b": 2.0})
SCHEMA, OTHER_SCHEMA = Schema("avro", json.dumps(FIRST)), Schema("avro", json.dumps(OTHER))


@pytest.mark.parametrize(
    ("headers", "schema_id"),
    [
        (confluent("AVRO"), SchemaId("GUID", GUID)),
        ([("__value_schema_id", b"\0\0\0\0\7")], SchemaId("id", 7)),
        (long("contentId", 7), SchemaId("content id", 7)),
        (long("globalId", 7), SchemaId("global id", 7)),
        ([*(long("globalId", 7) or []), ("apicurio.value.encoding", b"BINARY")], SchemaId("global id", 7)),
        ([("__value_schema_id", b"\0\0\0\0\7"), ("__value_schema_id", b"\0\0\0\0\7")], SchemaId("id", 7)),
        ([("__key_schema_id", b"\0\0\0\0\5"), ("ce_id", b"x"), ("__value_schema_id", b"\0\0\0\0\7")], SchemaId("id", 7)),
    ],
)
def test_an_event_is_read_by_the_schema_that_its_headers_name(headers: Headers, schema_id: SchemaId) -> None:
    schemas = {schema_id: SCHEMA, SchemaId("id", 1): OTHER_SCHEMA}
    prefixed = b"\0\0\0\0\1" + avro_encoder(OTHER)({"b": 2.0})
    rows = decoded(schemas, (BODY, headers), (prefixed, None), (BODY, headers))
    assert rows.rows == [0, 2]
    assert rows.ids == ["e", "e"]
    assert rows.tensors["x"].tolist() == [[1.0, 2.0]] * 2
    assert rows.rejected[1].reason == "missing-field"
    assert SchemaIdReader(settings_of("avro"), source(schemas)).read_id(BODY, headers) == "e"


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ([("__value_schema_id", None)], "header __value_schema_id is b'', which is not the id of a schema"),
        ([("__value_schema_id", b"\1" + bytes(15))], "which is not the id of a schema"),
        ([("__value_schema_id", b"\2" + bytes(16))], "which is not the id of a schema"),
        ([("__value_schema_id", b"\0\0\0\0\7\0")], "which is not the id of a schema"),
        ([("apicurio.value.contentId", b"7")], "which is not the id of a schema"),
        (long("contentId", 0), "which is not the id of a schema"),
        (long("contentId", 2**63), "which is not the id of a schema"),
        ([*(long("contentId", 7) or []), *(long("globalId", 7) or [])], "headers name different schemas"),
        ([*(long("contentId", 7) or []), *(long("contentId", 8) or [])], "headers name different schemas"),
        ([*(confluent("AVRO") or []), *(long("contentId", 8) or [])], "headers name different schemas"),
        ([("apicurio.value.artifactId", b"x")], "in an unsupported way"),
        ([("apicurio.registry.globalId", bytes(8))], "in an unsupported way"),
        ([*(long("contentId", 7) or []), ("apicurio.value.encoding", b"JSON")], "only BINARY is supported"),
    ],
)
def test_an_event_without_a_unique_schema_id_in_its_headers_is_a_dead_letter(headers: Headers, message: str) -> None:
    value = b"\0\0\0\0\1" + avro_encoder(FIRST)({"id": "e", "a": 1.0, "b": 2.0})
    rows = decoded({SchemaId("id", 1): SCHEMA}, (value, headers))
    assert rows.rows == []
    assert rows.rejected[0].reason == "unknown-schema"
    assert message in str(rows.rejected[0])


def test_an_event_that_is_complete_by_its_headers_and_by_its_prefix_is_a_dead_letter() -> None:
    schemas = {SchemaId("GUID", GUID): SCHEMA, SchemaId("id", 1): OTHER_SCHEMA}
    ambiguous = b"\0\0\0\0\1" + struct.pack("<f", 2.0)  # with FIRST: an empty id, a tiny number, and 2.0
    unknown_prefix = b"\0\0\0\0\2" + struct.pack("<f", 2.0)  # schema 2 does not exist, so only the header names a schema
    too_long = b"\0\0\0\0\1" + BODY
    rows = decoded(schemas, *((value, confluent("AVRO")) for value in (ambiguous, unknown_prefix, too_long, BODY)))
    assert rows.rows == [1, 3]
    assert {row: str(poison.reason) for row, poison in rows.rejected.items()} == {0: "unknown-schema", 2: "malformed"}
    assert "the value is also a complete event with the prefix of schema 1" in str(rows.rejected[0])


def test_the_prefix_is_not_used_if_the_schema_of_a_header_is_unknown() -> None:
    value = b"\0\0\0\0\1" + BODY
    rows = decoded({SchemaId("id", 1): SCHEMA}, (value, confluent("AVRO")))
    assert str(rows.rejected[0]) == f"the schema registry does not know the schema with the GUID {GUID}: nothing here"


PROTO = """syntax = "proto3";
message A { float b = 1; message B { float a = 1; float b = 2; } }
message C { float a = 2; float b = 1; }
"""
PROTO_BODY = b"\x0d" + struct.pack("<f", 1.0) + b"\x15" + struct.pack("<f", 2.0)


def test_a_protobuf_message_is_the_one_that_headers_name() -> None:
    nested_message, second_message = confluent("PROTOBUF", [0, 0]), confluent("PROTOBUF", [1])
    by_type_header = [*(long("contentId", 7) or []), ("apicurio.protobuf.type", b"C")]
    schema = Schema("protobuf", PROTO)
    schemas = {SchemaId("GUID", GUID): schema, SchemaId("content id", 7): Schema("", PROTO)}
    events = [
        (PROTO_BODY, nested_message),
        (PROTO_BODY, second_message),
        (PROTO_BODY, by_type_header),
        (reference("C") + PROTO_BODY, by_type_header),
    ]
    rows = decoded(schemas, *events, (PROTO_BODY, long("contentId", 7)), format_="protobuf")
    assert rows.tensors["x"].tolist() == [[1.0, 2.0], [2.0, 1.0], [2.0, 1.0], [2.0, 1.0]]
    assert "the schema has the messages A, C" in str(rows.rejected[4])


def test_the_message_is_no_part_of_an_avro_header() -> None:
    with pytest.raises(Poison, match="is not the id of a schema"):
        frame(confluent("PROTOBUF", [0]), "avro")
    assert frame([("__key_schema_id", b"x"), ("apicurio.key.contentId", b"x")], "avro") is None
