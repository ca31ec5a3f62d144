"""Decoding of values that are not parsed (`input.format: bytes`).

Each field of the model is the whole value of a record, or comes from the record's key, headers or timestamp.
"""

from collections.abc import Sequence

from model_registry.package.signature import Signature
from scorer.decoding.record_metadata import RecordMetadata
from scorer.decoding.row_schema import RowSchema
from scorer.decoding.types import Decoded, FormatMismatch


class BytesDecoder:
    """Decoder that reads no fields from the value, and rejects records whose value is null or too large.

    Raises:
        FormatMismatch: a field of `signature` is inside the value.
    """

    def __init__(self, signature: Signature, max_event_bytes: int) -> None:
        if signature.fields:
            name = signature.fields[0].name
            raise FormatMismatch(
                f'input.format bytes parses no value, and field {name!r} is inside the value; state its source ("from"), '
                "or use json"
            )
        self._fields = RowSchema(signature, None, max_event_bytes)

    def decode(self, values: Sequence[bytes | None], _: RecordMetadata | None = None) -> Decoded:
        rejected = self._fields.unfit(values)
        rows = [row for row in range(len(values)) if row not in rejected]
        return Decoded(rows, [None] * len(rows), {}, rejected)
