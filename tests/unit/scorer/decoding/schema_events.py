"""Helpers of the tests of Avro and Protobuf: settings, schemas, and encoders of other libraries."""

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import fastavro
from google.protobuf import message_factory

from scorer.decoding.schema_formats import proto_files
from scorer.decoding.schema_formats.schema import Schema
from scorer.settings import Settings
from tests.unit.scorer.minimal import minimal

Encode = Callable[[Mapping[str, Any]], bytes]
PROTO = """syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Other { int32 n = 1; }
message Event {
  string id = 1;
  int64 at = 2;
  float a = 4;
  optional double b = 5;
  optional float c = 6;
  repeated float vector = 7;
  bytes opaque = 20;
}
"""


def avro_record(**fields: Any) -> dict[str, Any]:
    """Return a record schema of these fields and types. A field whose name ends in `_` may be null."""
    definitions = [
        {"name": name[:-1], "type": ["null", type_], "default": None} if name.endswith("_") else {"name": name, "type": type_}
        for name, type_ in fields.items()
    ]
    return {"type": "record", "name": "Event", "fields": definitions}


MORE = {"type": "record", "name": "More", "fields": [{"name": "a", "type": "double"}]}
AT = {"type": "long", "logicalType": "timestamp-millis"}
FLOATS, DOUBLES = ({"type": "array", "items": items} for items in ("float", "double"))
AVRO = avro_record(id="string", at=AT, more=MORE, a="float", b_="double", c_="float", vector=FLOATS)
MIXED_AVRO = avro_record(
    a="double",
    b_="double",
    c_="double",
    count="int",
    size_="long",
    word="string",
    other_="string",
    flag_="boolean",
    vector=DOUBLES,
    id_="string",
)
MIXED_PROTO = """syntax = "proto3";
message Event {
  double a = 1; optional double b = 2; optional double c = 3; sint32 count = 4; optional int64 size = 5; string word = 6;
  optional string other = 7; optional bool flag = 8; repeated double vector = 9; optional string id = 10;
}
"""


def nullable(type_: str) -> dict[str, Any]:
    return {"type": ["null", type_], "default": None}


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": key, **type_} for key, type_ in fields.items()]}


DOUBLE, LONG, STRING = nullable("double"), nullable("long"), nullable("string")
INNER = record("More", count={"type": "int"}, vector={"type": {"type": "array", "items": "double"}})
ITEM = record("Item", word=STRING, size=LONG, c=DOUBLE)
NESTED_AVRO = record(
    "Event",
    after={"type": record("After", a={"type": "double"}, b=DOUBLE, more={"type": INNER})},
    items={"type": {"type": "array", "items": ["null", ITEM]}},
    flag=nullable("boolean"),
    note={"type": ["null", record("Note", other=STRING)], "default": None},
    meta={"type": ["null", record("Meta", id=STRING)], "default": None},
)
NESTED_PROTO = """syntax = "proto3";
message Event {
  message More { sint32 count = 1; repeated double vector = 2; }
  message After { double a = 1; optional double b = 2; More more = 3; }
  message Item { optional string word = 1; optional int64 size = 2; optional double c = 3; }
  message Note { optional string other = 1; }
  message Meta { optional string id = 1; }
  After after = 1; repeated Item items = 2; optional bool flag = 3; Note note = 4; Meta meta = 5;
}
"""


def configured(folder: Path, format_: str, text: str, **options: Any) -> Settings:
    path = folder / ("schema.avsc" if format_ == "avro" else "schema.proto")
    path = path.with_name(f"{abs(hash(text))}-{path.name}")  # a file is read once in a process
    path.write_text(text)
    return settings_of(format_, schema_file=path, **options)


def with_schema(format_: str, folder: Path, *, mixed: bool) -> tuple[Encode, Settings]:
    """Return an encoder, and settings with its schema: of NUMBERS in `formats.py`, or of MIXED."""
    if format_ == "avro":
        schema = MIXED_AVRO if mixed else AVRO
        return avro_encoder(schema), configured(folder, "avro", json.dumps(schema))
    text, constants = (MIXED_PROTO, {}) if mixed else (PROTO, {"at": 1_700_000_000_000, "opaque": b"\xff\0"})
    return proto_encoder(text, **constants), configured(folder, "protobuf", text, message="Event")


def with_nested_schema(format_: str, folder: Path) -> tuple[Encode, Settings]:
    """Return an encoder of events for NESTED in `formats.py`, and settings with its schema."""
    if format_ == "avro":
        return avro_encoder(NESTED_AVRO), configured(folder, "avro", json.dumps(NESTED_AVRO), id="meta.id")
    encode = proto_encoder(NESTED_PROTO)
    return lambda event: encode(_for_proto(event)), configured(folder, "protobuf", NESTED_PROTO, message="Event", id="meta.id")


def _for_proto(value: Any) -> Any:
    """Replace null by absent fields and empty elements."""
    if isinstance(value, dict):
        return {key: _for_proto(element) for key, element in value.items() if element is not None}
    return [{} if element is None else _for_proto(element) for element in value] if isinstance(value, list) else value


def settings_of(format_: str, output: str = "json", **options: Any) -> Settings:
    """Return settings with this format, and with a schema registry if there is no file."""
    registry = {} if "schema_file" in options or format_ == "json" else {"schema_registry": {"url": "http://127.0.0.1:1"}}
    input_settings = {"topics": ["t"], "format": format_, "id": "id", "max_event_bytes": 5_000, **options}
    return minimal(name="test", input=input_settings, output={"topic": "o", "format": output}, **registry)


def avro_encoder(schema: Any) -> Encode:
    parsed = fastavro.parse_schema(schema)

    def encode(event: Mapping[str, Any]) -> bytes:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, {"at": 1_700_000_000_000, "more": {"a": 0.0}, **event})
        return stream.getvalue()

    return encode


def avro_reader(schema: Any) -> Callable[[bytes], Any]:
    parsed = fastavro.parse_schema(schema)
    return lambda value: fastavro.schemaless_reader(io.BytesIO(value), parsed, None)


def proto_class(text: str, name: str | None) -> Any:
    """Return the class of a message; without a name, of the only message."""
    message = proto_files.message_named(proto_files.compiled(Schema("protobuf", text)), name)
    return message_factory.GetMessageClass(message)


def proto_encoder(text: str, **constants: Any) -> Encode:
    """Return an encoder of `Event` messages without a header, with these constants in each message."""
    new = proto_class(text, "Event")
    return lambda event: new(**{k: v for k, v in (constants | dict(event)).items() if v is not None}).SerializeToString()
