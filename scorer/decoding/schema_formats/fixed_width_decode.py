"""Decoding of whole batches of Avro or Protobuf events by numpy.

Avro and Protobuf both write a float as its bytes, and a tag or a union branch as a constant. Therefore most events that consist
of numbers have the same byte layout. A `FixedLayout` decodes the events that match this layout to their last byte. The values
are the same as those of the format's own reader, which decodes all other events.

A layout is a sequence of layout items (`Item`). Each item describes the next bytes of an event: constant bytes, numbers, a text
or a varint.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_registry.package.dtypes import INTEGER_LIMITS
from model_registry.package.signature import TensorInput
from scorer.decoding.row_schema import RowSchema
from scorer.decoding.schema_formats.varints import varints
from scorer.decoding.types import Decoded
from scorer.native.byte_columns import AsciiColumn, ByteColumn

MAX_VARIABLE = 30  # maximum number of strings and varints in a layout: with more, the format's own reader is as fast
MIN_EVENTS = 64  # minimum number of events for which all ids are extracted in one step
LARGEST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class ConstantBytes:
    """A layout item for bytes that are the same in every event."""

    data: bytes


@dataclass(frozen=True, slots=True)
class FixedNumbers:
    """A layout item for `count` numbers of a dtype (`<f4`, `<f8`, `?` or `u1`). Several numbers are an array field.

    `field` is the name of the field; None for bytes that no field uses.
    """

    field: str | None
    dtype: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class PrefixedBytes:
    """A layout item for a text or bytes field: its length in bytes as a varint, followed by the bytes.

    The bytes are UTF-8 text unless `raw` is true. If `zigzag` is true, the varint is twice the length.
    """

    field: str | None
    zigzag: bool
    raw: bool = False


@dataclass(frozen=True, slots=True)
class VarintNumber:
    """A layout item for an integer that is written as a varint below `limit`.

    If `zigzag` is true, the lowest bit of the varint is the sign of the integer.
    """

    field: str | None
    zigzag: bool
    limit: int = 1 << 63


Item = ConstantBytes | FixedNumbers | PrefixedBytes | VarintNumber


@dataclass(slots=True)
class _EventSlices:
    """The events whose size matches the layout, and the positions of their parts in `buffer`.

    Attributes:
        buffer: the values of all events of the batch.
        rows: the indices of the matching events in the batch.
        runs: the start positions of each run, one per event. A run is the sequence of fixed-width parts between two parts of
            variable length.
        texts: the start positions and the end positions of each text or bytes field, one per event.
        numbers: the values of each varint number, one per event.
    """

    buffer: NDArray[np.uint8]
    rows: NDArray[np.intp]
    runs: list[NDArray[np.int64]]
    texts: list[tuple[NDArray[np.int64], NDArray[np.int64]]]
    numbers: list[NDArray[np.int64]]
    _data: bytes | None = None

    def data(self) -> bytes:
        """Return the content of the buffer as `bytes`. The first call copies the content."""
        self._data = self._data or self.buffer.tobytes()
        return self._data


@dataclass(slots=True)
class _SlicedFields:
    """The bytes of the events that match the layout, split by field.

    Attributes:
        matrix: (events, width), the bytes of all parts of fixed width.
        texts: the texts or bytes of these events, by field.
        integers: the integers of these events, by field.
    """

    matrix: NDArray[np.uint8]
    texts: dict[str | None, Sequence[Any]]
    integers: dict[str | None, NDArray[np.int64]]


class FixedLayout:
    """The byte layout that most events of one schema have, and the decoder for this layout; see `create_layout`."""

    def __init__(self, items: Sequence[Item], fields: RowSchema, id_field: str | None) -> None:
        self._signature = fields.signature
        self._id_field = id_field
        self._variable = [item for item in items if isinstance(item, PrefixedBytes | VarintNumber)]
        self._texts = [item for item in self._variable if isinstance(item, PrefixedBytes)]
        self._numbers = [item for item in self._variable if isinstance(item, VarintNumber)]
        self._runs = [0]
        self._places: dict[str, tuple[int, np.dtype[Any]]] = {}
        self._width = 0
        constants: dict[int, int] = {}
        booleans: list[int] = []
        for item in items:
            if isinstance(item, PrefixedBytes | VarintNumber):
                self._runs.append(0)
                continue
            if isinstance(item, ConstantBytes):
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
        self._constant_at = _to_slice(list(constants))
        self._constants = np.array(list(constants.values()), np.uint8)
        self._booleans = booleans

    def view(self, values: Sequence[bytes], start: int) -> Decoded | None:
        """Decode the events that match the layout. Return None if no event matches, or if a text of any event is not UTF-8.

        Each event begins after a prefix of `start` bytes in its value. The caller must reject events with NaN or infinities.
        """
        cuts = self._locate(values, start)
        matrix = self._gather_fixed(cuts)
        keep = self._good(matrix)
        texts: dict[str | None, Sequence[Any]] = {}
        try:
            for item, (begins, ends) in zip(self._texts, cuts.texts, strict=True):
                texts[item.field] = self._column(item, cuts, begins, ends)
        except UnicodeDecodeError:  # in one event, which the format's own reader identifies
            return None
        numbers_by_field = {item.field: numbers for item, numbers in zip(self._numbers, cuts.numbers, strict=True)}
        for field in self._signature.fields:
            if field.name in numbers_by_field and field.dtype in INTEGER_LIMITS:
                low, high = INTEGER_LIMITS[field.dtype]
                keep &= (numbers_by_field[field.name] >= low) & (numbers_by_field[field.name] <= min(high, LARGEST))
        rows = cuts.rows
        if not keep.all():
            kept_rows = np.flatnonzero(keep).tolist()
            matrix = matrix[kept_rows]
            rows = rows[kept_rows]
            texts = {field: [column[k] for k in kept_rows] for field, column in texts.items()}
            numbers_by_field = {field: numbers[kept_rows] for field, numbers in numbers_by_field.items()}
        return self._view(rows.tolist(), _SlicedFields(matrix, texts, numbers_by_field)) if len(rows) else None

    def _column(
        self, item: PrefixedBytes, cuts: _EventSlices, begins: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> Sequence[Any]:
        """Return the text or the bytes of a field for each event. Raises UnicodeDecodeError."""
        together = item.field == self._id_field and len(begins) >= MIN_EVENTS
        if together and (ascii_column := AsciiColumn.cut(cuts.buffer, begins, ends)) is not None:
            return ascii_column
        data = cuts.data()
        raw = [data[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
        return raw if item.raw else list(map(bytes.decode, raw))

    def _locate(self, values: Sequence[bytes], start: int) -> "_EventSlices":
        """Locate the parts (one per layout item) of all events at once. The result has only events whose size fits the layout.

        Positions within an event only increase, and the last position must be the end of the event. Therefore no part extends
        beyond its event.
        """
        buffer, begins, ends = _join(values)
        positions = begins + start
        valid = np.ones(len(values), np.bool_)
        runs = [positions]
        texts = []
        numbers = []
        positions = positions + self._runs[0]
        for item, size in zip(self._variable, self._runs[1:], strict=True):
            number, positions, fits = varints(buffer, positions)
            valid &= fits
            if isinstance(item, PrefixedBytes):
                length = number >> 1 if item.zigzag else number
                valid &= (length <= len(buffer)) & ~(number & item.zigzag).astype(np.bool_)
                texts.append((positions, positions + np.minimum(length, len(buffer))))
                positions = texts[-1][1]
            else:
                valid &= number < item.limit
                numbers.append((number >> 1) ^ -(number & 1) if item.zigzag else number)
            runs.append(positions)
            positions = positions + size
        valid &= positions == ends
        rows = np.flatnonzero(valid)
        if len(rows) < len(values):
            runs = [run[rows] for run in runs]
            texts = [(begin[rows], end[rows]) for begin, end in texts]
            numbers = [number[rows] for number in numbers]
        return _EventSlices(buffer, rows, runs, texts, numbers)

    def _gather_fixed(self, cuts: "_EventSlices") -> NDArray[np.uint8]:
        """Return the bytes of all parts of fixed width, (events, width), in the order of the layout."""
        count = len(cuts.rows)
        parts = []
        for begins, size in zip(cuts.runs, self._runs, strict=True):
            if count and size:
                runs = np.ndarray(
                    (len(cuts.buffer) - size + 1,), f"V{size}", cuts.buffer, strides=(1,)
                )  # one run from each byte on
                parts.append(runs[begins].view(np.uint8).reshape(count, size))
        if not parts:
            return np.empty((count, self._width), np.uint8)
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def _good(self, matrix: NDArray[np.uint8]) -> NDArray[np.bool_]:
        valid: NDArray[np.bool_] = (matrix[:, self._constant_at] == self._constants).all(axis=1)
        if self._booleans:
            valid &= (matrix[:, self._booleans] <= 1).all(axis=1)
        return valid

    def _view(self, rows: list[int], parts: _SlicedFields) -> Decoded:
        tensors = {tensor.tensor: self._tensor(tensor, parts) for tensor in self._signature.fed}
        ids: Sequence[str | int | None] = [None] * len(rows)
        if self._id_field in parts.texts:
            ids = parts.texts[self._id_field]
        elif self._id_field in parts.integers:
            ids = parts.integers[self._id_field].tolist()
        return Decoded(rows, ids, tensors, {})

    def _tensor(self, tensor: TensorInput, parts: _SlicedFields) -> NDArray[Any]:
        count = len(parts.matrix)
        if tensor.dtype == "string":
            strings = np.empty((count, tensor.width), object)
            for column, field in enumerate(tensor.fields):
                strings[:, column] = parts.texts[field.name]
            return strings
        if any(field.name in parts.integers for field in tensor.fields):
            return self._column_by_column(tensor, parts)
        places = [self._places[field.name] for field in tensor.fields]
        starts = [start for start, _ in places]
        dtype = places[0][1]
        step = starts[1] - starts[0] if len(starts) > 1 else dtype.itemsize
        with np.errstate(over="ignore", invalid="ignore"):
            if all(other == dtype for _, other in places) and starts == [starts[0] + k * step for k in range(len(starts))]:
                shape = (count, tensor.width)
                strides = (self._width, step if step else dtype.itemsize)
                columns = np.ndarray(shape, dtype, parts.matrix, starts[0], strides)
                return columns.astype(tensor.dtype)
        return self._column_by_column(tensor, parts)

    def _column_by_column(self, tensor: TensorInput, parts: _SlicedFields) -> NDArray[Any]:
        count = len(parts.matrix)
        numbers = np.empty((count, tensor.width), tensor.dtype)
        for column, field in enumerate(tensor.fields):
            if field.name in parts.integers:
                integers: NDArray[Any] = parts.integers[field.name]
                numbers[:, column] = integers.astype(np.float64) if numbers.dtype.kind == "f" else integers
                continue
            start, dtype = self._places[field.name]
            with np.errstate(over="ignore", invalid="ignore"):
                numbers[:, column] = np.ndarray((count,), dtype, parts.matrix, start, (self._width,))
        return numbers


def create_layout(parts: Sequence[Item | None], fields: RowSchema, id_field: str | None) -> FixedLayout | None:
    """Create the layout of a schema from its items `parts`.

    Returns:
        The layout. None if an item is None, if a field of the signature is binary, or if a field or the id has no item of a
        suitable type. Also None if the layout has so many strings and varints that the format's own reader is as fast.
    """
    items = [item for item in parts if item is not None]
    if any(field.raw for field in fields.signature.fields):
        return None
    if len(items) < len(parts) or sum(isinstance(item, PrefixedBytes | VarintNumber) for item in items) > MAX_VARIABLE:
        return None
    numbers = {item.field: item for item in items if isinstance(item, FixedNumbers)}
    varint_fields = {item.field for item in items if isinstance(item, VarintNumber)}
    texts = {item.field for item in items if isinstance(item, PrefixedBytes) and not item.raw}
    for field in fields.signature.fields:
        if field.dtype == "string":
            if field.array or field.name not in texts:
                return None
            continue
        if field.name in varint_fields and field.dtype != "bool" and not field.array:
            continue
        item = numbers.get(field.name)
        if item is None or item.count != (field.array or 1) or np.dtype(item.dtype).kind != np.dtype(field.dtype).kind:
            return None
    if id_field is not None and id_field not in texts | varint_fields:
        return None
    return FixedLayout(items, fields, id_field)


def _join(values: Sequence[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """Join the values in one buffer, and return the buffer with the start and the end position of each value.

    The buffer has an additional byte at its end, so that a read directly after the last value is inside the buffer.
    """
    if isinstance(values, ByteColumn):
        return values.text, values.starts, values.ends
    sizes = np.fromiter(map(len, values), np.int64, len(values))
    ends = np.cumsum(sizes)
    return np.frombuffer(b"".join((*values, b"\0")), np.uint8), ends - sizes, ends


def _to_slice(places: list[int]) -> slice | list[int]:
    """Return the indices as a slice if they are consecutive; otherwise return them unchanged."""
    if places and places == list(range(places[0], places[0] + len(places))):
        return slice(places[0], places[0] + len(places))
    return places
