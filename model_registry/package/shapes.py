"""Checks and measures shapes of tensors, and JSON arrays of a shape: flat lists (row by row) or nested lists.

A shape states the dimensions of one event's row, without the batch. -1 stands for a length that varies from event to event.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from model_registry.package.document_validation import check_whole_number
from model_registry.package.dtypes import value_fault

MAX_WIDTH = 1 << 20  # most elements in one event's row of a tensor
MAX_RANK = 8  # most dimensions of a tensor, without the batch
VARIES = -1  # in a shape: a length that varies from event to event

Shape = tuple[int, ...]
ElementFault = tuple[str, str, Any]
"""An error in an array: its position (`[2][5]`, or empty for the array itself), a description, and the element (None if the
position is that of an array)."""


def check_shape(raw: Any) -> Any:
    """Return the shape in a document unchanged. Raises ValueError if it is invalid or has more than MAX_WIDTH elements."""
    if raw is None:
        return None
    if not isinstance(raw, list) or len(raw) > MAX_RANK:
        raise ValueError(
            f"{raw!r:.100} is not a list of at most {MAX_RANK} whole numbers, the dimensions that follow the batch"
        )
    for size in raw:
        if size is None:
            raise ValueError("a dimension in the shape is null; write its size, or -1 for a length that varies")
        if size != VARIES:
            check_whole_number(1, MAX_WIDTH, size)
    if raw.count(VARIES) > 1:
        raise ValueError(f"the shape {raw} has {raw.count(VARIES)} lengths that vary (-1); a tensor may have one")
    if (elements := step_size(raw)) > MAX_WIDTH:
        raise ValueError(f"the shape {raw} has {elements} elements; a tensor may have at most {MAX_WIDTH}")
    return raw


def shape_of_value(value: Any) -> list[int]:
    """Return the shape of nested lists, measured along their first elements; an empty list for a value that is not a list.

    Raises ValueError if `check_shape` rejects the shape.
    """
    shape: list[int] = []
    while isinstance(value, list) and value and len(shape) <= MAX_RANK:
        shape.append(len(value))
        value = value[0]
    check_shape(shape)
    return shape


def find_fault(value: object, shape: Sequence[int], check: Callable[[object], str | None]) -> ElementFault | None:
    """Return the first error in nested lists that should have this shape; None if there is none.

    `check` returns a description of what is wrong with an element, or None for a valid element.
    """
    if not shape:
        fault = f"one value was expected, not {_kind(value)}" if isinstance(value, list | tuple | dict) else check(value)
        return ("", fault, value) if fault else None
    if not isinstance(value, list | tuple):
        return "", f"an array of {shape[0]} was expected, not {_kind(value)}", None
    if len(value) != shape[0]:
        return "", f"an array of {shape[0]} was expected, not of {len(value)}", None
    rest = shape[1:]
    for at, element in enumerate(value):
        if fault_inside := find_fault(element, rest, check):
            return f"[{at}]{fault_inside[0]}", *fault_inside[1:]
    return None


def _kind(value: object) -> str:
    """Describe a value in a few words, even if the value is large or deeply nested."""
    if isinstance(value, list | tuple | dict):
        return "an object" if isinstance(value, dict) else "an array"
    return f"{value!r:.60}"


def array_fault(value: object, length: int, shape: Shape | None, check: Callable[[object], str | None]) -> ElementFault | None:
    """Return the first error in the value of an array field; None if the value is valid.

    Args:
        value: The value, which should be a flat list of `length` elements or nested lists in the shape.
        length: The number of elements; the largest number if the shape has a varying length.
        shape: The shape of nested lists; None allows only flat lists.
        check: Returns a description of what is wrong with an element, or None for a valid element.
    """
    if shape is None:
        return find_fault(value, (length,), check)
    if varies(shape):
        return _varying_fault(value, length, shape, check)
    fault = find_fault(value, shape if is_nested(value) else (length,), check)
    return fault and (fault[0], f"{fault[1]} (shape {list(shape)}, nested or flat)", fault[2])


def _varying_fault(value: object, most: int, shape: Shape, check: Callable[[object], str | None]) -> ElementFault | None:
    suffix = f" (shape {list(shape)}{', nested or flat' if len(shape) > 1 else ''})"
    longest = most // step_size(shape)
    multiple = step_size(shape)
    if not isinstance(value, list):
        return "", f"an array of at most {longest} was expected, not {_kind(value)}{suffix}", None
    length_of_value = length_in(value, shape)
    if length_of_value is None:
        return "", f"a multiple of {multiple} elements was expected, not {len(value)}{suffix}", None
    if length_of_value > longest:
        return "", f"a length of at most {longest} was expected, not {length_of_value}{suffix}", None
    nested = len(shape) > 1 and is_nested(value)
    fault = find_fault(value, with_length(shape, length_of_value) if nested else (len(value),), check)
    return fault and (fault[0], fault[1] + suffix, fault[2])


def length_in(value: Any, shape: Shape) -> int | None:
    """Return the length of a flat or nested list on the axis of `shape` whose length varies (-1).

    In a nested list, the first entry of each outer level is measured. In a flat list, the length is the number of elements
    divided by `step_size(shape)`; if this is not a whole number, the result is None.
    """
    if len(shape) > 1 and is_nested(value):
        for _ in range(shape.index(VARIES)):
            value = value[0] if isinstance(value, list) and value else ()
        return len(value) if isinstance(value, list) else 0
    length, rest = divmod(len(value), step_size(shape))
    return None if rest else length


def varies(shape: Sequence[int] | None) -> bool:
    """Return whether a shape has a varying length (-1); False for None."""
    return shape is not None and VARIES in shape


def step_size(shape: Sequence[int]) -> int:
    """Return the number of elements at one position of the varying axis; for a fixed shape, the number of all elements."""
    return math.prod(size for size in shape if size != VARIES)


def with_length(shape: Sequence[int], length: int) -> Shape:
    """Return the shape with -1 replaced by this length."""
    return tuple(length if size == VARIES else size for size in shape)


def is_nested(value: object) -> bool:
    """Return whether a value is a nested list; only the first entry is examined."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], list)


def flatten(value: Any, rank: int) -> list[Any]:
    """Return the elements of nested lists with this number of dimensions as one flat list, row by row."""
    for _ in range(rank - 1):
        value = [element for row in value for element in row]
    return list(value)


def format_shape(shape: Sequence[int | str | None]) -> str:
    """Format a shape as text such as "(B, 3, 8, 8)"; None stands for the batch dimension and is written as B."""
    return f"({', '.join('B' if size is None else str(size) for size in shape)})"


def is_open(size: int | str | None) -> bool:
    """Return whether a dimension in a model accepts any length: its size is a name, None or negative."""
    return not isinstance(size, int) or size < 0


def fits(stated: Sequence[int | None], declared: Sequence[int | str | None]) -> bool:
    """Return whether a tensor of the shape `stated` fits a model's input that declares the shape `declared`.

    None in `stated` is the batch dimension, which fits only an open dimension (see `is_open`).
    """
    return len(stated) == len(declared) and all(is_open(w) or w == g for g, w in zip(stated, declared, strict=True))


def may_be_equal(first: Sequence[int | str | None], other: Sequence[int | str | None]) -> bool:
    """Return whether two shapes may be equal.

    They must have the same rank. In each dimension, the two sizes must be equal, or one of them must be open.
    """
    return len(first) == len(other) and all(is_open(a) or is_open(b) or a == b for a, b in zip(first, other, strict=True))


def map_elements(value: Any, function: Callable[[Any], Any]) -> Any:
    """Apply a function to every element of nested lists or tuples, and return the results as nested tuples."""
    return tuple(map_elements(element, function) for element in value) if isinstance(value, list | tuple) else function(value)


def check_constant(value: Any, shape: Sequence[int], dtype: str) -> None:
    """Raise ValueError unless the value of a constant has this shape, or is a single element to fill the shape."""
    if value is None:
        raise ValueError("the key 'fields' is missing (a constant has 'value' in its place)")
    expected = shape if isinstance(value, list) else ()
    if fault := find_fault(value, expected, lambda element: value_fault(element, dtype, nan=True)):
        suffix = f"; the shape must be {list(shape)}" if expected else ""
        raise ValueError(f"the constant value{fault[0]}: {fault[1]}{suffix}")


def check_fields(shape: Sequence[int], fields: int, array: str | None, length: int | None) -> None:
    """Raise ValueError unless a tensor's fields have as many elements in total as the tensor's shape.

    Args:
        shape: The tensor's shape without the batch.
        fields: The number of the tensor's fields.
        array: The name of the tensor's only field if that field is an array; None if the fields are scalars.
        length: The length that signature.json states for the array field; None if none is stated.
    """
    width = math.prod(shape)
    if array is not None and not shape:
        raise ValueError(f"the shape [] is one value, but field {array!r} is an array; name a scalar field")
    if array is not None and (length or width) != width:
        raise ValueError(
            f'the shape {list(shape)} has {width} elements, but the "length" of field {array!r} is {length}; remove "length"'
        )
    if array is None and fields != width:
        if not shape:
            raise ValueError(f"the shape [] is one value, but {fields} fields are named; name one field")
        hint = f'name {width} fields, or one array field: {{"name": ..., "array": true}} (or "bytes": true)'
        raise ValueError(f"the shape {list(shape)} has {width} elements, but {fields} fields are named; {hint}")
