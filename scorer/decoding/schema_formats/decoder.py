"""Decoding of Avro and Protobuf events to tensors, each event with its writer's schema. Schemas may change at any time.

The fields of the signature are read by their names. All events of one schema are decoded together. numpy decodes the events
that match the schema's fixed layout. The format's own reader decodes the remaining events, with the same results.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import repeat

from model_registry.package.signature import Signature
from scorer.dead_letters.reasons import Poison, Reason
from scorer.decoding.batch import Headers
from scorer.decoding.record_metadata import RecordMetadata
from scorer.decoding.row_schema import FAULTS, RowSchema
from scorer.decoding.schema_formats.schema_id_headers import MARKS, HeaderFrame
from scorer.decoding.schema_formats.schema_source import (
    ID_BYTES,
    EventReader,
    Key,
    SchemaSource,
    create_schema_source,
    start_of,
)
from scorer.decoding.tensors import merge
from scorer.decoding.types import Decoded
from scorer.native.byte_columns import ByteColumn
from scorer.settings import Settings

ASSIGNED_IDS = range(1, 1 << 20)
"""The schema ids that registries usually assign.

A value without a prefix rarely begins with a zero byte and such an id.
"""


class SchemaDecoder:
    """Decoder of Avro or Protobuf events for one signature. Each event is decoded with its writer's schema.

    `schemas` is the source of the schemas; None to use the configured source.

    Raises:
        Fatal: the schema file is invalid, or the format's library is missing.
        FormatMismatch: the path of the id conflicts with the path of a field.
    """

    def __init__(self, signature: Signature, settings: Settings, schemas: SchemaSource | None = None) -> None:
        self._fields = RowSchema(signature, settings.input.id_field, settings.input.max_event_bytes)
        self._id_field = self._fields.id_name
        self._source = schemas or create_schema_source(settings)
        self._readers: dict[Key, EventReader] = {}
        self._last: bytes | None = None
        if settings.input.schema_file:  # report an invalid file at the start
            self._readers[b""] = self._source.reader(b"", self._fields, self._id_field)

    def decode(self, values: Sequence[bytes | None], parts: RecordMetadata | None = None) -> Decoded:
        """Decode a batch; see `Decoder`."""
        if parts is not None and self._source.reads_headers and parts.mention(MARKS):
            return self._decode_by_schema(values, parts.listed().every_header)
        if self._last is not None and self._fields.fits(values):
            present: Sequence[bytes] = values  # type: ignore[assignment]  # each of them fits
            if _all_begin(present, self._last):
                return self._decode_group(self._last, present)
        return self._decode_by_schema(values, None)

    def _decode_by_schema(self, values: Sequence[bytes | None], headers: Sequence[Headers] | None) -> Decoded:
        """Group the events of a batch by their schema, decode each group, and merge the results in the order of the batch."""
        groups, rejected = self._group_by_key(values, headers)
        if headers is not None:
            rejected |= self._ambiguous(values, groups)
            groups = {key: [row for row in rows if row not in rejected] for key, rows in groups.items()}
        parts = [(rows, self._decode_group(key, [values[row] or b"" for row in rows])) for key, rows in groups.items() if rows]
        if not parts:
            parts = [([], self._fields.decoded([]))]
        if len(parts) > 1 or rejected:
            decoded = merge(parts)
            decoded.rejected |= rejected
            return decoded
        return parts[0][1]

    def _group_by_key(
        self, values: Sequence[bytes | None], headers: Sequence[Headers] | None
    ) -> tuple[dict[Key, list[int]], dict[int, Poison]]:
        """Group the indices of the events by their schema key.

        Returns:
            (groups, rejected): the indices of the events by schema key, and the error (Poison) for each event whose schema
            cannot be determined or read, by the index of the event.

        Raises:
            LookUpsPending: look-ups of schemas are still running.
        """
        rows_of: dict[Key, list[int]] = {}
        rejected: dict[int, Poison] = {}
        for row, value in enumerate(values):
            try:
                key = self._source.key(self._fields.sized(value), headers[row] if headers else None)
            except Poison as poison:
                rejected[row] = poison.without_traceback()
            else:
                rows_of.setdefault(key, []).append(row)
        self._source.look_up({key: len(rows) for key, rows in rows_of.items() if key not in self._readers})
        groups: dict[Key, list[int]] = {}
        for key, rows in rows_of.items():
            try:
                self._reader(key)
            except Poison as poison:
                rejected |= dict.fromkeys(rows, poison.without_traceback())
            else:
                groups[key] = rows
                self._last = key if isinstance(key, bytes) else self._last
        return groups, rejected

    def _reader(self, key: Key) -> EventReader:
        if key not in self._readers:
            self._readers[key] = self._source.reader(key, self._fields, self._id_field)
        return self._readers[key]

    def _ambiguous(self, values: Sequence[bytes | None], groups: Mapping[Key, Sequence[int]]) -> dict[int, Poison]:
        """Return an error (Poison), by index, for each event that matches two schemas.

        The headers of such an event name one schema, and its value begins with the prefix of another schema. The value is a
        complete event in both schemas. It is unknown which one is right, because headers may be copied from another record.
        """
        suspects: dict[int, tuple[Key, Key]] = {}
        for key, rows in groups.items():
            for row in rows if isinstance(key, HeaderFrame) else ():
                with suppress(Poison):
                    if int.from_bytes((value := values[row] or b"")[:ID_BYTES], "big") in ASSIGNED_IDS:
                        suspects[row] = key, self._source.key(value)
        self._source.look_up(Counter(prefix for _, prefix in suspects.values() if prefix not in self._readers))
        ambiguous: dict[int, Poison] = {}
        for row, (key, prefix) in suspects.items():
            if self._matches(values[row] or b"", key) and self._matches(values[row] or b"", prefix):
                number = int.from_bytes(prefix[:ID_BYTES], "big") if isinstance(prefix, bytes) else 0
                named = key.schema_id if isinstance(key, HeaderFrame) else ""
                error = f"headers name {named}, but the value is also a complete event with the prefix of schema {number}"
                ambiguous[row] = Poison(Reason.UNKNOWN_SCHEMA, error)
        return ambiguous

    def _matches(self, value: bytes, key: Key) -> bool:
        """Return whether the value is a complete record of the schema with this key.

        The record may lack fields of the signature.
        """
        try:
            self._reader(key).path_reader(())(value, start_of(key))
        except (Poison, *FAULTS):
            return False
        return True

    def _decode_group(self, key: Key, values: Sequence[bytes]) -> Decoded:
        reader = self._readers[key]
        start = start_of(key)
        view = reader.layout.view(values, start) if reader.layout else None
        if view is None:
            return self._decode_rows(reader, start, values)
        in_layout = set(view.rows)
        decoded = self._fields.tensors.finished(view)
        if len(in_layout) == len(values):
            return decoded
        others = [row for row in range(len(values)) if row not in in_layout]
        rest = self._decode_rows(reader, start, [values[row] for row in others])
        return merge([(range(len(values)), decoded), (others, rest)])

    def _decode_rows(self, reader: EventReader, start: int, values: Sequence[bytes]) -> Decoded:
        try:
            return self._fields.decoded(reader.row(value, start) for value in values)
        except (Poison, *FAULTS):
            return self._fields.decode_singly(values, lambda value: reader.row(value, start))


def _all_begin(values: Sequence[bytes], header: bytes) -> bool:
    if isinstance(values, ByteColumn):
        return values.all_begin(header)
    return all(map(bytes.startswith, values, repeat(header)))


class SchemaIdReader:
    """Reader of the configured id field of Avro or Protobuf events. Each event is read with its writer's schema.

    `schemas` is the source of the schemas; None to use the configured source.
    """

    def __init__(self, settings: Settings, schemas: SchemaSource | None = None) -> None:
        self._fields = RowSchema(Signature((), ()), settings.input.id_field, settings.input.max_event_bytes)
        self._name = self._fields.id_name
        self._source = schemas or create_schema_source(settings)
        self._readers: dict[Key, EventReader] = {}

    def read_id(self, value: bytes | None, headers: Headers = None) -> str | int | None:
        """Return the id; None if the event has no id, or if the id cannot be read."""
        if value is None:
            return None
        try:
            key = self._source.key(value, headers)
            if key not in self._readers:
                self._readers[key] = self._source.reader(key, self._fields, self._name)
            id_: str | int | None = self._readers[key].row(value, start_of(key))[0]
        except Poison:
            return None
        return id_
