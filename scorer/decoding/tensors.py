"""Conversion of rows to the tensors of a signature.

All rows of a batch are packed in one step. An absent value is replaced by the default of its field.
"""

import contextlib
import struct
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_registry.package import field_sources
from model_registry.package.dtypes import array_dtype
from model_registry.package.padding import LengthPlan
from model_registry.package.signature import Signature, TensorInput
from scorer.dead_letters.reasons import NotFinite, Poison, Reason
from scorer.decoding.array_fields import SHOWN, ShapedArrays, VariableLengthArrays, array_poison, not_finite_arrays
from scorer.decoding.binary_field import BinaryField
from scorer.decoding.integers import converted, fault, row_packer
from scorer.decoding.types import Decoded, not_finite_rows

BUILD_ERRORS = (OverflowError, ValueError, TypeError)
PACK_CODES = {"float32": "f", "float64": "d"}

Row = Sequence[Any]
"""The values of one event, one for each field in the order of `Signature.fields`; None for an absent value."""


class TensorBuilder:
    """Builder of all tensors of one signature from rows."""

    def __init__(self, signature: Signature) -> None:
        columns = {field.name: i for i, field in enumerate(signature.fields)}
        self._builders = {t.tensor: _Builder(t, [columns[field.name] for field in t.fields]) for t in signature.fed}
        self._lengths = LengthPlan(signature) if signature.varies else None

    def build(self, rows: Sequence[Row]) -> dict[str, NDArray[Any]]:
        """Return the tensors of a batch. Raises OverflowError, ValueError or TypeError if a value is invalid for its dtype."""
        return {name: build(rows) for name, build in self._builders.items()}

    def joined(self, parts: Sequence[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
        """Concatenate the tensors of consecutive parts of a batch."""
        if len(parts) == 1:
            return parts[0]
        return {name: np.concatenate([part[name] for part in parts]) for name in self._builders} if parts else self.build([])

    def check(self, row: Row) -> None:
        """Check that the row of one event can be converted to tensors. Raises Poison."""
        try:
            self.build([row])
        except BUILD_ERRORS as error:
            raise self._find_poison(row, str(error)) from None

    def _find_poison(self, row: Row, error: str) -> Poison:
        poisons = filter(None, (builder.poison(row) for builder in self._builders.values()))
        return next(poisons, Poison(Reason.OUT_OF_RANGE, error))

    def finished(self, decoded: Decoded) -> Decoded:
        """Move events with invalid tensor rows to `rejected`, and return the remaining batch.

        A tensor row is invalid if it contains an infinity, or a NaN that is not allowed. It is also invalid if arrays that must
        have the same length differ in length.
        """
        rejected: dict[int, Poison] = {}
        if self._lengths is not None:
            rejected |= {
                row: Poison(Reason.WRONG_TYPE, error) for row, error in self._lengths.mismatches(decoded.tensors).items()
            }
        for name, build in self._builders.items():
            tensor = decoded.tensors[name]
            rejected |= {row: build.infinite(tensor[row]) for row in build.not_finite(tensor)}
        if not rejected:
            return decoded
        decoded.rejected |= {decoded.rows[row]: poison for row, poison in rejected.items()}
        return select(decoded, [row for row in range(len(decoded.rows)) if row not in rejected])


class MatrixColumns:
    """Extractor of the tensors of a signature from one matrix.

    The matrix has one row per event. Its columns are all numbers of an event, in the order of `Signature.fields`.
    """

    def __init__(self, signature: Signature) -> None:
        starts = {}
        self.width = 0
        for field in signature.fields:
            starts[field.name] = self.width
            self.width += field.array or 1
        self._cuts: list[tuple[str, np.dtype[Any], slice | list[int]]] = []
        for tensor in signature.fed:
            columns = [starts[f.name] + k for f in tensor.fields for k in range(f.array or 1)]
            contiguous = columns == list(range(columns[0], columns[0] + len(columns)))
            cut = slice(columns[0], columns[0] + len(columns)) if contiguous else columns
            self._cuts.append((tensor.tensor, np.dtype(tensor.dtype), cut))

    def tensors(self, matrix: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return contiguous tensors from a matrix of (B, width) floats."""
        with np.errstate(over="ignore", invalid="ignore"):
            return {name: np.ascontiguousarray(matrix[:, cut], dtype) for name, dtype, cut in self._cuts}


def select(decoded: Decoded, keep: Sequence[int]) -> Decoded:
    """Return a batch with only the valid events at the indices `keep` of `decoded.rows`, in this order.

    The rejected events (`decoded.rejected`) are the same in the result.
    """
    return Decoded(
        [decoded.rows[index] for index in keep],
        [decoded.ids[index] for index in keep],
        {name: tensor[list(keep)] for name, tensor in decoded.tensors.items()},
        decoded.rejected,
        None if decoded.carried is None else [decoded.carried[index] for index in keep],
    )


def merge(parts: Sequence[tuple[Sequence[int], Decoded]]) -> Decoded:
    """Merge the decoded parts of a batch. The events of the result are in the order of the whole batch.

    Each part is a pair: the indices of its records in the whole batch, and its decoded events.
    """
    rows = [indices[row] for indices, part in parts for row in part.rows]
    order = sorted(range(len(rows)), key=rows.__getitem__)
    ids = [event_id for _, part in parts for event_id in part.ids]
    names = parts[0][1].tensors if parts else ()
    tensors = {name: np.concatenate([part.tensors[name] for _, part in parts]) for name in names}
    rejected = {indices[row]: poison for indices, part in parts for row, poison in part.rejected.items()}
    carried = None
    if any(part.carried is not None for _, part in parts):
        carried = [row for _, part in parts for row in part.carried or ()]
    return select(Decoded(rows, ids, tensors, rejected, carried), order)


def to_matrix(buffers: Sequence[bytes], width: int, dtype: Any) -> NDArray[Any]:
    """Join B buffers, each with `width` little-endian numbers, into one (B, width) array."""
    return np.frombuffer(bytearray().join(buffers), dtype).reshape(len(buffers), width)


class _Builder:
    """Builder of one tensor from rows of decoded values.

    The value of an array field is a list of numbers, which is nested if the field has a shape. The value of a binary field is
    bytes.
    """

    def __init__(self, tensor: TensorInput, columns: Sequence[int]) -> None:
        self._fields = tensor.fields
        self._dtype = np.dtype(array_dtype(tensor.dtype))
        self._raw = BinaryField(tensor.fields[0]) if tensor.fields[0].raw else None
        self._array = tensor.fields[0].array is not None or self._raw is not None
        self._shaped = ShapedArrays(tensor.fields[0]) if tensor.fields[0].shape else None
        self._varying = VariableLengthArrays(tensor.fields[0]) if tensor.varies else None
        span = slice(columns[0], columns[-1] + 1)
        contiguous = list(columns) == list(range(span.start, span.stop))
        self._pick: Callable[[Any], Any] = itemgetter(span if contiguous and not self._array else columns[0])
        if not contiguous and len(columns) > 1:
            self._pick = itemgetter(*columns)
        code = PACK_CODES.get(tensor.dtype)
        self._packer = struct.Struct(f"<{len(columns)}{code}") if code and not self._array else None
        self._array_packer: struct.Struct | None = None  # twice as quick as np.array() over lists of floats
        if self._dtype.kind == "f" and self._array and self._raw is None and self._varying is None:
            self._array_packer = struct.Struct(f"<{tensor.fields[0].array}d")
        self._integer_packer: struct.Struct | None = None  # packs the integers of an event: a row or an array
        if self._dtype.kind in "iu" and self._raw is None and self._varying is None:
            self._integer_packer = row_packer(tensor.dtype, tensor.fields[0].array or len(columns))
        self._nan_allowed: NDArray[np.bool_] | None = None  # one boolean per column; None if the dtype is not a float
        self._defaults: list[tuple[int, Any]] = []
        if self._dtype.kind == "f":
            self._nan_allowed = np.array([field.allows_nan for field in tensor.fields])
        if not self._array:
            self._defaults = [
                (i, field.default) for i, field in enumerate(tensor.fields) if not field.required and not field.allows_nan
            ]

    def __call__(self, rows: Sequence[Row]) -> NDArray[Any]:
        picked = list(map(self._pick, rows))
        if self._raw is not None:
            return self._raw.tensor(picked)
        if self._varying is not None:
            return self._varying.rows(picked)
        if self._array:
            return self._from_arrays(picked)
        if self._packer is not None:
            pack = self._packer.pack
            try:
                return to_matrix([pack(*row) for row in picked], len(self._fields), self._dtype)
            except (struct.error, OverflowError):  # a None, or a number that is infinite in the dtype
                return self._floats(picked)
        if self._integer_packer is not None:
            return self._integers(self._integer_packer.pack, picked)
        if self._dtype.kind == "f":
            return self._floats(picked)
        if self._defaults:
            picked = [self._filled(row) for row in picked]
        tensor = np.empty((len(picked), len(self._fields)), self._dtype)
        if picked:
            tensor[:] = picked
        return tensor

    def not_finite(self, tensor: NDArray[Any]) -> Sequence[int]:
        """Return the indices of the tensor's rows that contain an infinity, or a NaN that is not allowed."""
        if self._nan_allowed is None:
            return ()
        rows = not_finite_arrays(tensor) if self._varying is not None else not_finite_rows(tensor, self._nan_allowed)
        return list(map(int, rows))

    def infinite(self, row: NDArray[Any]) -> Poison:
        """Return the error (Poison) for a row with a number that is not finite; see `not_finite`.

        The error names the first invalid field and, in an array, the position of the number.
        """
        flat = row.reshape(-1)
        field = self._fields[0]
        place = ""
        allowed = False if self._varying is not None else self._nan_allowed
        at = int(np.argmax(~np.isfinite(flat) & ~(np.isnan(flat) & allowed)))
        if self._array:
            shape = row.shape if self._varying is not None else field.shape or flat.shape
            place = "".join(f"[{step}]" for step in np.unravel_index(at, shape))
        elif len(self._fields) > 1:
            field = self._fields[at]
        if np.isnan(flat[at]):
            return NotFinite(Reason.NOT_FINITE, f"field {field_sources.qualified_name(field)}{place} is nan")
        return Poison(
            Reason.NOT_FINITE, f"field {field_sources.qualified_name(field)}{place}: a number is not finite in {field.dtype}"
        )

    def poison(self, row: Row) -> Poison | None:
        """Return the error (Poison) for a row with an invalid array, bytes or integer; None if all its values are valid."""
        picked = self._pick(row)
        if self._raw is not None:
            return self._raw.poison(picked)
        if self._array:
            return array_poison(self._fields[0], picked)
        for field, value in zip(self._fields, picked, strict=True):
            if value is not None and (reason_and_error := fault(value, field.dtype)):
                return Poison(
                    reason_and_error[0], f"field {field_sources.qualified_name(field)}: {reason_and_error[1]:.{SHOWN}}"
                )
        return None

    def _floats(self, picked: list[Any]) -> NDArray[Any]:
        with np.errstate(over="ignore", invalid="ignore"):
            tensor = np.array(picked, self._dtype).reshape(len(picked), len(self._fields))  # None becomes NaN
        for column, default in self._defaults:
            missing = [row for row in np.flatnonzero(np.isnan(tensor[:, column])).tolist() if picked[row][column] is None]
            tensor[missing, column] = default
        return tensor

    def _integers(self, pack: Callable[..., bytes], picked: list[Any]) -> NDArray[Any]:
        """Convert rows of integers to a tensor with `pack`. Absent values (None) and floats without a fraction are allowed."""
        width = self._fields[0].array or len(self._fields)
        try:
            return to_matrix([pack(*row) for row in picked], width, self._dtype)
        except struct.error:  # a None, a float, or a number beyond the dtype
            rows = [self._filled(row) for row in picked] if self._defaults else picked
        try:
            return to_matrix([pack(*row) for row in rows], width, self._dtype)
        except struct.error:
            return converted(rows, self._dtype).reshape(len(picked), width)

    def _from_arrays(self, picked: list[Any]) -> NDArray[Any]:
        field = self._fields[0]
        if not field.required:
            picked = [[field.default] * field.array if row is None else row for row in picked]  # type: ignore[operator]
        with np.errstate(over="ignore", invalid="ignore"):
            if self._shaped is not None:
                return self._shaped.tensor(picked)
            if self._integer_packer is not None:
                return self._integers(self._integer_packer.pack, picked)
            if self._array_packer is not None:
                with contextlib.suppress(struct.error, OverflowError):
                    pack = self._array_packer.pack
                    return to_matrix([pack(*row) for row in picked], field.array or 0, "<f8").astype(self._dtype)
            return np.array(picked, self._dtype).reshape(len(picked), field.array or 0)

    def _filled(self, row: Row) -> list[Any]:
        values = list(row)
        for column, default in self._defaults:
            if values[column] is None:
                values[column] = default
        return values
