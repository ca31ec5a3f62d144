"""Schemas for producers, made from a signature: events that follow them are valid for the version.

The types are the narrowest that hold every value of a dtype (Avro has none for uint64: a long is half of it); a Protobuf field
has presence: zero and absent differ. Its numbers follow the order of the signature, so new fields belong at the end. Arrays of
a shape are flat in Avro and Protobuf; in JSON either is valid.
"""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from model_registry.package.dtypes import FLOAT_LIMITS, INTEGER_LIMITS
from model_registry.package.signature import InputField, Signature
from scorer.events.decoder import Unsuited

DRAFT = "https://json-schema.org/draft/2020-12/schema"
AVRO = {"float16": "float", "float32": "float", "float64": "double", "bool": "boolean", "string": "string"} | {
    name: "int" if low >= -(1 << 31) and high < 1 << 31 else "long" for name, (low, high) in INTEGER_LIMITS.items()
}
PROTOBUF = {"float16": "float", "float32": "float", "float64": "double", "bool": "bool", "string": "string"} | {
    name: ("uint" if low == 0 else "sint") + ("64" if name.endswith("64") else "32")
    for name, (low, _) in INTEGER_LIMITS.items()
}


def json_schema(signature: Signature, name: str, id_field: str | None) -> str:
    properties = {field.name: _json(field) for field in signature.fields}
    if id_field and id_field not in properties:
        properties = {id_field: {"type": ["string", "integer"], "description": "identifies the event"}} | properties
    required = [field.name for field in signature.fields if field.required]
    document = {"$schema": DRAFT, "title": name, "type": "object", "properties": properties, "required": required}
    return json.dumps(document, indent=2)


def avro(signature: Signature, name: str, id_field: str | None) -> str:
    """Avro schema of an event. Raises Unsuited where a name cannot be one in Avro."""
    fields: list[dict[str, Any]] = []
    if id_field and id_field not in {field.name for field in signature.fields}:
        fields.append({"name": _named(id_field, "Avro"), "type": "string"})
    for field in signature.fields:
        type_: Any = AVRO[field.dtype]
        if field.array:
            type_ = {"type": "array", "items": type_}
        optional = {} if field.required else {"default": None}
        fields.append({"name": _named(field.name, "Avro"), "type": type_ if field.required else ["null", type_], **optional})
    return json.dumps({"type": "record", "name": _type_name(name), "fields": fields}, indent=2)


def protobuf(signature: Signature, name: str, id_field: str | None) -> str:
    """Protobuf schema of an event. Raises Unsuited where a name cannot be one in Protobuf."""
    lines = [
        f"{'repeated' if field.array else 'optional'} {PROTOBUF[field.dtype]} {_named(field.name, 'Protobuf')}"
        for field in signature.fields
    ]
    if id_field and id_field not in {field.name for field in signature.fields}:
        lines.append(f"optional string {_named(id_field, 'Protobuf')}")
    body = "".join(f"  {line} = {number};\n" for number, line in enumerate(lines, start=1))
    return f'syntax = "proto3";\n\nmessage {_type_name(name)} {{\n{body}}}'


GENERATORS: dict[str, Callable[[Signature, str, str | None], str]] = {
    "json-schema": json_schema,
    "avro": avro,
    "protobuf": protobuf,
}
"""By format: (signature, name of the model, the event's id field or None) to the schema's text."""


def _json(field: InputField) -> dict[str, Any]:
    one: dict[str, Any]
    if field.dtype in INTEGER_LIMITS:
        low, high = INTEGER_LIMITS[field.dtype]
        one = {"type": "integer", "minimum": low, "maximum": high}
    elif field.dtype in FLOAT_LIMITS:
        limit = FLOAT_LIMITS[field.dtype]
        one = {"type": "number", "minimum": -limit, "maximum": limit}
    else:
        one = {"type": "boolean" if field.dtype == "bool" else "string"}
    if field.shape:
        either = [_array(one, (field.array or 0,)), _array(one, field.shape), *([] if field.required else [{"type": "null"}])]
        return {"anyOf": either}
    if field.array:
        one = _array(one, (field.array,))
    if field.required:
        return one
    default = {} if field.allows_nan or field.array else {"default": field.default}
    return {**one, "type": [one["type"], "null"], **default}


def _array(items: dict[str, Any], shape: Sequence[int]) -> dict[str, Any]:
    """Nested arrays of this shape."""
    for length in reversed(shape):
        items = {"type": "array", "items": items, "minItems": length, "maxItems": length}
    return items


def _named(name: str, format_: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise Unsuited(f"field {name!r} cannot be a name in {format_}: letters, digits and _ only, no digit first")
    return name


def _type_name(name: str) -> str:
    """A model's name as the name of a type: flight-delay becomes FlightDelay."""
    words = re.findall(r"[A-Za-z0-9]+", name)
    joined = "".join(word[:1].upper() + word[1:] for word in words) or "Event"
    return joined if not joined[0].isdigit() else f"Event{joined}"
