"""JSON arrays, bare or in an envelope with the id: one element a field, in the order of the signature.

Where the signature has one field and that is an array, its numbers are the elements. An envelope is an object whose `features`
are the array; the id is another field of it. The native scanner reads plain arrays of float32, and simdjson floats, straight
into the tensors, where that is certain to say the same as msgspec. Everything else goes through one compiled msgspec decoder,
and singly where an event is bad.
"""

from collections.abc import Sequence
from itertools import repeat
from typing import Any

import msgspec
import numpy as np
import simdjson
from numpy.typing import NDArray

from model_registry.package.signature import Signature
from scorer.decoding.json import error_hints
from scorer.decoding.json.msgspec_rows import JsonRows, an_object, check_utf8
from scorer.decoding.json.native_rows import ScannedRows
from scorer.decoding.json.simdjson_arrays import WIDE, brackets
from scorer.decoding.row_schema import FAULTS, Fields, as_tuple, without_paths
from scorer.decoding.tensors import Columns, Row, all_float, matrix
from scorer.decoding.types import Decoded, Poison, Reason

FEATURES = "features"
ID_TYPES = (str, int, type(None))
TEXT_BYTES = 256 * 1_024  # what fits a core's cache


class _Elements:
    """An array of one signature for msgspec and simdjson, and how it becomes a row. `columns`: None unless all are floats."""

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self.columns = Columns(fields.signature) if all_float(fields.signature) else None
        self._parse = simdjson.Parser().parse
        names = list(fields.by_name)
        only = fields.signature.fields[0] if len(names) == 1 else None
        self.bare = only is not None and only.array is not None and not only.raw
        self.type: Any = (
            fields.types[names[0]] if self.bare else fields.struct_of(names, array_like=True, forbid_unknown_fields=True)
        )

    def row(self, found: Any) -> Row:
        """What msgspec decoded, as a row."""
        return (found,) if self.bare else as_tuple(found)

    def checked(self, found: Any) -> Row:
        """What any JSON parser decoded, as a row. Raises Poison."""
        if not isinstance(found, list):
            named = f"a JSON {type(found).__name__} stands where an array has to be"
            raise Poison(Reason.WRONG_TYPE, named + error_hints.in_text(found))
        names = list(self._fields.by_name)
        if self.bare:
            return self._fields.checked({names[0]: found})
        if len(found) > len(names):
            raise Poison(Reason.WRONG_TYPE, f"{len(found)} elements; the signature has {len(names)} fields")
        return self._fields.checked(dict(zip(names, found, strict=False)))

    def whole(self, values: Sequence[bytes], ids: Sequence[Any] | None) -> Decoded | None:
        """A batch of arrays of floats as one text, or as several: simdjson takes ten times a text's size of memory. None where
        an event is not certain to be a flat array of as many numbers as the signature names."""
        if self.columns is None:
            return None
        count = max(1, len(values) * TEXT_BYTES // max(1, sum(map(len, values))))
        parts = []
        for start in range(0, max(1, len(values)), count):
            part = self._read(values[start : start + count], self.columns.width)
            if part is None:
                return None
            parts.append(part)
        numbers = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return self._fields.whole(self.columns.tensors(numbers), ids)

    def _read(self, values: Sequence[bytes], width: int) -> NDArray[np.float64] | None:
        """(B, width), of one text.

        Each begins with `[`, ends with `]` and has no other bracket; simdjson refuses strings. So no event's numbers can reach
        into its neighbour.
        """
        if not (all(map(bytes.startswith, values, repeat(b"["))) and all(map(bytes.endswith, values, repeat(b"]")))):
            return None
        text = b"[" + b",".join(values) + b"]"
        characters = np.frombuffer(text, np.uint8)
        if any(np.count_nonzero(characters == ord(bracket)) != len(values) + 1 for bracket in "[]"):
            return None
        try:
            rows: Any = self._parse(text)
            if not set(map(len, rows)) <= {width}:
                return None
            return matrix([rows.as_buffer(of_type="d")], len(values) * width, "<f8").reshape(len(values), width)
        except (ValueError, TypeError, RuntimeError, AttributeError):
            return None


class JsonArrayDecoder(JsonRows):
    """Decodes `[f0, f1, ...]` for one signature. Raises Unsuited where a field has a path."""

    def __init__(self, signature: Signature, max_event_bytes: int) -> None:
        fields = Fields(without_paths(signature, "json-array"), None, max_event_bytes)
        self._elements = _Elements(fields)
        super().__init__(fields, self._elements.type, self._elements.row, self._elements.checked)
        self.scanned = ScannedRows.of_arrays(signature)

    def _whole(self, values: Sequence[bytes]) -> Decoded | None:
        return self._elements.whole(values, None)


class JsonEnvelopeDecoder(JsonRows):
    """Decodes `{"id": ..., "features": [f0, f1, ...]}` for one signature. `id_field` names the id beside them, or None.

    Raises Unsuited where a field has a path.
    """

    def __init__(self, signature: Signature, id_field: str | None, max_event_bytes: int) -> None:
        fields = Fields(without_paths(signature, "json-envelope"), id_field, max_event_bytes, id_apart=True)
        self._elements = _Elements(fields)
        self._id_field = fields.id_name
        super().__init__(fields, self._envelope(self._elements.type), self._row_of, self._checked_row)
        self.scanned = ScannedRows.of_envelopes(signature, FEATURES, fields.id_name)
        self._open = msgspec.json.Decoder(self._envelope(msgspec.Raw)).decode
        self._parse = simdjson.Parser().parse

    def _envelope(self, features: Any) -> type[msgspec.Struct]:
        """An envelope for msgspec, with features of this type."""
        ids = [("id", str | int | None, None)] if self._id_field else []
        rename = {"id": self._id_field} if self._id_field else None
        return msgspec.defstruct("Envelope", [*ids, (FEATURES, features)], rename=rename, kw_only=True, gc=False)

    def _whole(self, values: Sequence[bytes]) -> Decoded | None:
        """The batch with its floats read by simdjson, or None where an event is not certain to be read as msgspec does it."""
        columns = self._elements.columns
        if columns is None:
            return None
        if columns.width < WIDE:
            return self._opened(values)
        found = [self._numbers(value, columns.width) for value in values]
        good = [one for one in found if one is not None]
        if len(good) < len(found):
            return None
        numbers = matrix([buffer for _, buffer in good], columns.width, "<f8")
        return self._fields.whole(columns.tensors(numbers), [id_ for id_, _ in good])

    def _opened(self, values: Sequence[bytes]) -> Decoded | None:
        """The arrays taken out of their envelopes, then read as one text."""
        try:
            check_utf8(values)
            envelopes: Sequence[Any] = [self._open(value) for value in values]
        except FAULTS:
            return None
        ids = [one.id for one in envelopes] if self._id_field else None
        return self._elements.whole([bytes(one.features) for one in envelopes], ids)

    def _numbers(self, value: bytes, width: int) -> tuple[Any, Any] | None:
        """The id and the features of one event as a buffer, or None where the other path has to look at it."""
        if not brackets(value, 1):
            return None
        try:
            event: Any = self._parse(value)
            if len(set(event.keys())) != len(event):
                return None
            array, id_ = event[FEATURES], event.get(self._id_field) if self._id_field else None
            if len(array) != width or type(id_) not in ID_TYPES:
                return None
            return id_, array.as_buffer(of_type="d")
        except (ValueError, TypeError, KeyError, RuntimeError, AttributeError):
            return None

    def _row_of(self, event: Any) -> Row:
        row = self._elements.row(event.features)
        return (*row, event.id) if self._id_field else row

    def _checked_row(self, event: Any) -> Row:
        found = an_object(event)
        if found.get(FEATURES) is None:
            raise Poison(Reason.MISSING_FIELD, f"required field {FEATURES!r} is missing or null")
        row = self._elements.checked(found[FEATURES])
        if not self._id_field:
            return row
        id_ = found.get(self._id_field)
        if type(id_) not in ID_TYPES:
            raise Poison(Reason.WRONG_TYPE, f"field {self._id_field!r}: an id is a string or an integer, not {id_!r:.100}")
        return (*row, id_)
