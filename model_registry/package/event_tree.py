"""Events as trees: what stands at a path, where several fields stand together, and an event with values at their paths."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from model_registry.package.json_path import Step, format_path

Tree = dict[Step, "Tree | str"]
"""The parts of an object (by name) or of an array (by place), down to the names of fields."""

MOST_PARTS = 4_096  # objects, arrays and places in arrays: each is a type where events are read
KINDS = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number"}


class WrongStep(ValueError):
    """A path leads through something that has no such parts. The message says where, and what stands there."""


def look_up(event: Any, path: Sequence[Step]) -> Any:
    """The value at a path; None where a step is missing or null. Raises WrongStep."""
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
            needed = f"an array with a place {step}" if isinstance(step, int) else f"an object with {step!r}"
            raise WrongStep(f"{format_path(path[:at]) or 'the event'} is {kind}, not {needed}")
    return value


def build_tree(fields: Iterable[tuple[str, Sequence[Step]]]) -> Tree:
    """The tree of fields, each with its path; one without a name is the event's id. Raises ValueError where no event has them
    all, or they are in too many parts."""
    root: Tree = {}
    for name, path in fields:
        if fault := path_conflict(root, path):
            raise ValueError(f"{_called(name)} is read at {format_path(path)}{fault}")
        part: Any = root
        for step in path[:-1]:
            part = part.setdefault(step, {})
        part[path[-1]] = name
    if (count := _parts(root)) > MOST_PARTS:
        raise ValueError(
            f"the paths lead through {count} objects, arrays and places of arrays; at most {MOST_PARTS} are looked at"
        )
    return root


def path_conflict(root: Tree, path: Sequence[Step]) -> str:
    """Why no event has a field at this path beside those of a tree, to stand behind the path; nothing: there may be one."""
    part: Any = root
    for at, step in enumerate(path):
        if fault := _fault(part, path, at):
            return fault
        part = part.get(step, {})
    return ""


def build_event(values: Iterable[tuple[Sequence[Step], Any]]) -> dict[str, Any]:
    """An event with these values at their paths, null at other places of arrays. The paths are those of a tree."""
    event: dict[str, Any] = {}
    for path, value in values:
        part: Any = event
        for step, following in pairwise(path):
            part = _put(part, step, {} if isinstance(following, str) else [])
        _put(part, path[-1], value)
    return event


def is_array(part: Tree) -> bool:
    """Whether the parts have places, not names."""
    return isinstance(next(iter(part), None), int)


def length(part: Tree) -> int:
    """The length of an array that has all of the parts."""
    return max(step for step in part if isinstance(step, int)) + 1


def _put(part: Any, step: Step, value: Any) -> Any:
    """What stands at a step of an object or an array: a value, unless something did before."""
    if isinstance(step, str):
        return part.setdefault(step, value)
    part.extend([None] * (step + 1 - len(part)))
    if part[step] is None:
        part[step] = value
    return part[step]


def _fault(part: Tree, path: Sequence[Step], at: int) -> str:
    """Why a path cannot take its step number `at` from a part; nothing: it can."""
    step, last = path[at], at == len(path) - 1
    if part and is_array(part) is not isinstance(step, int):
        return f": {format_path(path[:at])} is no array and object at once, and {_first(part)} is inside of it too"
    if isinstance(there := part.get(step), str):
        return f", and {_called(there)} {'is too' if last else 'at ' + format_path(path[: at + 1])}"
    return f", and {_first(there)} inside of it" if last and there else ""


def _called(name: str) -> str:
    return f"field {name!r}" if name else "the id"


def _first(part: Tree | str) -> str:
    while not isinstance(part, str):
        part = next(iter(part.values()))
    return _called(part)


def _parts(part: Tree) -> int:
    own = length(part) if part and is_array(part) else 1
    return own + sum(_parts(below) for below in part.values() if not isinstance(below, str))
