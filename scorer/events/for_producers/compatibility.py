"""Whether events that are valid for one signature are valid for another, and if not, why."""

from collections.abc import Iterator
from dataclasses import dataclass

from model_registry.package.dtypes import FLOAT_LIMITS, INTEGER_LIMITS
from model_registry.package.event_tree import Tree, crossing, tree
from model_registry.package.paths import written
from model_registry.package.signature import InputField, Signature
from model_registry.package.varying import apart, takes


@dataclass(frozen=True, slots=True)
class Break:
    """A field, and what makes events that were valid invalid."""

    field: str
    change: str


def breaks(old: Signature, new: Signature, *, positional: bool = False) -> list[Break]:
    """What keeps an event that is valid for `old` from being valid for `new`; nothing: they all are.

    `positional`: events have no names (JSON arrays, rows of float32), so the order counts.
    """
    known, places = {field.name: field for field in old.fields}, {field.steps: field for field in old.fields}
    events = tree((field.name, field.steps) for field in old.fields)
    found = []
    for field in new.fields:
        was = places.get(field.steps) or known.get(field.name)
        found += [Break(field.name, change) for change in _changes(was, field, events)]
    if pair := apart(old, new):
        found.append(Break(pair[1], f"has the length of {pair[0]!r} now, and might have another before"))
    return found + (_moved(old, new) if positional else [])


def _changes(old: InputField | None, new: InputField, events: Tree) -> Iterator[str]:
    """`old` is what was read in the same place, or else by the same name; `events` is where everything was read."""
    if old is None:
        if new.required:
            yield "is required now, and was no field before"
        elif fault := crossing(events, new.steps):
            yield f"is read at {written(new.steps)} now{fault} before"
        return
    if old.steps != new.steps:
        yield f"is read at {written(new.steps)} now, and was read at {written(old.steps)} before"
        return
    if new.required and not old.required:
        yield "is required now, and might be absent before"
    if not takes(new, old):
        yield f"is {_shape(new)} now, and was {_shape(old)} before"
    if change := _type_change(old.dtype, new.dtype):
        yield change
    if old.allows_nan and not new.allows_nan:
        yield "may not be NaN now, and might be before"


def _type_change(old: str, new: str) -> str | None:
    """Why not every value of one dtype is one of the other, or None."""
    if old == new:
        return None
    changed = f"is {new} now, and was {old} before"
    if old in INTEGER_LIMITS and new in INTEGER_LIMITS:
        inside = INTEGER_LIMITS[new][0] <= INTEGER_LIMITS[old][0] and INTEGER_LIMITS[old][1] <= INTEGER_LIMITS[new][1]
    elif new in FLOAT_LIMITS and old in INTEGER_LIMITS:
        inside = max(map(abs, INTEGER_LIMITS[old])) <= FLOAT_LIMITS[new]
    elif new in FLOAT_LIMITS and old in FLOAT_LIMITS:
        inside = FLOAT_LIMITS[old] <= FLOAT_LIMITS[new]
    else:
        inside = False
    return None if inside else changed


def _moved(old: Signature, new: Signature) -> list[Break]:
    before = [field.name for field in old.fields]
    after = [field.name for field in new.fields]
    moved = [
        Break(field.name, f"has the path {written(field.path)} now: there are no names") for field in new.fields if field.path
    ]
    moved += [
        Break(name, f"is element {at} now, where {before[at]!r} was before")
        for at, name in enumerate(after[: len(before)])
        if before[at] != name
    ]
    if len(before) != len(after):
        moved.append(Break("*", f"an event has {len(after)} fields now, and had {len(before)} before"))
    return moved


def _shape(field: InputField) -> str:
    if field.varies:
        return f"an array of shape {list(field.shape or ())} with a length of at most {field.max_length}"
    if field.shape:
        return f"an array of shape {list(field.shape)}"
    return f"an array of {field.array}" if field.array else "one value"
