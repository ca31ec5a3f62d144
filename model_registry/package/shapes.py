"""Shapes of tensors, and arrays that have one: flat (row by row), or nested. All of it is Python's lists and numbers."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from model_registry.package.dtypes import value_fault
from model_registry.package.validation import check_whole_number

MAX_WIDTH = 1 << 20  # elements of one event's row of a tensor
MAX_RANK = 8  # dimensions beside the batch
VARIES = -1  # in a shape: a length of each event's own

Shape = tuple[int, ...]
ElementFault = tuple[str, str, Any]
"""The place in an array (`[2][5]`, empty for the array itself), what is wrong there, and the element, None for an array."""


def check_shape(raw: Any) -> Any:
    """The shape that a document states. Raises ValueError where it is none, or holds too many elements."""
    if raw is None:
        return None
    if not isinstance(raw, list) or len(raw) > MAX_RANK:
        raise ValueError(f"{raw!r:.100} is no list of at most {MAX_RANK} whole numbers, the dimensions that follow the batch")
    for one in raw:
        if one is None:
            raise ValueError("null is no length; every dimension beside the batch is fixed, or -1")
        if one != VARIES:
            check_whole_number(1, MAX_WIDTH, one)
    if raw.count(VARIES) > 1:
        raise ValueError(f"{raw} has {raw.count(VARIES)} lengths that vary (-1); a tensor may have one")
    if (elements := step_size(raw)) > MAX_WIDTH:
        raise ValueError(f"{raw} holds {elements} elements; at most {MAX_WIDTH} are fed")
    return raw


def shape_of_value(value: Any) -> list[int]:
    """The lengths of nested lists, each by its first element; nothing for a single value. Raises ValueError, as `stated`."""
    shape: list[int] = []
    while isinstance(value, list) and value and len(shape) <= MAX_RANK:
        shape.append(len(value))
        value = value[0]
    check_shape(shape)
    return shape


def find_fault(value: object, shape: Sequence[int], check: Callable[[object], str | None]) -> ElementFault | None:
    """What keeps nested lists from having this shape, or None. `check` says what is wrong with an element."""
    if not shape:
        said = f"one value was expected, not {_kind(value)}" if isinstance(value, list | tuple | dict) else check(value)
        return ("", said, value) if said else None
    if not isinstance(value, list | tuple):
        return "", f"an array of {shape[0]} was expected, not {_kind(value)}", None
    if len(value) != shape[0]:
        return "", f"an array of {shape[0]} was expected, not of {len(value)}", None
    rest = shape[1:]
    for at, one in enumerate(value):
        if found := find_fault(one, rest, check):
            return f"[{at}]{found[0]}", *found[1:]
    return None


def _kind(value: object) -> str:
    """A value in few words, however large or deep it is."""
    if isinstance(value, list | tuple | dict):
        return "an object" if isinstance(value, dict) else "an array"
    return f"{value!r:.60}"


def array_fault(value: object, length: int, shape: Shape | None, check: Callable[[object], str | None]) -> ElementFault | None:
    """What keeps a value from being an array field's: `length` elements, or the same nested in the shape. None: nothing.

    Of a shape that varies `length` is the most elements that there may be."""
    if shape is None:
        return find_fault(value, (length,), check)
    if varies(shape):
        return _varying_fault(value, length, shape, check)
    found = find_fault(value, shape if is_nested(value) else (length,), check)
    return found and (found[0], f"{found[1]} (shape {list(shape)}, nested or flat)", found[2])


def _varying_fault(value: object, most: int, shape: Shape, check: Callable[[object], str | None]) -> ElementFault | None:
    told = f" (shape {list(shape)}{', nested or flat' if len(shape) > 1 else ''})"
    longest, multiple = most // step_size(shape), step_size(shape)
    if not isinstance(value, list):
        return "", f"an array of at most {longest} was expected, not {_kind(value)}{told}", None
    found = length_in(value, shape)
    if found is None:
        return "", f"a multiple of {multiple} elements was expected, not {len(value)}{told}", None
    if found > longest:
        return "", f"a length of at most {longest} was expected, not {found}{told}", None
    nested = len(shape) > 1 and is_nested(value)
    wrong = find_fault(value, with_length(shape, found) if nested else (len(value),), check)
    return wrong and (wrong[0], wrong[1] + told, wrong[2])


def length_in(value: Any, shape: Shape) -> int | None:
    """The length that a list, flat or nested, has where its shape varies; of a nested one as its first entries have it. None:
    the elements of a flat one are no whole number of steps."""
    if len(shape) > 1 and is_nested(value):
        for _ in range(shape.index(VARIES)):
            value = value[0] if isinstance(value, list) and value else ()
        return len(value) if isinstance(value, list) else 0
    length, rest = divmod(len(value), step_size(shape))
    return None if rest else length


def varies(shape: Sequence[int] | None) -> bool:
    """Whether a shape has a length that varies."""
    return shape is not None and VARIES in shape


def step_size(shape: Sequence[int]) -> int:
    """The elements of a shape for each step of the length that varies; all of them where none does."""
    return math.prod(size for size in shape if size != VARIES)


def with_length(shape: Sequence[int], length: int) -> Shape:
    """The shape with this length where it varies."""
    return tuple(length if size == VARIES else size for size in shape)


def is_nested(value: object) -> bool:
    """Whether a value is meant as lists in a list."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], list)


def flatten(value: Any, rank: int) -> list[Any]:
    """The elements of nested lists of so many dimensions, row by row."""
    for _ in range(rank - 1):
        value = [one for row in value for one in row]
    return list(value)


def format_shape(shape: Sequence[int | str | None]) -> str:
    """(B, 3, 8, 8); None is the batch."""
    return f"({', '.join('B' if size is None else str(size) for size in shape)})"


def is_open(size: int | str | None) -> bool:
    """Whether a model's dimension takes any length: it has a name, or none, or is negative."""
    return not isinstance(size, int) or size < 0


def fits(given: Sequence[int | None], wanted: Sequence[int | str | None]) -> bool:
    """Whether a model's input of the shape `wanted` takes what is given. None in `given` is the batch: it needs an open one."""
    return len(given) == len(wanted) and all(is_open(w) or w == g for g, w in zip(given, wanted, strict=True))


def may_be_equal(one: Sequence[int | str | None], other: Sequence[int | str | None]) -> bool:
    """Whether two shapes may be the same: each length is, where neither is open."""
    return len(one) == len(other) and all(is_open(a) or is_open(b) or a == b for a, b in zip(one, other, strict=True))


def map_elements(value: Any, made: Callable[[Any], Any]) -> Any:
    """Nested lists or tuples as tuples, with every element made into another."""
    return tuple(map_elements(one, made) for one in value) if isinstance(value, list | tuple) else made(value)


def check_constant(value: Any, shape: Sequence[int], dtype: str) -> None:
    """Raises ValueError where a value neither has the shape nor is one element that fills it."""
    if value is None:
        raise ValueError("the key 'fields' is missing (a constant has 'value' in its place)")
    wanted = shape if isinstance(value, list) else ()
    if found := find_fault(value, wanted, lambda one: value_fault(one, dtype, nan=True)):
        raise ValueError(f"the value{found[0]}: {found[1]}" + (f" (shape {list(shape)})" if wanted else ""))


def check_fields(shape: Sequence[int], fields: int, array: str | None, length: int | None) -> None:
    """Raises ValueError where a tensor's fields are not as many elements as its shape. `array` is the name of its one array
    field, `length` what that states."""
    width = math.prod(shape)
    if array is not None and not shape:
        raise ValueError(f"the shape [] is one value, and field {array!r} is an array; name a scalar field")
    if array is not None and (length or width) != width:
        raise ValueError(f"the shape {list(shape)} holds {width} elements, and field {array!r} has {length}; leave length out")
    if array is None and fields != width:
        if not shape:
            raise ValueError(f"the shape [] is one value, and {fields} fields are named; name one")
        hint = f'name {width} fields, or one array field: {{"name": ..., "array": true}} (or "bytes": true)'
        raise ValueError(f"the shape {list(shape)} holds {width} elements, and {fields} fields are named; {hint}")
