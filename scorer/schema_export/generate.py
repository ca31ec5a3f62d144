"""Generation of schemas for producers from a signature. An event that conforms to the schema is valid for the signature.

Field numbers in Protobuf follow the order of the signature, so new fields belong at the end. Fields with paths are in nested
objects, records and messages.
"""

# Each type is the narrowest type that holds every value of the dtype, except for uint64 in Avro, which has only a signed long.
# Protobuf fields are declared with presence, so that zero and absent differ. Arrays with a shape are flat in Avro and Protobuf;
# JSON allows flat and nested arrays. Binary fields are bytes, in JSON base64 text. Only JSON Schema limits the length of arrays
# of varying length.

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from model_registry.package import binary_fields, field_sources
from model_registry.package.dtypes import FLOAT_LIMITS, INTEGER_LIMITS
from model_registry.package.event_tree import Tree, build_tree, is_array, length
from model_registry.package.json_path import Step, parse_object_path
from model_registry.package.shapes import VARIES
from model_registry.package.signature import InputField, Signature
from scorer.decoding.types import FormatMismatch

DRAFT = "https://json-schema.org/draft/2020-12/schema"
AVRO = {"float16": "float", "float32": "float", "float64": "double", "bool": "boolean", "string": "string"} | {
    name: "int" if low >= -(1 << 31) and high < 1 << 31 else "long" for name, (low, high) in INTEGER_LIMITS.items()
}
PROTOBUF = {"float16": "float", "float32": "float", "float64": "double", "bool": "bool", "string": "string"} | {
    name: ("uint" if low == 0 else "sint") + ("64" if name.endswith("64") else "32")
    for name, (low, _) in INTEGER_LIMITS.items()
}


def json_schema(signature: Signature, name: str, id_field: str | None) -> str:
    """Return the JSON Schema of an event. Raises FormatMismatch if the path of the id conflicts with the path of a field."""
    fields = {field.name: field for field in signature.fields}
    part = _json_part(_events(signature, id_field, first=True), fields)
    return json.dumps({"$schema": DRAFT, "title": name} | _describe_outside("description", signature) | part, indent=2)


def avro(signature: Signature, name: str, id_field: str | None) -> str:
    """Return the Avro schema of an event. Raises FormatMismatch if a field name is not valid in Avro."""
    fields = {field.name: field for field in signature.fields}
    record = _avro_record(_events(signature, id_field, first=True), fields, _type_name(name))
    return json.dumps(record | _describe_outside("doc", signature), indent=2)


def protobuf(signature: Signature, name: str, id_field: str | None) -> str:
    """Return the Protobuf schema of an event. Raises FormatMismatch if a field name is not valid in Protobuf."""
    fields = {field.name: field for field in signature.fields}
    body = _protobuf_body(_events(signature, id_field, first=False), fields, "  ")
    comment = "".join(f"// {text}\n" for text in _describe_outside("", signature).values())
    return f'syntax = "proto3";\n\n{comment}message {_type_name(name)} {{\n{body}}}'


GENERATORS: dict[str, Callable[[Signature, str, str | None], str]] = {
    "json-schema": json_schema,
    "avro": avro,
    "protobuf": protobuf,
}
"""The generators by format. Arguments: the signature, the name of the model, and the path of the id or None."""


def _events(signature: Signature, id_field: str | None, *, first: bool) -> Tree:
    """Return the tree of the fields inside the event's value, with a field for the event's id at `id_field`.

    The added field has the name "". It is the first field if `first` is true, otherwise the last.
    """
    # Nothing is added if a field of the signature already has this path.
    inside = field_sources.only_value_fields(signature).fields
    fields: list[tuple[str, tuple[Step, ...]]] = [(field.name, field.steps) for field in inside]
    try:
        id_steps = parse_object_path(id_field) if id_field else ()
        if id_steps and id_steps not in {steps for _, steps in fields}:
            fields.insert(0 if first else len(fields), ("", id_steps))
        return build_tree(fields)
    except ValueError as error:
        raise FormatMismatch(f"id {id_field!r}: {error}") from None


def _describe_outside(key: str, signature: Signature) -> dict[str, str]:
    """Return `{key: text}`, where `text` describes the fields outside the event's value; `{}` without such fields."""
    descriptions = [
        f"{field.name} ({'bytes of ' if field.raw else ''}{field.dtype}){field_sources.describe_source(field)}"
        for field in field_sources.fields_outside_value(signature)
    ]
    text = "".join(one if one.isprintable() else "?" for one in f"Elsewhere in the record: {', '.join(descriptions)}")
    return {key: text} if descriptions else {}


def _is_required(below: Tree | str, fields: Mapping[str, InputField]) -> bool:
    """Return whether an event must contain `below`: the name of a field, or the tree of an object or array of fields."""
    # An object or array is required if it contains a required field.
    if isinstance(below, str):
        return below in fields and fields[below].required
    return any(_is_required(part, fields) for part in below.values())


def _json_part(part: Tree, fields: Mapping[str, InputField]) -> dict[str, Any]:
    required = [step for step, below in part.items() if _is_required(below, fields)]
    members = {step: _json_value(below, fields) for step, below in part.items()}
    if not is_array(part):
        return {"type": "object", "properties": members, "required": required}
    min_items = max((step + 1 for step in required if isinstance(step, int)), default=0)
    return {"type": "array", "prefixItems": [members.get(place, True) for place in range(length(part))], "minItems": min_items}


def _json_value(below: Tree | str, fields: Mapping[str, InputField]) -> dict[str, Any]:
    if below == "":
        return {"type": ["string", "integer"], "description": "identifies the event"}
    if isinstance(below, str):
        return _json(fields[below])
    part = _json_part(below, fields)
    return part if _is_required(below, fields) else {**part, "type": [part["type"], "null"]}


def _avro_record(part: Tree, fields: Mapping[str, InputField], type_name: str) -> dict[str, Any]:
    avro_fields: list[dict[str, Any]] = []
    for step, below in part.items():
        name = _check_name(step, "Avro")
        if isinstance(below, str):
            field = fields.get(below)
            type_: Any = "bytes" if field and field.raw else AVRO[field.dtype] if field else "string"
            type_ = {"type": "array", "items": type_} if field and field.array and not field.raw else type_
        else:
            type_ = _avro_record(below, fields, f"{type_name}.{name}")
        optional = below != "" and not _is_required(below, fields)
        avro_fields.append(
            {"name": name, "type": ["null", type_], "default": None} if optional else {"name": name, "type": type_}
        )
    return {"type": "record", "name": type_name, "fields": avro_fields}


def _protobuf_body(part: Tree, fields: Mapping[str, InputField], margin: str) -> str:
    body = ""
    for number, (step, below) in enumerate(part.items(), start=1):
        name = _check_name(step, "Protobuf")
        label = "optional"
        if isinstance(below, str):
            field = fields.get(below)
            type_ = "bytes" if field and field.raw else PROTOBUF[field.dtype] if field else "string"
            label = "repeated" if field and field.array and not field.raw else label
        else:
            type_ = f"{name}Part"
            while type_ in part:
                type_ += "_"
            body += f"{margin}message {type_} {{\n{_protobuf_body(below, fields, margin + '  ')}{margin}}}\n"
        body += f"{margin}{label} {type_} {name} = {number};\n"
    return body


def _json(field: InputField) -> dict[str, Any]:
    one: dict[str, Any]
    if field.raw:
        return _base64(field)
    if field.dtype in INTEGER_LIMITS:
        low, high = INTEGER_LIMITS[field.dtype]
        one = {"type": "integer", "minimum": low, "maximum": high}
    elif field.dtype in FLOAT_LIMITS:
        limit = FLOAT_LIMITS[field.dtype]
        one = {"type": "number", "minimum": -limit, "maximum": limit}
    else:
        one = {"type": "boolean" if field.dtype == "bool" else "string"}
    if field.varies and field.shape == (VARIES,):
        array = _array(one, field.shape, field.max_length)
        return array if field.required else {**array, "type": ["array", "null"]}
    if field.shape:
        flat = (VARIES,) if field.varies else (field.array or 0,)
        either = [_array(one, flat, field.array), _array(one, field.shape, field.max_length)]
        either += [] if field.required else [{"type": "null"}]
        return {"anyOf": either}
    if field.array:
        one = _array(one, (field.array,))
    if field.required:
        return one
    default = {} if field.allows_nan or field.array else {"default": field.default}
    return {**one, "type": [one["type"], "null"], **default}


def _base64(field: InputField) -> dict[str, Any]:
    """Return the JSON Schema of a binary field: base64 text of the field's length, or at most this length if it varies."""
    length = -(-binary_fields.size(field) // 3) * 4 if field.array else None
    bounds = {} if length is None else {"minLength": 0 if field.varies else length, "maxLength": length}
    return {"type": "string" if field.required else ["string", "null"], "contentEncoding": "base64", **bounds}


def _array(items: dict[str, Any], shape: Sequence[int], max_length: int | None = None) -> dict[str, Any]:
    """Return the JSON Schema of nested arrays of this shape. A varying dimension has at most `max_length` elements."""
    for count in reversed(shape):
        min_items, max_items = (0, max_length) if count == VARIES else (count, count)
        items = {"type": "array", "items": items, "minItems": min_items, "maxItems": max_items}
    return items


def _check_name(name: Step, format_: str) -> str:
    """Return the field name unchanged. Raises FormatMismatch if it is not valid in this format."""
    if isinstance(name, int):
        raise FormatMismatch(f"element {name} of an array has no type of its own in {format_}: the whole array has one type")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise FormatMismatch(f"field {name!r} cannot be a name in {format_}: letters, digits and _ only, no digit first")
    return name


def _type_name(name: str) -> str:
    """Return the type name for a model name, such as FlightDelay for flight-delay."""
    words = re.findall(r"[A-Za-z0-9]+", name)
    joined = "".join(word[:1].upper() + word[1:] for word in words) or "Event"
    return joined if not joined[0].isdigit() else f"Event{joined}"
