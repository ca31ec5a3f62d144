"""The source of a field (`from` in signature.json): the event, another part of its record, or a table.

The other parts of a record are its key, a header, its timestamp and its whole value. A field from a table is *joined*: the
scorer looks up the row with the key of the event, and reads a column of this row.
"""

import re
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
TABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def check_source(raw: Any) -> Any:
    """Check the value of the key `from` in signature.json, and return it unchanged.

    Raises ValueError if the value names neither a part of a record nor a table.
    """
    if raw is None or raw in (KEY, TIME, VALUE) or (isinstance(raw, str) and raw.startswith(HEADER) and raw != HEADER):
        return raw
    if isinstance(raw, str) and raw.startswith(TABLE):
        check_table_name(raw.removeprefix(TABLE))
        return raw
    raise ValueError(
        f"{raw!r:.100} is neither a part of a record nor a table: it must be one of key, header:NAME, time, value, table:NAME"
    )


def check_table_name(name: str) -> str:
    """Return the name of a table unchanged. Raises ValueError if the name is not valid."""
    if not TABLE_NAME.fullmatch(name):
        raise ValueError(
            f"{name!r:.100} is not the name of a table: a name has letters, digits, _ and -, and begins with a letter or _"
        )
    return name


def check_field(name: str, source: str | None, dtype: str, *, path: object, array: bool, raw: bool) -> None:
    """Raise ValueError if a field with these properties cannot be read from its source.

    `source` is the value of the field's key `from`; None if the field is read from the event.
    """
    if source is None or source.startswith(TABLE):
        return
    if path is not None:
        raise ValueError(f"field {name!r} has a path and comes from {source}; remove one of the two keys")
    if array:
        hint = 'write "bytes": true in place of "array": true'
        raise ValueError(f"field {name!r} comes from {source}, which holds bytes, not an array; {hint}")
    if source == TIME and (raw or dtype not in TIME_DTYPES):
        unsuitable = "bytes" if raw else dtype
        raise ValueError(
            f"field {name!r} is a time in ms since 1970, not {unsuitable}; its dtype must be one of {', '.join(TIME_DTYPES)}"
        )


def only_value_fields(signature: Signature) -> Signature:
    """Return a copy of a signature with only the fields that are read from the event in a record's value.

    A tensor that loses some of its fields has only the columns of its remaining fields. A tensor that loses all fields is left
    out.
    """
    return _select_fields(signature, lambda field: field.source is None)


def only_record_fields(signature: Signature) -> Signature:
    """Return a copy of a signature without the joined fields, which are read from tables; see `only_value_fields`."""
    return _select_fields(signature, lambda field: table_of(field) is None)


def _select_fields(signature: Signature, is_selected: Callable[[InputField], bool]) -> Signature:
    if all(map(is_selected, signature.fields)):
        return signature
    remaining = [(tensor, tuple(filter(is_selected, tensor.fields))) for tensor in signature.fed]
    inputs = [
        tensor if fields == tensor.fields else replace(tensor, fields=fields, shape=None)
        for tensor, fields in remaining
        if fields
    ]
    return replace(signature, inputs=tuple(inputs))


def read_by_name(signature: Signature) -> Signature:
    """Return a copy of a signature in which every field is read from the event, as in golden examples.

    In the copy, a field from another part of a record, or from a table, is read by its name.
    """
    if not any(field.source for field in signature.fields):
        return signature
    named = [replace(tensor, fields=tuple(map(_read_by_name, tensor.fields))) for tensor in signature.inputs]
    return replace(signature, inputs=tuple(named))


def _read_by_name(field: InputField) -> InputField:
    return replace(field, source=None, path=None) if field.source else field


def fields_outside_value(signature: Signature) -> tuple[InputField, ...]:
    """Return the fields that are read from a record's key, headers, timestamp or whole value."""
    return tuple(field for field in signature.fields if field.source and table_of(field) is None)


def joined_fields(signature: Signature) -> dict[str, tuple[InputField, ...]]:
    """Return the fields that are read from tables, by the name of the table; empty if there are none."""
    fields: dict[str, tuple[InputField, ...]] = {}
    for field in signature.fields:
        if table := table_of(field):
            fields[table] = (*fields.get(table, ()), field)
    return fields


def table_of(field: InputField) -> str | None:
    """Return the name of the table from which a field is read; None if it is read from the record."""
    source = field.source or ""
    return source.removeprefix(TABLE) if source.startswith(TABLE) else None


def column_steps(field: InputField) -> tuple[json_path.Step, ...]:
    """Return the path of a joined field's value in the row of its table.

    Without a path in signature.json, the value is at the top level of the row, under the field's name without the prefix
    `TABLE.`.
    """
    return field.path or (field.name.removeprefix(f"{table_of(field)}."),)


def predecessors(old: Signature) -> Callable[[InputField], InputField | None]:
    """Return a function that maps a field to its predecessor in the signature `old`, or to None if it has no predecessor.

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
    return (field.source, column_steps(field)) if table_of(field) else field.source or field.steps


def qualified_name(field: InputField) -> str:
    """Return a field's quoted name for error messages, followed by its source or path if the field has one of these keys."""
    where = describe_source(field).removeprefix(" from ") or (json_path.format_path(field.path) if field.path else "")
    return f"{field.name!r} ({where})" if where else repr(field.name)


def describe_source(field: InputField) -> str:
    """Return the source of a field as text, such as " from key"; empty if the source is the event.

    If a joined field has a path, the text also has this path, such as " from table:customers at address.city".
    """
    column = f" at {json_path.format_path(field.path)}" if field.path else ""
    return f" from {field.source}{column}" if field.source else ""
