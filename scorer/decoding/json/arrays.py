"""Decoding of JSON arrays, alone or in an envelope. An array has one element per field, in the order of the signature.

If the only field of the signature is itself an array, the elements of the JSON array are the elements of that field. An
envelope is an object with the array in the field `features`, and the event id in another field. The scanner of the
native library reads arrays of float32 directly into the tensors. msgspec reads all other events.
"""

from typing import Any

import msgspec

from model_registry.package.signature import Signature
from scorer.dead_letters.reasons import Poison, Reason
from scorer.decoding.json import error_hints
from scorer.decoding.json.msgspec_rows import MsgspecRows, an_object
from scorer.decoding.json.native_rows import NativeRows
from scorer.decoding.row_schema import RowSchema, as_tuple, require_no_paths
from scorer.decoding.tensors import Row
from scorer.decoding.unicode_text import check_text

FEATURES = "features"
ID_TYPES = (str, int, type(None))


class _Elements:
    """The msgspec type of the JSON arrays for one signature, and the conversion of an array to a row."""

    def __init__(self, fields: RowSchema) -> None:
        self._fields = fields
        names = list(fields.by_name)
        only = fields.signature.fields[0] if len(names) == 1 else None
        self.bare = only is not None and only.array is not None and not only.raw
        self.type: Any = (
            fields.types[names[0]] if self.bare else fields.struct_of(names, array_like=True, forbid_unknown_fields=True)
        )

    def row(self, array: Any) -> Row:
        """Return the row of an array that msgspec has decoded."""
        return (array,) if self.bare else as_tuple(array)

    def checked(self, array: Any) -> Row:
        """Return the row of an array that the lenient parser (`lenient.py`) has parsed. Raises Poison if a value is invalid."""
        if not isinstance(array, list):
            error = f"expected a JSON array, got a JSON {type(array).__name__}"
            raise Poison(Reason.WRONG_TYPE, error + error_hints.in_text(array))
        names = list(self._fields.by_name)
        if self.bare:
            return self._fields.checked({names[0]: array})
        if len(array) > len(names):
            raise Poison(Reason.WRONG_TYPE, f"the array has {len(array)} elements, but the signature has {len(names)} fields")
        return self._fields.checked(dict(zip(names, array, strict=False)))


class JsonArrayDecoder(MsgspecRows):
    """Decoder of `[f0, f1, ...]` for one signature. Raises FormatMismatch if a field has a path."""

    def __init__(self, signature: Signature, max_event_bytes: int) -> None:
        fields = RowSchema(require_no_paths(signature, "json-array"), None, max_event_bytes)
        self._elements = _Elements(fields)
        super().__init__(fields, self._elements.type, self._elements.row, self._elements.checked)
        self.scanned = NativeRows.of_arrays(signature)


class JsonEnvelopeDecoder(MsgspecRows):
    """Decoder of `{"id": ..., "features": [f0, f1, ...]}` for one signature.

    `id_field` is the name of the envelope's field with the id; None if events have no id. Raises FormatMismatch if a field of
    the signature has a path.
    """

    def __init__(self, signature: Signature, id_field: str | None, max_event_bytes: int) -> None:
        fields = RowSchema(require_no_paths(signature, "json-envelope"), id_field, max_event_bytes, id_apart=True)
        self._elements = _Elements(fields)
        self._id_field = fields.id_name
        super().__init__(fields, self._envelope_type(self._elements.type), self._row_of, self._checked_row)
        self.scanned = NativeRows.of_envelopes(signature, FEATURES, fields.id_name)

    def _envelope_type(self, features: Any) -> type[msgspec.Struct]:
        """Return the msgspec type of an envelope. The argument is the msgspec type of the envelope's array."""
        ids = [("id", str | int | None, None)] if self._id_field else []
        rename = {"id": self._id_field} if self._id_field else None
        return msgspec.defstruct("Envelope", [*ids, (FEATURES, features)], rename=rename, kw_only=True, gc=False)

    def _row_of(self, event: Any) -> Row:
        row = self._elements.row(event.features)
        return (*row, event.id) if self._id_field else row

    def _checked_row(self, event: Any) -> Row:
        envelope = an_object(event)
        if envelope.get(FEATURES) is None:
            raise Poison(Reason.MISSING_FIELD, f"required field {FEATURES!r} is missing or null")
        row = self._elements.checked(envelope[FEATURES])
        if not self._id_field:
            return row
        id_ = envelope.get(self._id_field)
        if type(id_) not in ID_TYPES:
            raise Poison(Reason.WRONG_TYPE, f"field {self._id_field!r}: an id is a string or an integer, not {id_!r:.100}")
        check_text(repr(self._id_field), id_)
        return (*row, id_)
