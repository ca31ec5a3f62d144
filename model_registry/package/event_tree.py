"""Events as trees: finds the value at a path, builds the tree of all paths of a signature, and builds events from values."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from model_registry.package.json_path import Step, format_path

Tree = dict[Step, "Tree | str"]
"""The parts of an object by name, or of an array by index. A part is a tree or, at the end of a path, the name of a field.
For example, a field x at the path `a.b` and a field y at `a.c[0]` give {"a": {"b": "x", "c": {0: "y"}}}."""

MAX_PARTS = 4_096  # objects, arrays and array elements: each becomes a type of the decoder
KINDS = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number"}


class WrongStep(ValueError):
    """A value on a path is no object or array although the path requires one. The message states the position and the type."""


def look_up(event: Any, path: Sequence[Step]) -> Any:
    """Return the value at a path in an event; None if a part on the path is missing or null. Raises WrongStep."""
    value = event
    for at, step in enumerate(path):
        if value is None:
            return None
        if isinstance(step, str) and isinstance(value, dict):
            value = value.get(step)
        elif isinstance(step, int) and isinstance(value, list):
            value = value[step] if step < len(value) else None
        else:
            kind = KINDS.get(type(value), f"of the type {type(value).__name__}")
            needed = f"an array with an element {step}" if isinstance(step, int) else f"an object with {step!r}"
            raise WrongStep(f"{format_path(path[:at]) or 'the event'} is {kind}, not {needed}")
    return value


def build_tree(fields: Iterable[tuple[str, Sequence[Step]]]) -> Tree:
    """Build the tree of the fields' paths. A field is a pair of name and path; an empty name stands for the event's id.

    Raises:
        ValueError: No event can have all the fields, or their paths have more than MAX_PARTS parts.
    """
    root: Tree = {}
    for name, path in fields:
        if fault := path_conflict(root, path):
            raise ValueError(f"{_describe(name)} is read at {format_path(path)}{fault}")
        part: Any = root
        for step in path[:-1]:
            part = part.setdefault(step, {})
        part[path[-1]] = name
    if (count := _parts(root)) > MAX_PARTS:
        raise ValueError(f"the paths lead through {count} objects, arrays and array elements; the limit is {MAX_PARTS}")
    return root


def path_conflict(root: Tree, path: Sequence[Step]) -> str:
    """Return why no event can have a field at this path and the fields of a tree; empty if there is no conflict.

    The result is the end of an error message: it follows the path in the message.
    """
    part: Any = root
    for at, step in enumerate(path):
        if fault := _fault(part, path, at):
            return fault
        part = part.get(step, {})
    return ""


def build_event(values: Iterable[tuple[Sequence[Step], Any]]) -> dict[str, Any]:
    """Build an event with these values at their paths; array elements without a value are null.

    No two paths may conflict. `build_tree` checks this.
    """
    event: dict[str, Any] = {}
    for path, value in values:
        part: Any = event
        for step, following in pairwise(path):
            part = _put(part, step, {} if isinstance(following, str) else [])
        _put(part, path[-1], value)
    return event


def is_array(part: Tree) -> bool:
    """Return whether the parts of a tree have indexes (of an array), not names (of an object)."""
    return isinstance(next(iter(part), None), int)


def length(part: Tree) -> int:
    """Return the minimum length of an array that has all parts of a tree."""
    return max(step for step in part if isinstance(step, int)) + 1


def _put(part: Any, step: Step, value: Any) -> Any:
    """Return the element `step` of the object or array `part`.

    If there is no such element, first set it to `value`.
    """
    if isinstance(step, str):
        return part.setdefault(step, value)
    part.extend([None] * (step + 1 - len(part)))
    if part[step] is None:
        part[step] = value
    return part[step]


def _fault(part: Tree, path: Sequence[Step], at: int) -> str:
    """Return why a step of a path conflicts with the paths in a tree; empty if there is no conflict.

    `at` is the index of the step. `part` is the part of the tree to which the earlier steps of the path lead.
    """
    step = path[at]
    is_last = at == len(path) - 1
    if part and is_array(part) is not isinstance(step, int):
        kind = "an array" if is_array(part) else "an object"
        return f", but {format_path(path[:at])} is {kind} for {_first(part)}"
    existing = part.get(step)
    if isinstance(existing, str):
        place = "the same path" if is_last else format_path(path[: at + 1])
        return f", in conflict with {_describe(existing)} at {place}"
    return f", in conflict with {_first(existing)} inside of it" if is_last and existing else ""


def _describe(name: str) -> str:
    return f"field {name!r}" if name else "the id"


def _first(part: Tree | str) -> str:
    while not isinstance(part, str):
        part = next(iter(part.values()))
    return _describe(part)


def _parts(part: Tree) -> int:
    width = length(part) if part and is_array(part) else 1
    return width + sum(_parts(below) for below in part.values() if not isinstance(below, str))
