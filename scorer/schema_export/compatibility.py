"""Whether events that are valid for one signature are valid for another, and if not, why."""

from collections.abc import Iterator
from dataclasses import dataclass

from model_registry.package import field_sources
from model_registry.package.compatibility import describe_type
from model_registry.package.dtypes import FLOAT_LIMITS, INTEGER_LIMITS
from model_registry.package.dynamic_shapes import accepts_arrays_of, find_unequal_lengths
from model_registry.package.event_tree import Tree, build_tree, path_conflict
from model_registry.package.json_path import format_path
from model_registry.package.signature import InputField, Signature


@dataclass(frozen=True, slots=True)
class IncompatibleChange:
    """A field, and what makes events that were valid invalid."""

    field: str
    change: str


def find_incompatible_changes(old: Signature, new: Signature, *, positional: bool = False) -> list[IncompatibleChange]:
    """What keeps an event that is valid for `old` from being valid for `new`; nothing: they all are.

    `positional`: events have no names (JSON arrays, rows of float32), so the order counts.
    """
    was = field_sources.predecessors(old)
    events = build_tree((field.name, field.steps) for field in field_sources.only_value_fields(old).fields)
    found = [IncompatibleChange(field.name, change) for field in new.fields for change in _changes(was(field), field, events)]
    if pair := find_unequal_lengths(old, new):
        found.append(IncompatibleChange(pair[1], f"has the length of {pair[0]!r} now, and might have another before"))
    return found + (_moved(old, new) if positional else [])


def _changes(old: InputField | None, new: InputField, events: Tree) -> Iterator[str]:
    """`old` is what was read in the same place, or else by the same name; `events` is where everything was read."""
    if old is None:
        if new.required:
            yield "is required now, and was no field before"
        elif not new.source and (fault := path_conflict(events, new.steps)):
            yield f"is read at {format_path(new.steps)} now{fault} before"
        return
    if old.source != new.source:
        came, comes = (one.source or f"the event ({format_path(one.steps)})" for one in (old, new))
        yield f"comes from {comes} now, and came from {came} before"
        return
    if not new.source and old.steps != new.steps:
        yield f"is read at {format_path(new.steps)} now, and was read at {format_path(old.steps)} before"
        return
    if new.required and not old.required:
        yield "is required now, and might be absent before"
    if old.raw != new.raw or not accepts_arrays_of(new, old):
        yield f"is {_shape(new)} now, and was {_shape(old)} before"
    if change := _type_change(old.dtype, new.dtype, raw=new.raw):
        yield change
    if old.allows_nan and not new.allows_nan:
        yield "may not be NaN now, and might be before"


def _type_change(old: str, new: str, *, raw: bool) -> str | None:
    """Why not every value of one dtype is one of the other, or None. The bytes of one (`raw`) are never those of another."""
    if old == new:
        return None
    changed = f"is {new} now, and was {old} before"
    if raw:
        return changed
    if old in INTEGER_LIMITS and new in INTEGER_LIMITS:
        inside = INTEGER_LIMITS[new][0] <= INTEGER_LIMITS[old][0] and INTEGER_LIMITS[old][1] <= INTEGER_LIMITS[new][1]
    elif new in FLOAT_LIMITS and old in INTEGER_LIMITS:
        inside = max(map(abs, INTEGER_LIMITS[old])) <= FLOAT_LIMITS[new]
    elif new in FLOAT_LIMITS and old in FLOAT_LIMITS:
        inside = FLOAT_LIMITS[old] <= FLOAT_LIMITS[new]
    else:
        inside = False
    return None if inside else changed


def _moved(old: Signature, new: Signature) -> list[IncompatibleChange]:
    before = [field.name for field in field_sources.only_value_fields(old).fields]
    after = [field.name for field in field_sources.only_value_fields(new).fields]
    moved = [
        IncompatibleChange(field.name, f"has the path {format_path(field.path)} now: there are no names")
        for field in new.fields
        if field.path
    ]
    moved += [
        IncompatibleChange(name, f"is element {at} now, where {before[at]!r} was before")
        for at, name in enumerate(after[: len(before)])
        if before[at] != name
    ]
    if len(before) != len(after):
        moved.append(IncompatibleChange("*", f"an event has {len(after)} fields now, and had {len(before)} before"))
    return moved


def _shape(field: InputField) -> str:
    if field.raw:
        fixed = f"bytes of {field.array} elements" if field.array else "the bytes of a text"
        return describe_type(field) if field.varies else fixed
    if field.varies:
        return f"an array of shape {list(field.shape or ())} with a length of at most {field.max_length}"
    if field.shape:
        return f"an array of shape {list(field.shape)}"
    return f"an array of {field.array}" if field.array else "one value"
