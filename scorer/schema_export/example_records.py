"""Records as producers write them, of events that have everything under the fields' names, as golden examples do."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from model_registry.package import binary_fields, field_sources
from model_registry.package.event_tree import build_event, look_up
from model_registry.package.json_path import Step
from model_registry.package.signature import InputField, Signature


@dataclass(slots=True)
class ExampleRecord:
    """`time` is Unix ms, 0 for none."""

    value: bytes
    key: bytes | None = None
    time: int = 0
    headers: list[tuple[str, str | bytes | None]] = field(default_factory=list)


def create_example_record(signature: Signature, event: Mapping[str, Any]) -> ExampleRecord:
    """The record of one event: a JSON object with what comes from elsewhere put there. Where nothing is read of the object, the
    value is what a field takes it for."""
    found = ExampleRecord(orjson.dumps(event))
    alone = not field_sources.only_value_fields(signature).fields
    for one in field_sources.fields_outside_value(signature):
        value = look_up(event, one.steps)
        if value is None:
            continue
        match one.source:
            case field_sources.TIME:
                found.time = max(1, int(value))
            case field_sources.KEY:
                found.key = _text(one, value)
            case field_sources.VALUE:
                found.value = _text(one, value) if alone else found.value
            case header:
                found.headers.append((str(header).removeprefix(field_sources.HEADER), _text(one, value)))
    return found


def _text(one: InputField, value: Any) -> bytes:
    """A value as it stands elsewhere."""
    if one.raw:
        return binary_fields.from_base64(value)
    return value.encode() if isinstance(value, str) else orjson.dumps(value)


def example_event(signature: Signature) -> dict[str, Any]:
    """Return an event with a valid value for every field of the signature."""
    values = {"string": "a", "bool": False}
    fields: dict[tuple[Step, ...], Any] = {}
    for tensor in signature.fed:
        value = values.get(tensor.dtype, 0.123456 if tensor.dtype.startswith("float") else 1)
        fields |= {field.steps: _example_value(field, value) for field in tensor.fields}
    return build_event(fields.items())


def _example_value(field: InputField, value: Any) -> Any:
    if field.raw:
        return binary_fields.to_base64(b"a" if field.dtype == "string" else bytes(binary_fields.size(field)))
    return [value] * field.array if field.array else value
