"""Arrays of floats out of JSON objects by simdjson, which writes them into a buffer without making a number of each.

It takes an event only where its answer is certain to be msgspec's: no name twice, every array of the length that the signature
names (any, where that varies), and no array inside an array, unless the only one is nested exactly in its shape. Every other
event is left to msgspec.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import simdjson

from model_registry.package.signature import InputField, Signature
from scorer.decoding.row_schema import Fields, as_tuple
from scorer.decoding.tensors import Row

NUMBERS = b" \t\r\n+-.0123456789Ee"  # what stands between brackets and commas
WIDE = 32  # elements from which on simdjson is quicker, its fixed cost being 1 us an event


def wide(signature: Signature) -> bool:
    """Whether there are arrays that are worth it: floats, required, and not a handful."""
    return any((f.array or 0) >= WIDE and is_read(f) for f in signature.fields)


def is_read(field: InputField) -> bool:
    """Whether events have an array of floats for the field, and have to."""
    return field.array is not None and field.required and "float" in field.dtype and not field.raw


def brackets(value: bytes, count: int) -> bool:
    """Whether `[` stands `count` times in a value: then no array is inside another, where `count` of them are known."""
    at = -1
    for _ in range(count):
        at = value.find(b"[", at + 1)
        if at < 0:
            return False
    return value.find(b"[", at + 1) < 0


def structure(value: bytes) -> bytes:
    """A value from its first `[` to its last `]` without its numbers: brackets and commas, where nothing else is there."""
    return value[value.find(b"[") : value.rfind(b"]") + 1].translate(None, NUMBERS)


def structure_of(shape: Sequence[int]) -> bytes:
    """The structure of arrays nested in this shape."""
    found = b""
    for length in reversed(shape):
        found = b"[" + b",".join([found] * length) + b"]"
    return found


class FloatArrays:
    """Reads events whose fields of floats are arrays: these as buffers of float64, the others as values."""

    def __init__(self, fields: Fields) -> None:
        found = list(filter(is_read, fields.signature.fields))
        arrays = {f.name: None if f.varies else f.array or 0 for f in found}
        shape = found[0].shape if len(found) == 1 and not found[0].varies else None
        self._nested = (structure_of(shape), shape[0]) if shape else None
        self._arrays = [(fields.names.index(name), name, length) for name, length in arrays.items()]
        self._others = [name for name in fields.names if name not in arrays]
        self._struct = fields.struct_of(self._others)
        self._places = [fields.names.index(name) for name in self._others]
        self._width = len(fields.names)
        self._parse = simdjson.Parser().parse

    def read(self, value: bytes) -> Row | None:
        """The row of one event, or None where the other path has to look at it."""
        try:
            if brackets(value, len(self._arrays)):
                return self._row(self._parse(value), [length for _, _, length in self._arrays])
            if self._nested is not None and structure(value) == self._nested[0]:
                return self._row(self._parse(value), [self._nested[1]])
            return None
        except (ValueError, TypeError, KeyError, RuntimeError, AttributeError, msgspec.ValidationError):
            return None

    def _row(self, event: Any, lengths: Sequence[int | None]) -> Row | None:
        """The row of an event whose arrays, by their own elements, have these lengths (None: any); None where they have not."""
        if len(set(event.keys())) != len(event):
            return None
        row: list[Any] = [None] * self._width
        for (at, name, _), length in zip(self._arrays, lengths, strict=True):
            array = event[name]
            if length is not None and len(array) != length:
                return None
            row[at] = array.as_buffer(of_type="d")
        if self._places:
            others = {name: event[name] for name in self._others if name in event}
            for at, found in zip(self._places, as_tuple(msgspec.convert(others, self._struct)), strict=True):
                row[at] = found
        return row
