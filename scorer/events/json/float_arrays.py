"""Arrays of floats out of JSON objects by simdjson, which writes them into a buffer without making a number of each.

It takes an event only where its answer is certain to be msgspec's: no name twice, no array inside an array, every array of the
length that the signature names. Every other event is left to msgspec.
"""

from typing import Any

import msgspec
import simdjson

from model_registry.package.signature import Signature
from scorer.events.fields import Fields, as_tuple
from scorer.events.tensors import Row

WIDE = 32  # elements from which on simdjson is quicker, its fixed cost being 1 us an event


def wide(signature: Signature) -> bool:
    """Whether there are arrays that are worth it: floats, required, and not a handful."""
    return any(f.required and "float" in f.dtype and (f.array or 0) >= WIDE for f in signature.fields)


def brackets(value: bytes, count: int) -> bool:
    """Whether `[` stands `count` times in a value: then no array is inside another, where `count` of them are known."""
    at = -1
    for _ in range(count):
        at = value.find(b"[", at + 1)
        if at < 0:
            return False
    return value.find(b"[", at + 1) < 0


class FloatArrays:
    """Reads events whose fields of floats are arrays: these as buffers of float64, the others as values."""

    def __init__(self, fields: Fields) -> None:
        arrays = {f.name: f.array for f in fields.signature.fields if f.array and f.required and "float" in f.dtype}
        self._arrays = [(fields.names.index(name), name, length) for name, length in arrays.items()]
        self._others = [name for name in fields.names if name not in arrays]
        self._struct = fields.struct_of(self._others)
        self._places = [fields.names.index(name) for name in self._others]
        self._width = len(fields.names)
        self._parse = simdjson.Parser().parse

    def read(self, value: bytes) -> Row | None:
        """The row of one event, or None where the other path has to look at it."""
        try:
            return self._row(self._parse(value)) if brackets(value, len(self._arrays)) else None
        except (ValueError, TypeError, KeyError, RuntimeError, AttributeError, msgspec.ValidationError):
            return None

    def _row(self, event: Any) -> Row | None:
        if len(set(event.keys())) != len(event):
            return None
        row: list[Any] = [None] * self._width
        for at, name, length in self._arrays:
            array = event[name]
            if len(array) != length:
                return None
            row[at] = array.as_buffer(of_type="d")
        if self._places:
            others = {name: event[name] for name in self._others if name in event}
            for at, found in zip(self._places, as_tuple(msgspec.convert(others, self._struct)), strict=True):
                row[at] = found
        return row
