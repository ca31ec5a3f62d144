"""Values that are not parsed (`input.format: bytes`): every field comes from the whole value, or from elsewhere."""

from collections.abc import Sequence

from model_registry.package.signature import Signature
from scorer.decoding.record_metadata import RecordMetadata
from scorer.decoding.row_schema import RowSchema
from scorer.decoding.types import Decoded, FormatMismatch


class BytesDecoder:
    """Decodes nothing, and says which values are absent or too large. `signature` is of what stands in the values: nothing.

    Raises FormatMismatch where there is a field in it.
    """

    def __init__(self, signature: Signature, max_event_bytes: int) -> None:
        if signature.fields:
            told = f"field {signature.fields[0].name!r} stands in it"
            raise FormatMismatch(
                f'input.format bytes parses no value, and {told}; say where it comes from ("from"), or use json'
            )
        self._fields = RowSchema(signature, None, max_event_bytes)

    def decode(self, values: Sequence[bytes | None], _: RecordMetadata | None = None) -> Decoded:
        rejected = self._fields.unfit(values)
        rows = [row for row in range(len(values)) if row not in rejected]
        return Decoded(rows, [None] * len(rows), {}, rejected)
