"""Where a record has what a field reads: in its value, at a path, or elsewhere (`from`): its key, a header, its time."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from model_registry.package import json_path
from model_registry.package.signature import InputField, Signature

KEY, TIME, VALUE, HEADER = "key", "time", "value", "header:"
TIME_DTYPES = ("int64", "uint64", "float64", "float32")
"""The dtypes that hold a time of today in ms since 1970; float32 to two minutes."""


def check_source(raw: Any) -> Any:
    """What a document states as `from`. Raises ValueError."""
    if raw is None or raw in (KEY, TIME, VALUE) or (isinstance(raw, str) and raw.startswith(HEADER) and raw != HEADER):
        return raw
    raise ValueError(f"{raw!r:.100} is no place of a record: it must be one of key, header:NAME, time, value")


def check_field(name: str, source: str | None, dtype: str, *, path: object, array: bool, raw: bool) -> None:
    """Raises ValueError where a field of this kind cannot come from there."""
    if source is None:
        return
    if path is not None:
        raise ValueError(f"field {name!r} has a path and comes from {source}; leave one of them out")
    if array:
        hint = 'write "bytes": true in place of "array": true'
        raise ValueError(f"field {name!r} comes from {source}, which has no arrays, but bytes; {hint}")
    if source == TIME and (raw or dtype not in TIME_DTYPES):
        what = "bytes" if raw else dtype
        raise ValueError(f"field {name!r} is a time in ms since 1970, not {what}; its dtype is one of {', '.join(TIME_DTYPES)}")


def only_value_fields(signature: Signature) -> Signature:
    """The signature of what an event's value holds: without the fields that come from elsewhere. A tensor of which a part is
    left has the columns of that part; one without any is left out."""
    if not any(field.source for field in signature.fields):
        return signature
    kept = [(one, tuple(field for field in one.fields if field.source is None)) for one in signature.fed]
    inputs = [one if fields == one.fields else replace(one, fields=fields, shape=None) for one, fields in kept if fields]
    return replace(signature, inputs=tuple(inputs))


def read_by_name(signature: Signature) -> Signature:
    """The same tensors, of events that have what comes from elsewhere under the fields' names, as golden examples have it."""
    if not any(field.source for field in signature.fields):
        return signature
    named = [replace(one, fields=tuple(replace(field, source=None) for field in one.fields)) for one in signature.inputs]
    return replace(signature, inputs=tuple(named))


def fields_outside_value(signature: Signature) -> tuple[InputField, ...]:
    """The fields that no event's value holds."""
    return tuple(field for field in signature.fields if field.source)


def predecessors(old: Signature) -> Callable[[InputField], InputField | None]:
    """What says which field of an older signature was read in a field's place, else by its name."""
    named, placed = {one.name: one for one in old.fields}, {_place(one): one for one in old.fields}

    def was(now: InputField) -> InputField | None:
        same = named.get(now.name)
        return same if same and _place(same) == _place(now) else placed.get(_place(now)) or same

    return was


def _place(field: InputField) -> object:
    return field.source or field.steps


def qualified_name(field: InputField) -> str:
    """A field as errors name it: with the place that it is read at, where that is not the top of the event."""
    where = field.source or (json_path.format_path(field.path) if field.path else "")
    return f"{field.name!r} ({where})" if where else repr(field.name)


def describe_source(field: InputField) -> str:
    """Where a field comes from, for people; nothing where that is the event's value."""
    return f" from {field.source}" if field.source else ""
