"""Events whose bytes stand where the schema puts them: whole batches cut out by numpy, without reading field by field.

Avro and Protobuf both write a float as its bytes and a tag or a branch as a constant, so most events of numbers have one shape.
A layout lists the parts of that shape in their order. An event that has the shape to the last byte means what its format's own
reader would say. Every other event is left to that reader.
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

MOST_VARIABLE = 30  # strings and varints; with more of them the format's own reader is as quick
FEWEST = 64  # events from which on ids are quicker together, where they are wanted as they are
LARGEST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class ConstantBytes:
    """These bytes."""

    data: bytes


@dataclass(frozen=True, slots=True)
class FixedNumbers:
    """`count` numbers of a dtype (`<f4`, `<f8` or `?`): an array field where there are several. `field` None: not asked for."""

    field: str | None
    dtype: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class PrefixedBytes:
    """A length as a varint (twice the length where `zigzag`), and so many bytes of UTF-8, or of anything if `raw`."""

    field: str | None
    zigzag: bool
    raw: bool = False


@dataclass(frozen=True, slots=True)
class VarintNumber:
    """A whole number of a field (None: not asked for) as a varint below `limit`, with its sign in the last bit if `zigzag`."""

    field: str | None
    zigzag: bool
    limit: int = 1 << 63


Item = ConstantBytes | FixedNumbers | PrefixedBytes | VarintNumber


@dataclass(slots=True)
class _EventSlices:
    """The events that have the shape's size: their places, where their parts begin and end in `buffer`, and their numbers."""

    buffer: NDArray[np.uint8]
    rows: NDArray[np.intp]
    runs: list[NDArray[np.int64]]
    texts: list[tuple[NDArray[np.int64], NDArray[np.int64]]]
    numbers: list[NDArray[np.int64]]
    _data: bytes | None = None

    def data(self) -> bytes:
        """The buffer, to be sliced."""
        self._data = self._data or self.buffer.tobytes()
        return self._data


@dataclass(slots=True)
class _SlicedFields:
    """What was cut from the events of the shape: (events, width) fixed bytes, and by field the strings and whole numbers."""

    matrix: NDArray[np.uint8]
    texts: dict[str | None, Sequence[Any]]
    whole: dict[str | None, NDArray[np.int64]]


class FixedLayout:
    """The shape of an event for the fields of one signature. Made by `create_layout`."""

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
        self._constant_at = _slice(list(constants))
        self._constants = np.array(list(constants.values()), np.uint8)
        self._booleans = booleans

    def view(self, values: Sequence[bytes], start: int) -> Decoded | None:
        """The events that have the shape, behind headers of `start` bytes; None where none has. Floats may not be finite."""
        cuts = self._cut(values, start)
        matrix = self._fixed(cuts)
        keep = self._good(matrix)
        texts: dict[str | None, Sequence[Any]] = {}
        try:
            for item, (begins, ends) in zip(self._texts, cuts.texts, strict=True):
                texts[item.field] = self._column(item, cuts, begins, ends)
        except UnicodeDecodeError:  # of one of them: the format's own reader says which
            return None
        whole = {item.field: numbers for item, numbers in zip(self._numbers, cuts.numbers, strict=True)}
        for field in self._signature.fields:
            if field.name in whole and field.dtype in INTEGER_LIMITS:
                low, high = INTEGER_LIMITS[field.dtype]
                keep &= (whole[field.name] >= low) & (whole[field.name] <= min(high, LARGEST))
        rows = cuts.rows
        if not keep.all():
            at = np.flatnonzero(keep).tolist()
            matrix, rows = matrix[at], rows[at]
            texts = {field: [column[k] for k in at] for field, column in texts.items()}
            whole = {field: numbers[at] for field, numbers in whole.items()}
        return self._view(rows.tolist(), _SlicedFields(matrix, texts, whole)) if len(rows) else None

    def _column(
        self, item: PrefixedBytes, cuts: _EventSlices, begins: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> Sequence[Any]:
        """The strings of a field. Raises UnicodeDecodeError."""
        together = item.field == self._id_field and len(begins) >= FEWEST
        if together and (plain := AsciiColumn.cut(cuts.buffer, begins, ends)) is not None:
            return plain
        data = cuts.data()
        raw = [data[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
        return raw if item.raw else list(map(bytes.decode, raw))

    def _cut(self, values: Sequence[bytes], start: int) -> "_EventSlices":
        """Where the parts of each event are, of all events at once.

        Positions only grow, and the last must be the event's end: so none has reached beyond it.
        """
        buffer, begins, ends = _together(values)
        at = begins + start
        good = np.ones(len(values), np.bool_)
        runs, texts, numbers = [at], [], []
        at = at + self._runs[0]
        for item, size in zip(self._variable, self._runs[1:], strict=True):
            number, at, fits = varints(buffer, at)
            good &= fits
            if isinstance(item, PrefixedBytes):
                length = number >> 1 if item.zigzag else number
                good &= (length <= len(buffer)) & ~(number & item.zigzag).astype(np.bool_)
                texts.append((at, at + np.minimum(length, len(buffer))))
                at = texts[-1][1]
            else:
                good &= number < item.limit
                numbers.append((number >> 1) ^ -(number & 1) if item.zigzag else number)
            runs.append(at)
            at = at + size
        good &= at == ends
        rows = np.flatnonzero(good)
        if len(rows) < len(values):
            runs = [run[rows] for run in runs]
            texts = [(begin[rows], end[rows]) for begin, end in texts]
            numbers = [number[rows] for number in numbers]
        return _EventSlices(buffer, rows, runs, texts, numbers)

    def _fixed(self, cuts: "_EventSlices") -> NDArray[np.uint8]:
        """(events, width): what is fixed in each, one behind the other."""
        count = len(cuts.rows)
        parts = []
        for begins, size in zip(cuts.runs, self._runs, strict=True):
            if count and size:
                runs = np.ndarray((len(cuts.buffer) - size + 1,), f"V{size}", cuts.buffer, strides=(1,))  # from every byte on
                parts.append(runs[begins].view(np.uint8).reshape(count, size))
        if not parts:
            return np.empty((count, self._width), np.uint8)
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def _good(self, matrix: NDArray[np.uint8]) -> NDArray[np.bool_]:
        good: NDArray[np.bool_] = (matrix[:, self._constant_at] == self._constants).all(axis=1)
        if self._booleans:
            good &= (matrix[:, self._booleans] <= 1).all(axis=1)
        return good

    def _view(self, rows: list[int], parts: _SlicedFields) -> Decoded:
        tensors = {tensor.tensor: self._tensor(tensor, parts) for tensor in self._signature.fed}
        ids: Sequence[str | int | None] = [None] * len(rows)
        if self._id_field in parts.texts:
            ids = parts.texts[self._id_field]
        elif self._id_field in parts.whole:
            ids = parts.whole[self._id_field].tolist()
        return Decoded(rows, ids, tensors, {})

    def _tensor(self, tensor: TensorInput, parts: _SlicedFields) -> NDArray[Any]:
        count = len(parts.matrix)
        if tensor.dtype == "string":
            strings = np.empty((count, tensor.width), object)
            for column, field in enumerate(tensor.fields):
                strings[:, column] = parts.texts[field.name]
            return strings
        if any(field.name in parts.whole for field in tensor.fields):
            return self._column_by_column(tensor, parts)
        places = [self._places[field.name] for field in tensor.fields]
        starts, dtype = [start for start, _ in places], places[0][1]
        step = starts[1] - starts[0] if len(starts) > 1 else dtype.itemsize
        with np.errstate(over="ignore", invalid="ignore"):
            if all(other == dtype for _, other in places) and starts == [starts[0] + k * step for k in range(len(starts))]:
                shape, strides = (count, tensor.width), (self._width, step if step else dtype.itemsize)
                found = np.ndarray(shape, dtype, parts.matrix, starts[0], strides)
                return found.astype(tensor.dtype)
        return self._column_by_column(tensor, parts)

    def _column_by_column(self, tensor: TensorInput, parts: _SlicedFields) -> NDArray[Any]:
        count = len(parts.matrix)
        numbers = np.empty((count, tensor.width), tensor.dtype)
        for column, field in enumerate(tensor.fields):
            if field.name in parts.whole:
                found: NDArray[Any] = parts.whole[field.name]
                numbers[:, column] = found.astype(np.float64) if numbers.dtype.kind == "f" else found
                continue
            start, dtype = self._places[field.name]
            with np.errstate(over="ignore", invalid="ignore"):
                numbers[:, column] = np.ndarray((count,), dtype, parts.matrix, start, (self._width,))
        return numbers


def create_layout(found: Sequence[Item | None], fields: RowSchema, id_field: str | None) -> FixedLayout | None:
    """The layout, or None where it has not all that the signature names, or cannot be told (an item is None)."""
    items = [item for item in found if item is not None]
    if any(field.raw for field in fields.signature.fields):
        return None
    if len(items) < len(found) or sum(isinstance(item, PrefixedBytes | VarintNumber) for item in items) > MOST_VARIABLE:
        return None
    numbers = {item.field: item for item in items if isinstance(item, FixedNumbers)}
    whole = {item.field for item in items if isinstance(item, VarintNumber)}
    texts = {item.field for item in items if isinstance(item, PrefixedBytes) and not item.raw}
    for field in fields.signature.fields:
        if field.dtype == "string":
            if field.array or field.name not in texts:
                return None
            continue
        if field.name in whole and field.dtype != "bool" and not field.array:
            continue
        item = numbers.get(field.name)
        if item is None or item.count != (field.array or 1) or np.dtype(item.dtype).kind != np.dtype(field.dtype).kind:
            return None
    if id_field is not None and id_field not in texts | whole:
        return None
    return FixedLayout(items, fields, id_field)


def _together(values: Sequence[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """Events in one buffer, and where each begins and ends. Something is there to look at behind the last."""
    if isinstance(values, ByteColumn):
        return values.text, values.starts, values.ends
    sizes = np.fromiter(map(len, values), np.int64, len(values))
    ends = np.cumsum(sizes)
    return np.frombuffer(b"".join((*values, b"\0")), np.uint8), ends - sizes, ends


def _slice(places: list[int]) -> slice | list[int]:
    """The places as a slice where they are next to each other."""
    if places and places == list(range(places[0], places[0] + len(places))):
        return slice(places[0], places[0] + len(places))
    return places
