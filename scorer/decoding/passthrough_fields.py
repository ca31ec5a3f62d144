"""Reading of the carried fields (`output.carry`), which are copied from events into their scores.

An event is never rejected because of a carried field.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from model_registry.package.event_tree import WrongStep, look_up
from model_registry.package.json_path import Step
from scorer.decoding import decimals
from scorer.decoding.batch import Headers
from scorer.decoding.record_metadata import RecordMetadata
from scorer.decoding.types import Decoded, Decoder
from scorer.settings.carry import CarriedField, Row

Path = Sequence[Step]


class PathReader(Protocol):
    """Reader of the values at given paths of an event, one value per path."""

    def values(self, event: bytes, headers: Headers = None) -> Sequence[Any]:
        """Return one value for each path. A missing value is None. If the event is invalid, all values are None.

        `headers` may identify the event's schema. An invalid event raises no error.
        """


class PassthroughDecoder:
    """Decoder that adds the carried fields (`output.carry`) to the valid events of another decoder.

    `marks` are substrings of the names of headers that contain schema ids.
    """

    def __init__(
        self, decoder: Decoder, reader: PathReader, fields: Sequence[CarriedField], marks: Sequence[bytes] = ()
    ) -> None:
        self._decoder = decoder
        self._reader = reader
        self._fields = fields
        self._marks = marks

    def decode(self, values: Sequence[bytes | None], parts: RecordMetadata | None = None) -> Decoded:
        """Decode a batch; see `Decoder`."""
        decoded = self._decoder.decode(values, parts)
        events = list(values)
        headers: Sequence[Headers] = [None] * len(events)
        if parts is not None and parts.mention(self._marks):
            headers = parts.listed().every_header
        decoded.carried = [self._row(events[row] or b"", headers[row]) for row in decoded.rows]
        return decoded

    def _row(self, event: bytes, headers: Headers) -> Row:
        values = self._reader.values(event, headers)
        return [
            field.fitted(decimals.variable(value) if isinstance(value, dict) else value)
            for field, value in zip(self._fields, values, strict=True)
        ]


def follow_path(value: Any, path: Path) -> Any:
    """Return the value at a path inside `value`; None if the path does not exist."""
    try:
        return look_up(value, path)
    except WrongStep:
        return None
