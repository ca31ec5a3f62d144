"""The schema of the score record in Avro. The Protobuf schema is derived from it, and JSON records have the same fields.

The schema is the same for every model and version, so that a consumer's schema never changes. The fields up to `event_ms`
differ from event to event; the other fields are the same in a batch and are encoded once per batch. Only `output.carry` extends
the schema: `carried` is the last field, so that consumers with and without `carried` can read each other's records.
"""

import json
from collections.abc import Sequence
from typing import Any

from scorer.settings.carry import CarriedField

NUMBERS = {"type": "array", "items": "double"}
SOURCE: dict[str, Any] = {
    "type": "record",
    "name": "Source",
    "fields": [{"name": "topic", "type": "string"}, {"name": "partition", "type": "int"}, {"name": "offset", "type": "long"}],
}
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Score",
    "namespace": "scorestream",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "score", "type": ["null", "double", NUMBERS, {"type": "map", "values": NUMBERS}]},
        {"name": "decision", "type": ["null", "string"]},
        {"name": "source", "type": SOURCE},
        {"name": "event_ms", "type": "long"},
        *({"name": name, "type": "string"} for name in ("status", "model", "version", "digest", "role", "region")),
        {"name": "scored_ms", "type": "long"},
        {"name": "arm", "type": "string", "default": ""},
        {"name": "revision", "type": "long", "default": 0},
        {"name": "fallback", "type": ["null", "string"], "default": None},
    ],
}
"""Meaning of some fields.

`score`: null if the event expired, a number, the elements of an array row by row, or such arrays by output. `arm`: the arm to
which the event's key belongs, champion or canary, under this `revision` of the channel; `role` is the role that answered.
`fallback`: the reason why the champion answered for the canary; in a shadow's record without a score (`status` dead_lettered),
the reason why the score is missing.
"""

NUMBERS_OF = {"carried": 13, "arm": 14, "revision": 15, "fallback": 16}
"""Protobuf numbers of the fields whose number is not their position, because a new field must not change existing numbers."""
PROTOBUF_TYPES = {"string": "string", "int": "int32", "long": "int64", "double": "double", "boolean": "bool"}
PROTOBUF_SCORE = """
message Numbers {
  repeated double numbers = 1;
}

message Named {
  string name = 1;
  repeated double numbers = 2;
}

message NamedNumbers {
  repeated Named outputs = 1;
}

message Value {
  oneof value {
    double number = 1;
    Numbers numbers = 2;
    NamedNumbers named = 3;
  }
}
"""


def record(carry: Sequence[CarriedField] = ()) -> dict[str, Any]:
    """Return the Avro schema as a dictionary. It includes these carried fields, each of which must have a type."""
    return {**SCHEMA, "fields": [*SCHEMA["fields"], *([_carried(carry)] if carry else [])]}


def _carried(carry: Sequence[CarriedField]) -> dict[str, Any]:
    fields = [{"name": field.name, "type": ["null", field.type], "default": None} for field in carry]
    kind = {"type": "record", "name": "Carried", "fields": fields}
    return {"name": "carried", "type": kind, "default": {field.name: None for field in carry}}


def avro(carry: Sequence[CarriedField] = ()) -> str:
    """Return the Avro schema with these carried fields as JSON text."""
    return json.dumps(record(carry), indent=2)


def protobuf(carry: Sequence[CarriedField] = ()) -> str:
    """Return the Protobuf schema with these carried fields as `.proto` text.

    A field's number is its position in the record, or its entry in `NUMBERS_OF`; the score is a message `Value`.
    """
    records = [record(carry), SOURCE, *([_carried(carry)["type"]] if carry else [])]
    return 'syntax = "proto3";\n\npackage scorestream;\n\n' + "\n".join(map(_message, records)) + PROTOBUF_SCORE


def _message(record: dict[str, Any]) -> str:
    fixed = NUMBERS_OF if record["name"] == SCHEMA["name"] else {}
    numbered = ((fixed.get(field["name"], position), field) for position, field in enumerate(record["fields"], start=1))
    lines = (f"  {_type(field['type'])} {field['name']} = {position};\n" for position, field in numbered)
    return f"message {record['name']} {{\n{''.join(lines)}}}\n"


def _type(avro: Any) -> str:
    if isinstance(avro, dict):
        return str(avro["name"])
    if isinstance(avro, list):
        return f"optional {PROTOBUF_TYPES[avro[1]]}" if len(avro) == 2 else "Value"
    return PROTOBUF_TYPES[avro]
