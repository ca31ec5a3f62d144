"""The Avro schema of the score record. The Protobuf schema is derived from it. JSON records have the same fields.

The schema is the same for every model and version. Only `output.carry` extends it, by the last field `carried`.
"""

# The fields up to `event_ms` differ between events. The remaining fields are the same in a batch and are encoded once per
# batch. Consumers with and without `carried` can read all records, because it is the last field.

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
"""The Avro schema without carried fields. The meaning of some fields is:

- `score`: null if there is no score, for example because the event expired; a number; the elements of an array in row-major
  order; or an array for each output, by name.
- `role`: the role of the version that answered.
- `arm`: the role (champion or canary) to which the traffic split of this channel `revision` assigns the event's key.
- `fallback`: the reason why the champion answered in place of the canary. In a shadow's record without a score (`status` is
  dead_lettered), the reason why the score is missing.
"""

NUMBERS_OF = {"carried": 13, "arm": 14, "revision": 15, "fallback": 16}
"""Protobuf field numbers that differ from the field's position. A new field must not change existing numbers."""
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
    """Return the Avro schema of a score record, as a dictionary. The carried fields `carry` must have types."""
    return {**SCHEMA, "fields": [*SCHEMA["fields"], *([_carried(carry)] if carry else [])]}


def _carried(carry: Sequence[CarriedField]) -> dict[str, Any]:
    fields = [{"name": field.name, "type": ["null", field.type], "default": None} for field in carry]
    kind = {"type": "record", "name": "Carried", "fields": fields}
    return {"name": "carried", "type": kind, "default": {field.name: None for field in carry}}


def avro(carry: Sequence[CarriedField] = ()) -> str:
    """Return the Avro schema of a score record with the carried fields `carry`. The schema is JSON text."""
    return json.dumps(record(carry), indent=2)


def protobuf(carry: Sequence[CarriedField] = ()) -> str:
    """Return the Protobuf schema of a score record with the carried fields `carry`. The schema is the text of a `.proto` file.

    The number of a field is its entry in `NUMBERS_OF`, or else its position in the record. The score is a message `Value`.
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
