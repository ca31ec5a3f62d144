"""Avro and Protobuf to tensors: each event by the schema it was written with, so that schemas may change while events flow.

What the signature names is picked from each by name. Events of one schema are decoded together: those of its fixed layout by
numpy, the others by the format's own reader, with the same results.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import repeat

from model_registry.package.signature import Signature
from scorer.dead_letters.reasons import Poison, Reason
from scorer.decoding.batch import Headers
from scorer.decoding.record_metadata import RecordMetadata
from scorer.decoding.row_schema import FAULTS, RowSchema
from scorer.decoding.schema_formats.schema_id_headers import MARKS, HeaderFrame
from scorer.decoding.schema_formats.schema_lookup import (
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

FEWEST_PREFIX, MOST_PREFIX = 1, 1 << 20
"""Ids in prefixes that registries give. A value without a prefix may begin with five such bytes, but rarely."""


class SchemaDecoder:
    """Decodes events of one signature, each by its own schema, from `schemas` or else the configured source.

    Raises:
        Fatal: the schema file is invalid, or the format's library is missing.
        FormatMismatch: the path of the id contradicts that of a field.
    """

    def __init__(self, signature: Signature, settings: Settings, schemas: SchemaSource | None = None) -> None:
        self._fields = RowSchema(signature, settings.input.id_field, settings.input.max_event_bytes)
        self._id_field = self._fields.id_name
        self._source = schemas or create_schema_source(settings)
        self._readers: dict[Key, EventReader] = {}
        self._last: bytes | None = None
        if settings.input.schema_file:  # what is wrong with it shows at the start
            self._readers[b""] = self._source.reader(b"", self._fields, self._id_field)

    def decode(self, values: Sequence[bytes | None], parts: RecordMetadata | None = None) -> Decoded:
        """Decode a batch; see `Decoder`."""
        if parts is not None and self._source.reads_headers and parts.mention(MARKS):
            return self._sorted(values, parts.listed().every_header)
        if self._last is not None and self._fields.fits(values):
            good: Sequence[bytes] = values  # type: ignore[assignment]  # each of them fits
            if _all_begin(good, self._last):
                return self._group(self._last, good)
        return self._sorted(values, None)

    def _sorted(self, values: Sequence[bytes | None], headers: Sequence[Headers] | None) -> Decoded:
        """Decode the events of each schema together."""
        groups, rejected = self._groups(values, headers)
        if headers is not None:
            rejected |= self._ambiguous(values, groups)
            groups = {key: [row for row in rows if row not in rejected] for key, rows in groups.items()}
        parts = [(rows, self._group(key, [values[row] or b"" for row in rows])) for key, rows in groups.items() if rows]
        if not parts:
            parts = [([], self._fields.decoded([]))]
        if len(parts) > 1 or rejected:
            decoded = merge(parts)
            decoded.rejected |= rejected
            return decoded
        return parts[0][1]

    def _groups(
        self, values: Sequence[bytes | None], headers: Sequence[Headers] | None
    ) -> tuple[dict[Key, list[int]], dict[int, Poison]]:
        """Return the rows by key, each with a reader, and what is wrong with the other rows. Raises LookUpsPending."""
        rows_of: dict[Key, list[int]] = {}
        rejected: dict[int, Poison] = {}
        for row, value in enumerate(values):
            try:
                key = self._source.key(self._fields.sized(value), headers[row] if headers else None)
            except Poison as poison:
                rejected[row] = poison.without_traceback()
            else:
                rows_of.setdefault(key, []).append(row)
        self._source.look_up(key for key in rows_of if key not in self._readers)
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
        """Return the errors of values that can be read by the schema that headers name, and by that of their prefix too.

        Such a header may come from another record, whose headers a program has passed on.
        """
        suspects: dict[int, tuple[Key, Key]] = {}
        for key, rows in groups.items():
            for row in rows if isinstance(key, HeaderFrame) else ():
                with suppress(Poison):
                    if FEWEST_PREFIX <= int.from_bytes((value := values[row] or b"")[:ID_BYTES], "big") < MOST_PREFIX:
                        suspects[row] = key, self._source.key(value)
        self._source.look_up(prefix for _, prefix in suspects.values() if prefix not in self._readers)
        ambiguous: dict[int, Poison] = {}
        for row, (key, prefix) in suspects.items():
            if self._is_read(values[row] or b"", key) and self._is_read(values[row] or b"", prefix):
                number = int.from_bytes(prefix[:ID_BYTES], "big") if isinstance(prefix, bytes) else 0
                named = key.schema_id if isinstance(key, HeaderFrame) else ""
                error = f"headers name {named}, and the value is a whole event behind the prefix of schema {number} too"
                ambiguous[row] = Poison(Reason.UNKNOWN_SCHEMA, error)
        return ambiguous

    def _is_read(self, value: bytes, key: Key) -> bool:
        """Whether the value is a whole record of that schema, whatever fields it has."""
        try:
            self._reader(key).at(())(value, start_of(key))
        except (Poison, *FAULTS):
            return False
        return True

    def _group(self, key: Key, values: Sequence[bytes]) -> Decoded:
        reader, start = self._readers[key], start_of(key)
        view = reader.layout.view(values, start) if reader.layout else None
        if view is None:
            return self._rows(reader, start, values)
        seen = set(view.rows)
        found = self._fields.tensors.finished(view)
        if len(seen) == len(values):
            return found
        others = [row for row in range(len(values)) if row not in seen]
        rest = self._rows(reader, start, [values[row] for row in others])
        return merge([(range(len(values)), found), (others, rest)])

    def _rows(self, reader: EventReader, start: int, values: Sequence[bytes]) -> Decoded:
        try:
            return self._fields.decoded(reader.row(value, start) for value in values)
        except (Poison, *FAULTS):
            return self._fields.singly(values, lambda value: reader.row(value, start))


def _all_begin(values: Sequence[bytes], header: bytes) -> bool:
    if isinstance(values, ByteColumn):
        return values.all_begin(header)
    return all(map(bytes.startswith, values, repeat(header)))


class SchemaIdReader:
    """Reads the configured id field by the schema of each event; `schemas` as above."""

    def __init__(self, settings: Settings, schemas: SchemaSource | None = None) -> None:
        self._fields = RowSchema(Signature((), ()), settings.input.id_field, settings.input.max_event_bytes)
        self._name = self._fields.id_name
        self._source = schemas or create_schema_source(settings)
        self._readers: dict[Key, EventReader] = {}

    def read_id(self, value: bytes | None, headers: Headers = None) -> str | int | None:
        """Return the id, or None if the event has none that can be read."""
        if value is None:
            return None
        try:
            key = self._source.key(value, headers)
            if key not in self._readers:
                self._readers[key] = self._source.reader(key, self._fields, self._name)
            found: str | int | None = self._readers[key].row(value, start_of(key))[0]
        except Poison:
            return None
        return found
