"""Decoding of fields whose source (`from`) is the record's key, a header, the timestamp or the whole value.

Each of these fields is decoded for all records of a batch (as a column), and added to the events that the format's decoder
returns. For a string field, the text of a key or header is the value. For a numeric field, the text is parsed as JSON. For a
binary field, the bytes are used unchanged.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from model_registry.package import field_sources
from model_registry.package.dtypes import INTEGER_LIMITS, event_fault
from model_registry.package.signature import InputField, Signature, TensorInput
from scorer.dead_letters.reasons import Poison, Reason
from scorer.decoding.array_fields import element_type
from scorer.decoding.binary_field import BinaryField
from scorer.decoding.integers import is_integral
from scorer.decoding.json import lenient
from scorer.decoding.mixed_tensors import TensorAssembler
from scorer.decoding.record_metadata import ListedMetadata, RecordMetadata
from scorer.decoding.row_schema import FAULTS, RowSchema
from scorer.decoding.tensors import select
from scorer.decoding.types import Decoded, Decoder
from scorer.decoding.unicode_text import explain_not_utf8
from scorer.native.byte_columns import ByteColumn


class KeyHeaderDecoder:
    """Decoder that adds fields from keys, headers, timestamps or whole values to the events of another decoder.

    `signature` must not contain joined fields.
    """

    def __init__(self, decoder: Decoder, signature: Signature) -> None:
        self._decoder = decoder
        self._columns = [_Column(field) for field in field_sources.fields_outside_value(signature)]
        self._assembler = TensorAssembler(signature, lambda field: field.source is not None)

    def decode(self, values: Sequence[bytes | None], parts: RecordMetadata | None = None) -> Decoded:
        """Decode a batch; see `Decoder`."""
        decoded = self._decoder.decode(values, parts)
        metadata = parts or ListedMetadata.empty(len(values))
        fields = {column.name: column.read(values, metadata) for column in self._columns}
        rejected: dict[int, Poison] = {}
        for field_column in fields.values():
            rejected = field_column.rejected | rejected
        rejected = {row: poison for row, poison in rejected.items() if row not in decoded.rejected}
        if rejected:
            decoded = select(decoded, [index for index, row in enumerate(decoded.rows) if row not in rejected])
            decoded.rejected |= rejected
        columns = {
            name: _select_rows(field_column.tensors[name], field_column.rows, decoded.rows)
            for name, field_column in fields.items()
        }
        return self._assembler.add(decoded, columns)


class _Column:
    """Decoder of one field from the record's key, a header, the timestamp or the whole value."""

    def __init__(self, field: InputField) -> None:
        self.name = field.name
        self._field = field
        shape = field.shape if field.varies else None
        self._fields = RowSchema(Signature((TensorInput(field.name, field.dtype, (field,), shape),), ()), None, 0)
        self._raw = BinaryField(field) if field.raw else None
        element = element_type(field.dtype)
        self._numbers = msgspec.json.Decoder(list[element if field.required else element | None]).decode  # type: ignore[misc]

    def read(self, values: Sequence[bytes | None], parts: RecordMetadata) -> Decoded:
        """Decode the field for all records of a batch. The result has one tensor, named after the field.

        The shape of the tensor is (B, n) for a binary field of n numbers, and (B, 1) for a field that is not binary. For a
        binary field of varying length, the tensor is a (B,) object array of arrays.
        """
        source_values = self._read_source(values, parts)
        if (
            self._raw is not None
            and isinstance(source_values, ByteColumn)
            and (view := self._raw.view(source_values)) is not None
        ):
            return self._fields.whole({self.name: view}, None)
        try:
            column = self._parse_all(source_values)
            if self._field.required and None in column:
                raise ValueError
            return self._fields.decoded((value,) for value in column)
        except FAULTS:
            return self._parse_singly(source_values)

    def _read_source(self, values: Sequence[bytes | None], parts: RecordMetadata) -> Sequence[Any]:
        """Return the raw value of the field in each record: bytes, or Unix ms for a timestamp; None if it is absent."""
        match self._field.source:
            case field_sources.VALUE:
                return values
            case field_sources.KEY:
                return parts.keys()
            case field_sources.TIME:
                return [time or None for time in parts.times()]
        return parts.header(str(self._field.source).removeprefix(field_sources.HEADER))

    def _parse_all(self, source_values: Sequence[Any]) -> Sequence[Any]:
        """Parse the raw values of all records in one call. Raises one of the errors in FAULTS if a value is invalid."""
        if self._field.raw or self._field.source == field_sources.TIME:
            return source_values
        if self._field.dtype == "string":
            return [None if value is None else value.decode() for value in source_values]
        text = b",".join([b"null" if value is None else value for value in source_values])
        numbers: list[Any] = self._numbers(b"[" + text + b"]")
        count = len(source_values)
        if len(numbers) != count or text.count(b",") >= max(1, count):  # a text was empty or held several numbers
            raise ValueError
        return numbers

    def _parse_singly(self, source_values: Sequence[Any]) -> Decoded:
        """Parse one raw value at a time, so that each invalid value gets its own reason."""
        return self._fields.decode_each(
            source_values, lambda value: self._fields.checked({self.name: self._parse_value(value)})
        )

    def _parse_value(self, source_value: Any) -> Any:
        """Parse one raw value. Raises Poison if the text is not a value of the field's dtype."""
        if not isinstance(source_value, bytes) or self._field.raw:
            return source_value
        field = self._field
        name = field_sources.qualified_name(self._field)
        try:
            text = source_value.decode()
            value = text if field.dtype == "string" else lenient.loads(text)
        except UnicodeDecodeError as error:
            raise Poison(Reason.NOT_UTF8, f"field {name} {explain_not_utf8(error)}") from None
        except (ValueError, RecursionError):
            value = text
        if field.dtype != "string" and isinstance(value, str | list | dict):
            raise Poison(Reason.WRONG_TYPE, f"field {name}: {text!r:.60} is not a valid {field.dtype}")
        if is_integral(value) and field.dtype in INTEGER_LIMITS and event_fault(value, field.dtype):
            low, high = INTEGER_LIMITS[field.dtype]
            raise Poison(Reason.OUT_OF_RANGE, f"field {name}: {text:.60} is not a valid {field.dtype} ({low} to {high})")
        return value


def _select_rows(tensor: NDArray[Any], rows: Sequence[int], selected: Sequence[int]) -> NDArray[Any]:
    """Select the rows of the tensor that belong to the events `selected`.

    `rows` has the index of the event for each row of the tensor, in ascending order. `selected` has the indices of the events
    to select.
    """
    return tensor if len(rows) == len(selected) else tensor[np.searchsorted(rows, selected)]
