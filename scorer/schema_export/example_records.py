"""Creation of example records from example events, as producers write them.

An example event is a JSON object with every field at its path. This includes fields that a scorer reads from a key, a header
or a timestamp, and fields that are joined from a table.
"""

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
    """A record for the input topic. `time` is its timestamp in Unix ms, 0 without a timestamp."""

    value: bytes
    key: bytes | None = None
    time: int = 0
    headers: list[tuple[str, str | bytes | None]] = field(default_factory=list)


def create_example_record(signature: Signature, event: Mapping[str, Any]) -> ExampleRecord:
    """Create the record of one example event.

    The record's value is the event as a JSON object, without joined fields. A field whose source is the key, the timestamp or a
    header is also written to that source. A field whose source is the whole value replaces the JSON object, unless other fields
    are read from inside the value.
    """
    joined = {field.name for field in signature.fields if field_sources.table_of(field)}
    record = ExampleRecord(orjson.dumps({name: value for name, value in event.items() if name not in joined}))
    is_whole_value = not field_sources.only_value_fields(signature).fields
    for one in field_sources.fields_outside_value(signature):
        value = look_up(event, one.steps)
        if value is None:
            continue
        match one.source:
            case field_sources.TIME:
                record.time = max(1, int(value))
            case field_sources.KEY:
                record.key = _encode(one, value)
            case field_sources.VALUE:
                record.value = _encode(one, value) if is_whole_value else record.value
            case header:
                record.headers.append((str(header).removeprefix(field_sources.HEADER), _encode(one, value)))
    return record


def _encode(one: InputField, value: Any) -> bytes:
    """Return the bytes of a field's value for a key, a header or the whole value of a record."""
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
