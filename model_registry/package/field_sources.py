"""The source of a field (`from` in signature.json): the event in a record's value, or the record's key, a header or time."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from model_registry.package import json_path
from model_registry.package.signature import InputField, Signature

KEY = "key"
TIME = "time"
VALUE = "value"
HEADER = "header:"
TABLE = "table:"
TIME_DTYPES = ("int64", "uint64", "float64", "float32")
"""The dtypes that can represent the current time in ms since 1970; float32 only with a precision of two minutes."""


def check_source(raw: Any) -> Any:
    """Check the value of the key `from` in signature.json, and return it unchanged.

    Raises ValueError if the value does not name a part of a record.
    """
    if raw is None or raw in (KEY, TIME, VALUE) or (isinstance(raw, str) and raw.startswith(HEADER) and raw != HEADER):
        return raw
    raise ValueError(f"{raw!r:.100} is not a part of a record: it must be one of key, header:NAME, time, value")


def check_field(name: str, source: str | None, dtype: str, *, path: object, array: bool, raw: bool) -> None:
    """Raise ValueError if a field with these properties cannot be read from its source.

    `source` is the value of the field's key `from`; None if the field is read from the event.
    """
    if source is None:
        return
    if path is not None:
        raise ValueError(f"field {name!r} has a path and comes from {source}; leave one of them out")
    if array:
        hint = 'write "bytes": true in place of "array": true'
        raise ValueError(f"field {name!r} comes from {source}, which holds bytes, not an array; {hint}")
    if source == TIME and (raw or dtype not in TIME_DTYPES):
        unsuitable = "bytes" if raw else dtype
        raise ValueError(
            f"field {name!r} is a time in ms since 1970, not {unsuitable}; its dtype is one of {', '.join(TIME_DTYPES)}"
        )


def only_value_fields(signature: Signature) -> Signature:
    """Return a copy of a signature without the fields that are read from a record's key, headers or time.

    A tensor that loses some of its fields has only the columns of its remaining fields. A tensor that loses all fields is left
    out.
    """
    if not any(field.source for field in signature.fields):
        return signature
    remaining = [(tensor, tuple(field for field in tensor.fields if field.source is None)) for tensor in signature.fed]
    inputs = [
        tensor if fields == tensor.fields else replace(tensor, fields=fields, shape=None)
        for tensor, fields in remaining
        if fields
    ]
    return replace(signature, inputs=tuple(inputs))


def read_by_name(signature: Signature) -> Signature:
    """Return a copy of a signature whose fields are all read from the event, as golden examples state them.

    A field from another part of a record is read by its name.
    """
    if not any(field.source for field in signature.fields):
        return signature
    named = [
        replace(tensor, fields=tuple(replace(field, source=None) for field in tensor.fields)) for tensor in signature.inputs
    ]
    return replace(signature, inputs=tuple(named))


def fields_outside_value(signature: Signature) -> tuple[InputField, ...]:
    """Return the fields that are read from a record's key, headers or time."""
    return tuple(field for field in signature.fields if field.source)


def predecessors(old: Signature) -> Callable[[InputField], InputField | None]:
    """Return a function that returns the predecessor of a field in the signature `old`; None if there is no predecessor.

    The predecessor is the older field with the same source and path, else the older field with the same name.
    """
    by_name = {field.name: field for field in old.fields}
    by_position = {_position(field): field for field in old.fields}

    def predecessor(field: InputField) -> InputField | None:
        same_name = by_name.get(field.name)
        if same_name and _position(same_name) == _position(field):
            return same_name
        return by_position.get(_position(field)) or same_name

    return predecessor


def _position(field: InputField) -> object:
    return field.source or field.steps


def qualified_name(field: InputField) -> str:
    """Return a field's quoted name for error messages, followed by its source or path if the field has one of these keys."""
    where = field.source or (json_path.format_path(field.path) if field.path else "")
    return f"{field.name!r} ({where})" if where else repr(field.name)


def describe_source(field: InputField) -> str:
    """Return the source of a field as text, such as " from key"; empty if the source is the record's value."""
    return f" from {field.source}" if field.source else ""
