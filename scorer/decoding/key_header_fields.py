"""Fields with a source (`from`) other than the event: key, header, timestamp or the whole value.

Each is decoded as a column and added to the events that a format has decoded. The text of a key or a header is a number as in
JSON, or the string itself; a field of bytes has its bytes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from model_registry.package import field_sources
from model_registry.package.dtypes import INTEGER_LIMITS, array_dtype, event_fault
from model_registry.package.padding import LengthPlan
from model_registry.package.signature import InputField, Signature, TensorInput
from scorer.dead_letters.reasons import Poison, Reason
from scorer.decoding.array_fields import element_type
from scorer.decoding.binary_field import BinaryField
from scorer.decoding.integers import is_integral
from scorer.decoding.json import lenient
from scorer.decoding.record_metadata import ListedMetadata, RecordMetadata
from scorer.decoding.row_schema import FAULTS, RowSchema
from scorer.decoding.tensors import select
from scorer.decoding.types import Decoded, Decoder
from scorer.native.byte_columns import ByteColumn

Columns = Mapping[str, NDArray[Any]]


class KeyHeaderDecoder:
    """Adds the fields with other sources to the events of another decoder."""

    def __init__(self, decoder: Decoder, signature: Signature) -> None:
        self._decoder = decoder
        self._columns = [_Column(field) for field in field_sources.fields_outside_value(signature)]
        self._lengths = LengthPlan(signature) if signature.varies else None
        self._mixed = [tensor for tensor in signature.fed if any(field.source for field in tensor.fields)]

    def decode(self, values: Sequence[bytes | None], parts: RecordMetadata | None = None) -> Decoded:
        """Decode a batch; see `Decoder`."""
        decoded = self._decoder.decode(values, parts)
        beside = parts or ListedMetadata.empty(len(values))
        found = {column.name: column.read(values, beside) for column in self._columns}
        bad: dict[int, Poison] = {}
        for one in found.values():
            bad = one.rejected | bad
        bad = {row: poison for row, poison in bad.items() if row not in decoded.rejected}
        if bad:
            decoded = select(decoded, [at for at, row in enumerate(decoded.rows) if row not in bad])
            decoded.rejected |= bad
        columns = {name: _at(one.tensors[name], one.rows, decoded.rows) for name, one in found.items()}
        for tensor in self._mixed:
            decoded.tensors[tensor.tensor] = _joined(tensor, decoded.tensors, columns)
        if self._lengths is None or not (unequal := self._lengths.mismatches(decoded.tensors)):
            return decoded
        decoded.rejected |= {decoded.rows[at]: Poison(Reason.WRONG_TYPE, said) for at, said in unequal.items()}
        return select(decoded, [at for at in range(len(decoded.rows)) if at not in unequal])


class _Column:
    """One field with another source."""

    def __init__(self, field: InputField) -> None:
        self.name = field.name
        self._field = field
        shape = field.shape if field.varies else None
        self._fields = RowSchema(Signature((TensorInput(field.name, field.dtype, (field,), shape),), ()), None, 0)
        self._raw = BinaryField(field) if field.raw else None
        element = element_type(field.dtype)
        self._numbers = msgspec.json.Decoder(list[element if field.required else element | None]).decode  # type: ignore[misc]

    def read(self, values: Sequence[bytes | None], parts: RecordMetadata) -> Decoded:
        """Decode the field of a batch to a tensor of its name: (B, 1), (B, n) of bytes, or (B,) arrays where lengths vary."""
        found = self._found(values, parts)
        if self._raw is not None and isinstance(found, ByteColumn) and (view := self._raw.view(found)) is not None:
            return self._fields.whole({self.name: view}, None)
        try:
            column = self._column(found)
            if self._field.required and None in column:
                raise ValueError
            return self._fields.decoded((value,) for value in column)
        except FAULTS:
            return self._singly(found)

    def _found(self, values: Sequence[bytes | None], parts: RecordMetadata) -> Sequence[Any]:
        """Return the source's value of each record: bytes or a time, None if there is none."""
        match self._field.source:
            case field_sources.VALUE:
                return values
            case field_sources.KEY:
                return parts.keys()
            case field_sources.TIME:
                return [time or None for time in parts.times()]
        return parts.header(str(self._field.source).removeprefix(field_sources.HEADER))

    def _column(self, found: Sequence[Any]) -> Sequence[Any]:
        """Return the values, parsed in one call. Raises one of FAULTS if one is bad."""
        if self._field.raw or self._field.source == field_sources.TIME:
            return found
        if self._field.dtype == "string":
            return [one if one is None else one.decode() for one in found]
        text = b",".join([b"null" if one is None else one for one in found])
        numbers: list[Any] = self._numbers(b"[" + text + b"]")
        if len(numbers) != len(found) or text.count(b",") >= max(1, len(found)):  # no text is empty, or several numbers
            raise ValueError
        return numbers

    def _singly(self, found: Sequence[Any]) -> Decoded:
        """Parse one record at a time, so that each bad one has its reason."""
        return self._fields.each(found, lambda one: self._fields.checked({self.name: self._value(one)}))

    def _value(self, one: Any) -> Any:
        """Return one value. Raises Poison if the text is not a value of the field."""
        if not isinstance(one, bytes) or self._field.raw:
            return one
        field, called = self._field, field_sources.qualified_name(self._field)
        try:
            text = one.decode()
            value = text if field.dtype == "string" else lenient.loads(text)
        except UnicodeDecodeError as error:
            raise Poison(Reason.NOT_UTF8, f"field {called}: {error}") from None
        except (ValueError, RecursionError):
            value = text
        if field.dtype != "string" and isinstance(value, str | list | dict):
            raise Poison(Reason.WRONG_TYPE, f"field {called}: {text!r:.60} is no {field.dtype}")
        if is_integral(value) and field.dtype in INTEGER_LIMITS and event_fault(value, field.dtype):
            low, high = INTEGER_LIMITS[field.dtype]
            raise Poison(Reason.OUT_OF_RANGE, f"field {called}: {text:.60} is no {field.dtype} ({low} to {high})")
        return value


def _at(tensor: NDArray[Any], rows: Sequence[int], wanted: Sequence[int]) -> NDArray[Any]:
    """Return the rows of a tensor, which belong to ascending `rows`, for the rows that are wanted."""
    return tensor if len(rows) == len(wanted) else tensor[np.searchsorted(rows, wanted)]


def _joined(tensor: TensorInput, inside: Columns, columns: Columns) -> NDArray[Any]:
    """Return a tensor of columns with other sources and of columns that were decoded from the event."""
    first = columns[name] if (name := tensor.fields[0].name) in columns else inside[tensor.tensor]
    if len(tensor.fields) == 1:
        return first
    found = np.empty((len(first), len(tensor.fields)), array_dtype(tensor.dtype))
    read = [at for at, field in enumerate(tensor.fields) if not field.source]
    if read:
        found[:, read] = inside[tensor.tensor]
    for at, field in enumerate(tensor.fields):
        if field.source:
            found[:, at] = columns[field.name][:, 0]
    return found
