"""Avro and Protobuf to tensors: each event by the schema it was written with, so that schemas may change while events flow.

What the signature names is picked from each by name. Events of one schema are decoded together: those of its fixed layout by
numpy, the others by the format's own reader, with the same results.
"""

from collections.abc import Sequence
from itertools import repeat

from model_registry.package.signature import Signature
from scorer.events.decoder import Decoded, Poison
from scorer.events.fields import FAULTS, Fields
from scorer.events.native.texts import Texts
from scorer.events.record_parts import Parts
from scorer.events.schemas.sources import Reader, Source, source
from scorer.events.tensors import merge
from scorer.settings import Settings


class SchemaDecoder:
    """Decodes for one signature; `schemas` is where readers come from, without it the configured source.

    Raises Fatal where a schema file is none, or the format's library is missing; Unsuited where the id cannot stand beside the
    fields.
    """

    def __init__(self, signature: Signature, settings: Settings, schemas: Source | None = None) -> None:
        self._fields = Fields(signature, settings.input.id_field, settings.input.max_event_bytes)
        self._id_field = self._fields.id_name
        self._source = schemas or source(settings)
        self._readers: dict[bytes, Reader] = {}
        self._last: bytes | None = None
        if settings.input.schema_file:  # what is wrong with it shows at the start
            self._readers[b""] = self._source.reader(b"", self._fields, self._id_field)

    def decode(self, values: Sequence[bytes | None], _: Parts | None = None) -> Decoded:
        """Decode a batch; see `Decoder`. Raises Fatal where the schema registry does not answer."""
        if self._last is not None and self._fields.fits(values):
            good: Sequence[bytes] = values  # type: ignore[assignment]  # each of them fits
            if _all_begin(good, self._last):
                return self._group(self._last, good)
        return self._sorted(values)

    def _sorted(self, values: Sequence[bytes | None]) -> Decoded:
        """Events of each schema together."""
        groups: dict[bytes, list[int]] = {}
        rejected: dict[int, Poison] = {}
        for row, value in enumerate(values):
            try:
                header = self._source.header(self._fields.sized(value))
                if header not in self._readers:
                    self._readers[header] = self._source.reader(header, self._fields, self._id_field)
            except Poison as poison:
                rejected[row] = poison.kept()
            else:
                groups.setdefault(header, []).append(row)
                self._last = header
        parts = [(rows, self._group(header, [values[row] or b"" for row in rows])) for header, rows in groups.items()]
        if not parts:
            parts = [([], self._fields.decoded([]))]
        if len(parts) > 1 or rejected:
            decoded = merge(parts)
            decoded.rejected |= rejected
            return decoded
        return parts[0][1]

    def _group(self, header: bytes, values: Sequence[bytes]) -> Decoded:
        reader, start = self._readers[header], len(header)
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

    def _rows(self, reader: Reader, start: int, values: Sequence[bytes]) -> Decoded:
        try:
            return self._fields.decoded(reader.row(value, start) for value in values)
        except (Poison, *FAULTS):
            return self._fields.singly(values, lambda value: reader.row(value, start))


def _all_begin(values: Sequence[bytes], header: bytes) -> bool:
    if isinstance(values, Texts):
        return values.all_begin(header)
    return all(map(bytes.startswith, values, repeat(header)))


class SchemaIdField:
    """Reads the configured id field by the schema of each event; `schemas` as above."""

    def __init__(self, settings: Settings, schemas: Source | None = None) -> None:
        self._fields = Fields(Signature((), ()), settings.input.id_field, settings.input.max_event_bytes)
        self._name = self._fields.id_name
        self._source = schemas or source(settings)
        self._readers: dict[bytes, Reader] = {}

    def of(self, value: bytes | None) -> str | int | None:
        """The id, or None where the event has none that can be read."""
        if value is None:
            return None
        try:
            header = self._source.header(value)
            if header not in self._readers:
                self._readers[header] = self._source.reader(header, self._fields, self._name)
            found: str | int | None = self._readers[header].row(value, len(header))[0]
        except Poison:
            return None
        return found
