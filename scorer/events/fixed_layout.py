"""Events whose bytes stand where the schema puts them: whole batches cut out by numpy, without reading field by field.

Avro and Protobuf both write a float as its bytes and a tag or a branch as a constant, so most events of numbers have one shape.
A layout lists what stands behind what. An event that has that shape to the last byte means what its format's own reader would
say; any other is for that reader.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_registry.signature import TensorInput
from scorer.events.fields import Fields

MOST_VARIABLE = 4  # strings and varints; with more of them the format's own reader is as quick
SHORT = 0x7F  # the largest number that is one byte as a varint
LONGEST_VARINT = 9  # bytes; longer ones exist, and are left to the format's own reader


@dataclass(frozen=True, slots=True)
class Constant:
    """These bytes."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Number:
    """`count` numbers of a dtype (`<f4`, `<f8` or `?`), of an array field where `array`; None: of no interest."""

    field: str | None
    dtype: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Text:
    """A length as a varint (twice the length where `zigzag`), and so many bytes of UTF-8, or of anything if `raw`."""

    field: str | None
    zigzag: bool
    raw: bool = False


@dataclass(frozen=True, slots=True)
class Varint:
    """A varint of no interest."""


Item = Constant | Number | Text | Varint


_Cuts = tuple[list[int], Sequence[bytes], Sequence[list[Any]]]


@dataclass(slots=True)
class View:
    """What a layout found: the places of the events that have its shape, their tensors and their ids."""

    rows: list[int]
    tensors: dict[str, NDArray[Any]]
    ids: Sequence[str | None]


class Layout:
    """The shape of an event for the fields of one signature. Made by `layout`."""

    def __init__(self, items: Sequence[Item], fields: Fields, id_field: str | None) -> None:
        self._signature = fields.signature
        self._id_field = id_field
        self._variable = [item for item in items if isinstance(item, Text | Varint)]
        self._texts = [item for item in self._variable if isinstance(item, Text)]
        self._runs = [0]
        self._places: dict[str, tuple[int, np.dtype[Any]]] = {}
        self._width = 0
        constants: dict[int, int] = {}
        booleans: list[int] = []
        for item in items:
            if isinstance(item, Text | Varint):
                self._runs.append(0)
                continue
            if isinstance(item, Constant):
                constants |= enumerate(item.data, self._width)
                size = len(item.data)
            else:
                dtype = np.dtype(item.dtype)
                size = dtype.itemsize * item.count
                booleans += range(self._width, self._width + size) if dtype.kind == "b" else ()
                if item.field is not None:
                    self._places[item.field] = self._width, dtype
            self._width += size
            self._runs[-1] += size
        self._constant_at = _slice(list(constants))
        self._constants = np.array(list(constants.values()), np.uint8)
        self._booleans = booleans

    def view(self, values: Sequence[bytes], start: int) -> View | None:
        """Cut the events, whose first `start` bytes are a header, or None where not one has the shape."""
        rows, fixed, texts = self._cut_simple(values, start) or self._cut_variable(values, start)
        if not rows:
            return None
        matrix = np.frombuffer(bytearray().join(fixed), np.uint8).reshape(len(rows), self._width)
        good = self._good(matrix)
        if not good.all():
            keep = np.flatnonzero(good).tolist()
            rows, matrix = [rows[k] for k in keep], matrix[good]
            texts = [[column[k] for k in keep] for column in texts]
        return self._view(rows, matrix, texts) if rows else None

    def _cut_simple(self, values: Sequence[bytes], start: int) -> _Cuts | None:
        """The same as `_cut_variable` for no text, or one short text, where every event has the shape; else None."""
        if len(self._variable) > 1 or len(self._texts) < len(self._variable):
            return None
        sizes = np.fromiter(map(len, values), np.intp, len(values))
        rows = list(range(len(values)))
        if not self._variable:
            fits = bool((sizes == start + self._width).all())
            return (rows, [value[start:] for value in values] if start else values, []) if fits else None
        text, (before, after) = self._texts[0], self._runs
        at = start + before
        try:
            lengths = np.array([value[at] for value in values], np.intp)
        except IndexError:
            return None
        shift = int(text.zigzag)
        if (lengths > SHORT).any() or (shift and (lengths & 1).any()) or (sizes != at + 1 + (lengths >> shift) + after).any():
            return None
        cut, end = slice(at + 1, -after if after else None), -after if after else None
        raw = [value[cut] for value in values]
        try:
            texts: list[Any] = raw if text.raw else list(map(bytes.decode, raw))
        except UnicodeDecodeError:
            return None
        tails = [value[end:] for value in values] if after else repeat(b"", len(values))
        if not before:
            return rows, list(tails), [texts]
        return rows, [value[start:at] + tail for value, tail in zip(values, tails, strict=True)], [texts]

    def _cut_variable(self, values: Sequence[bytes], start: int) -> _Cuts:
        """Of the events that have the shape's size: their places, the fixed parts of each in one, and columns of texts."""
        rows: list[int] = []
        fixed: list[bytes] = []
        texts: list[list[Any]] = []
        for row, value in enumerate(values):
            try:
                parts, found, at = self._cut(value, start)
            except (IndexError, UnicodeDecodeError):
                continue
            if at == len(value):
                rows.append(row)
                fixed.append(parts)
                texts.append(found)
        return rows, fixed, [list(column) for column in zip(*texts, strict=True)]

    def _cut(self, value: bytes, at: int) -> tuple[bytes, list[Any], int]:
        """Raises IndexError and UnicodeDecodeError where the event has another shape."""
        found: list[Any] = []
        end = at + self._runs[0]
        fixed = value[at:end]
        for item, size in zip(self._variable, self._runs[1:], strict=True):
            number = value[end]
            at = end + 1
            if number >= 0x80:
                number, at = varint(value, end)
            if isinstance(item, Text):
                length = number >> 1 if item.zigzag else number
                if item.zigzag and number & 1:
                    raise IndexError
                text = value[at : at + length]
                found.append(text if item.raw else text.decode())
                at += length
            end = at + size
            fixed += value[at:end]
        return fixed, found, end

    def _good(self, matrix: NDArray[np.uint8]) -> NDArray[np.bool_]:
        good: NDArray[np.bool_] = (matrix[:, self._constant_at] == self._constants).all(axis=1)
        if self._booleans:
            good &= (matrix[:, self._booleans] <= 1).all(axis=1)
        return good

    def _view(self, rows: list[int], matrix: NDArray[np.uint8], texts: Sequence[list[Any]]) -> View:
        columns = {item.field: column for item, column in zip(self._texts, texts, strict=False)}
        tensors = {tensor.tensor: self._tensor(tensor, matrix, columns) for tensor in self._signature.inputs}
        ids = columns.get(self._id_field) if self._id_field else None
        return View(rows, tensors, ids or [None] * len(rows))

    def _tensor(self, tensor: TensorInput, matrix: NDArray[np.uint8], texts: dict[str | None, Any]) -> NDArray[Any]:
        count = len(matrix)
        if tensor.dtype == "string":
            strings = np.empty((count, tensor.width), object)
            for column, field in enumerate(tensor.fields):
                strings[:, column] = texts[field.name]
            return strings
        places = [self._places[field.name] for field in tensor.fields]
        starts, dtype = [start for start, _ in places], places[0][1]
        step = starts[1] - starts[0] if len(starts) > 1 else dtype.itemsize
        with np.errstate(over="ignore", invalid="ignore"):
            if all(other == dtype for _, other in places) and starts == [starts[0] + k * step for k in range(len(starts))]:
                shape, strides = (count, tensor.width), (self._width, step if step else dtype.itemsize)
                found = np.ndarray(shape, dtype, matrix, starts[0], strides)
                return found.astype(tensor.dtype)
            numbers = np.empty((count, tensor.width), tensor.dtype)
            for column, (start, dtype) in enumerate(places):
                numbers[:, column] = np.ndarray((count,), dtype, matrix, start, (self._width,))
        return numbers


def layout(found: Sequence[Item | None], fields: Fields, id_field: str | None) -> Layout | None:
    """The layout, or None where it has not all that the signature names, or cannot be told (an item is None)."""
    items = [item for item in found if item is not None]
    if len(items) < len(found) or sum(isinstance(item, Text | Varint) for item in items) > MOST_VARIABLE:
        return None
    numbers = {item.field: item for item in items if isinstance(item, Number)}
    texts = {item.field for item in items if isinstance(item, Text) and not item.raw}
    for field in fields.signature.fields:
        if field.dtype == "string":
            if field.array or field.name not in texts:
                return None
            continue
        item = numbers.get(field.name)
        if item is None or item.count != (field.array or 1) or np.dtype(item.dtype).kind != np.dtype(field.dtype).kind:
            return None
    if id_field is not None and id_field not in texts:
        return None
    return Layout(items, fields, id_field)


def varint(value: bytes, at: int) -> tuple[int, int]:
    """The number at `at` and where it ends. Raises IndexError where it does not end, or is longer than is read here."""
    number = 0
    for shift in range(LONGEST_VARINT):
        byte = value[at + shift]
        number |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return number, at + shift + 1
    raise IndexError


def _slice(places: list[int]) -> slice | list[int]:
    """The places as a slice where they are next to each other."""
    if places and places == list(range(places[0], places[0] + len(places))):
        return slice(places[0], places[0] + len(places))
    return places
