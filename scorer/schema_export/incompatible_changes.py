"""Comparison of two signatures: which changes can make an event of the old signature invalid for the new signature."""

from collections.abc import Iterator
from dataclasses import dataclass

from model_registry.package import field_sources
from model_registry.package.dtypes import FLOAT_LIMITS, INTEGER_LIMITS
from model_registry.package.dynamic_shapes import accepts_arrays_of, find_unequal_lengths
from model_registry.package.event_tree import Tree, build_tree, path_conflict
from model_registry.package.json_path import format_path
from model_registry.package.signature import InputField, Signature
from model_registry.package.version_difference import describe_type


@dataclass(frozen=True, slots=True)
class IncompatibleChange:
    """A change between two signatures that makes valid events invalid: the name of the field, and the change as text."""

    field: str
    change: str


def find_incompatible_changes(old: Signature, new: Signature, *, positional: bool = False) -> list[IncompatibleChange]:
    """Return the changes by which a valid event of the old signature may be invalid for the new one; empty if there are none.

    Args:
        old: the signature of the existing events.
        new: the signature that is to read these events.
        positional: whether events have no field names (JSON arrays, rows of float32), so that the order of fields matters.
    """
    predecessor = field_sources.predecessors(old)
    events = build_tree((field.name, field.steps) for field in field_sources.only_value_fields(old).fields)
    changes = [
        IncompatibleChange(field.name, change) for field in new.fields for change in _changes(predecessor(field), field, events)
    ]
    if pair := find_unequal_lengths(old, new):
        changes.append(IncompatibleChange(pair[1], f"has the length of {pair[0]!r} now, and might have another before"))
    return changes + (_position_changes(old, new) if positional else [])


def _changes(old: InputField | None, new: InputField, events: Tree) -> Iterator[str]:
    """Yield the incompatible changes of one field.

    Args:
        old: the field of the old signature at the same path or, if there is none, with the same name; None for a new field.
        new: the field of the new signature.
        events: the paths of all fields of the old signature.
    """
    if old is None:
        if new.required:
            yield "is required now, and was no field before"
        elif not new.source and (fault := path_conflict(events, new.steps)):
            yield f"is read at {format_path(new.steps)} now{fault} before"
        return
    if change := _source_change(old, new):
        yield change
        return
    if new.required and not old.required:
        yield "is required now, and might be absent before"
    if old.raw != new.raw or not accepts_arrays_of(new, old):
        yield f"is {_shape(new)} now, and was {_shape(old)} before"
    if change := _type_change(old.dtype, new.dtype, raw=new.raw):
        yield change
    if old.allows_nan and not new.allows_nan:
        yield "may not be NaN now, and might be before"


def _source_change(old: InputField, new: InputField) -> str | None:
    """Return the change as text if a field is read from another source, path or column of a table, else None."""
    if old.source != new.source:
        before, now = (one.source or f"the event ({format_path(one.steps)})" for one in (old, new))
        return f"comes from {now} now, and came from {before} before"
    if field_sources.table_of(new) and field_sources.column_steps(old) != field_sources.column_steps(new):
        before, now = (format_path(field_sources.column_steps(one)) for one in (old, new))
        return f"is column {now} of {new.source} now, and was column {before} before"
    if not new.source and old.steps != new.steps:
        return f"is read at {format_path(new.steps)} now, and was read at {format_path(old.steps)} before"
    return None


def _type_change(old: str, new: str, *, raw: bool) -> str | None:
    """Return the change of dtype as text, if a value of the old dtype may be invalid for the new one; else None.

    A binary field (`raw`) must keep its dtype.
    """
    if old == new:
        return None
    change = f"is {new} now, and was {old} before"
    if raw:
        return change
    if old in INTEGER_LIMITS and new in INTEGER_LIMITS:
        fits = INTEGER_LIMITS[new][0] <= INTEGER_LIMITS[old][0] and INTEGER_LIMITS[old][1] <= INTEGER_LIMITS[new][1]
    elif new in FLOAT_LIMITS and old in INTEGER_LIMITS:
        fits = max(map(abs, INTEGER_LIMITS[old])) <= FLOAT_LIMITS[new]
    elif new in FLOAT_LIMITS and old in FLOAT_LIMITS:
        fits = FLOAT_LIMITS[old] <= FLOAT_LIMITS[new]
    else:
        fits = False
    return None if fits else change


def _position_changes(old: Signature, new: Signature) -> list[IncompatibleChange]:
    before = [field.name for field in field_sources.only_value_fields(old).fields]
    after = [field.name for field in field_sources.only_value_fields(new).fields]
    changes = [
        IncompatibleChange(field.name, f"has the path {format_path(field.path)} now: there are no names")
        for field in field_sources.only_value_fields(new).fields
        if field.path
    ]
    changes += [
        IncompatibleChange(name, f"is element {at} now, where {before[at]!r} was before")
        for at, name in enumerate(after[: len(before)])
        if before[at] != name
    ]
    if len(before) != len(after):
        changes.append(IncompatibleChange("*", f"an event has {len(after)} fields now, and had {len(before)} before"))
    return changes


def _shape(field: InputField) -> str:
    if field.raw:
        fixed = f"bytes of {field.array} elements" if field.array else "the bytes of a text"
        return describe_type(field) if field.varies else fixed
    if field.varies:
        return f"an array of shape {list(field.shape or ())} with a length of at most {field.max_length}"
    if field.shape:
        return f"an array of shape {list(field.shape)}"
    return f"an array of {field.array}" if field.array else "one value"
