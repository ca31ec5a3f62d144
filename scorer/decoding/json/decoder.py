"""Decoding of JSON objects to tensors.

The scanner of the native library reads objects of float32 numbers directly into the tensors. msgspec reads all other events.
"""

import msgspec

from model_registry.package.signature import Signature
from scorer.dead_letters.reasons import Poison
from scorer.decoding.batch import Headers
from scorer.decoding.json.msgspec_rows import MsgspecRows, an_object
from scorer.decoding.json.native_rows import MIN_EVENTS, NativeRows
from scorer.decoding.json.schema_id_prefix import without_prefix
from scorer.decoding.row_schema import RowSchema


class JsonDecoder(MsgspecRows):
    """Decoder of JSON objects for one signature.

    Args:
        signature: the model's signature.
        id_field: the path of the event field with the id; None if events have no id.
        max_event_bytes: the maximum size of an event.
        min_events: the minimum number of events in a batch that the native scanner reads; None disables the scanner. A batch
            whose values are in one buffer (a ByteColumn) is scanned at any size. The scanner does not change the results.
    """

    def __init__(
        self, signature: Signature, id_field: str | None, max_event_bytes: int, *, min_events: int | None = MIN_EVENTS
    ) -> None:
        fields = RowSchema(signature, id_field, max_event_bytes)
        super().__init__(fields, fields.struct, fields.row, lambda event: fields.checked(an_object(event)))
        if min_events is not None and not fields.nested:
            self.scanned = NativeRows.of_objects(signature, fields.id_name)
            self.min_events = min_events


class JsonIdReader:
    """Reader of the id at the configured path of a JSON object. The object may be invalid for the model.

    If no path is configured, no event has an id.
    """

    def __init__(self, path: str | None) -> None:
        fields = RowSchema(Signature((), ()), path, 0)
        self._decode = msgspec.json.Decoder(fields.struct).decode
        self._row = fields.row
        self._read = MsgspecRows(fields, fields.struct, fields.row, lambda event: fields.checked(an_object(event))).row
        self._named = path is not None

    def read_id(self, value: bytes | None, headers: Headers = None) -> str | int | None:  # noqa: ARG002 - JSON needs no schema
        """Return the id; None if the value has no id, or if the id cannot be read."""
        if not self._named or value is None:
            return None
        try:
            id_: str | int | None = self._row(self._decode(without_prefix(value)))[0]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self._read_leniently(value)
        return id_

    def _read_leniently(self, value: bytes) -> str | int | None:
        """Return the id of an event that msgspec rejects; None if the lenient parser (`lenient.py`) cannot read the id."""
        try:
            id_: str | int | None = self._read(value)[0]
        except Poison:
            return None
        return id_
