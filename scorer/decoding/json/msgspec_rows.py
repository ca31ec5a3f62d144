"""Base of the JSON decoders.

A compiled msgspec decoder reads all events of a batch. If msgspec rejects one event, the decoder reads each event of the batch
separately.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from scorer.dead_letters.reasons import NotFinite, Poison, Reason
from scorer.decoding.json import error_hints, lenient
from scorer.decoding.json.native_rows import MIN_EVENTS, NativeRows
from scorer.decoding.json.schema_id_prefix import without_prefix, without_prefixes
from scorer.decoding.record_metadata import RecordMetadata
from scorer.decoding.row_schema import FAULTS, RowSchema
from scorer.decoding.tensors import Row
from scorer.decoding.types import Decoded
from scorer.decoding.unicode_text import explain_not_utf8
from scorer.native.byte_columns import ByteColumn


class MsgspecRows:
    """Decoder of one JSON format, and base of the decoders of objects, arrays and envelopes.

    A subclass may set the attribute `scanned` to a decoder that uses the native scanner. This decoder then reads batches of at
    least `min_events` events, and smaller batches whose values are in one buffer (a ByteColumn). msgspec reads all other
    batches.
    """

    scanned: NativeRows | None = None
    min_events = MIN_EVENTS

    def __init__(self, fields: RowSchema, type_: Any, row: Callable[[Any], Row], checked: Callable[[Any], Row]) -> None:
        """Create a decoder.

        Args:
            fields: the fields of the signature.
            type_: the msgspec type of an event.
            row: a function that returns the row of an event which msgspec has decoded to `type_`.
            checked: a function that returns the row of an event which the lenient parser (`lenient.py`) has parsed. It raises
                Poison if a value is invalid.
        """
        self._fields = fields
        self._decode = msgspec.json.Decoder(type_).decode
        self._row = row
        self._checked = checked

    def decode(self, values: Sequence[bytes | None], _: RecordMetadata | None = None) -> Decoded:
        """Decode a batch; see `Decoder`."""
        if self._fields.fits(values):
            present: Sequence[bytes] = values  # type: ignore[assignment]  # each of them fits
            events = without_prefixes(present)
            return self._scan(present, events) or self._decode_by_msgspec(present, events)
        return self._decode_singly(values)

    def _scan(self, values: Sequence[bytes], events: Sequence[bytes]) -> Decoded | None:
        """Decode a batch with the native scanner. msgspec decodes the events that the scanner reports as uncertain.

        Args:
            values: the values of the records.
            events: the JSON of the values, without a schema id prefix.

        Returns:
            The decoded batch; None if msgspec must decode the whole batch.
        """
        if self.scanned is None or (len(events) < self.min_events and not isinstance(events, ByteColumn)):
            return None

        def decode_rows(rows: Sequence[int]) -> Decoded:
            return self._decode_by_msgspec([values[row] for row in rows], [events[row] for row in rows])

        return self.scanned.decoded(events, decode_rows)

    def _decode_by_msgspec(self, values: Sequence[bytes], events: Sequence[bytes]) -> Decoded:
        """Decode a batch with the compiled msgspec decoder. If an event is invalid, decode the batch one value at a time."""
        try:
            check_utf8(events)
            return self._fields.decoded(map(self._row, map(self._decode, events)))
        except FAULTS:
            return self._decode_singly(values)

    def _decode_singly(self, values: Sequence[bytes | None]) -> Decoded:
        """Decode one event at a time. If an event has NaN or an infinity, append the remedy to its error."""
        decoded = self._fields.decode_singly(values, self.row)
        for row, poison in decoded.rejected.items():
            if isinstance(poison, NotFinite):
                decoded.rejected[row] = NotFinite(poison.reason, f"{poison}; {error_hints.NO_NAN}")
        return decoded

    def row(self, value: bytes) -> Row:
        """Read one event with msgspec, or with the parser of `lenient.py` if msgspec rejects the event. Raises Poison.

        An event that the lenient parser has read is then checked with `checked`, which rejects invalid values of the fields
        that the model reads.
        """
        original = value
        value = without_prefix(value)
        try:
            value.decode("utf-8")
        except UnicodeDecodeError as error:
            hint = error_hints.binary(original)
            raise Poison(Reason.NOT_UTF8, f"{error}{hint}" if hint else f"the value {explain_not_utf8(error)}") from None
        try:
            return self._row(self._decode(value))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pass
        try:
            event = lenient.loads(value)
        except (ValueError, RecursionError) as error:
            raise Poison(Reason.MALFORMED, f"not JSON: {error}{error_hints.text(original, error)}") from None
        return self._checked(event)


def check_utf8(values: Sequence[bytes]) -> None:
    """Check that all values of a batch are valid UTF-8. Raises UnicodeDecodeError.

    This check is needed because msgspec does not check strings in fields that the model does not read.
    """
    text = b"\n".join(values)
    if not text.isascii():
        text.decode("utf-8")


def an_object(event: Any) -> dict[str, Any]:
    """Return the event if it is a JSON object. Raises Poison otherwise."""
    if not isinstance(event, dict):
        error = f"the event is a JSON {type(event).__name__}, not an object"
        raise Poison(Reason.WRONG_TYPE, error + error_hints.in_text(event))
    return event
