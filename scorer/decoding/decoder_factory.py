"""Factories of the event decoder and the event id reader of the configured input format.

Only the configured format's libraries are imported.
"""

import contextlib
from collections.abc import Iterable, Sequence
from typing import Protocol

from model_registry.package import field_sources, json_path
from model_registry.package.signature import Signature
from scorer.decoding.batch import Headers
from scorer.decoding.key_header_fields import KeyHeaderDecoder
from scorer.decoding.passthrough_fields import PassthroughDecoder, Path, PathReader
from scorer.decoding.table_fields import (
    EventKeyReader,
    IdKeyReader,
    JoinInputDecoder,
    KeyAsIdDecoder,
    KeyReader,
    RecordKeyReader,
    TableFieldsDecoder,
    TableJoin,
)
from scorer.decoding.types import Decoder, FormatMismatch
from scorer.settings import Settings
from scorer.settings.input_formats import INPUT_FORMATS, NAMED_FIELD_FORMATS
from scorer.tables.lookup import TableLookup


class IdReader(Protocol):
    """Reader of the event id from a record's value. The reader also accepts a value that is invalid for the model."""

    def read_id(self, value: bytes | None, headers: Headers = None) -> str | int | None:
        """Return the id; None if the value has no id, or if the id cannot be read. `headers` may identify the schema."""


def create_decoder(settings: Settings, signature: Signature, tables: TableLookup | None = None) -> Decoder:
    """Create the decoder of `input.format` for one signature. The decoder also reads the fields of `output.carry`.

    Args:
        settings: the configuration.
        signature: the model's signature.
        tables: the tables of joined fields; None if this process has no tables.

    Raises:
        FormatMismatch: events in this format cannot contain the fields of the signature, or a joined field has no table.
        Fatal: the format's library or its schema is missing.
    """
    join = create_join(signature, tables)
    if join is None:
        return _create_record_decoder(settings, signature)
    return TableFieldsDecoder(create_join_inputs(settings, signature), join)


def create_join(signature: Signature, tables: TableLookup | None) -> TableJoin | None:
    """Create the join of the events of a signature with the rows of tables; None if the signature has no joined fields.

    Raises FormatMismatch if the signature has joined fields, and this process has no tables.
    """
    for table, fields in field_sources.joined_fields(signature).items():
        if tables is None:
            raise FormatMismatch(f"field {fields[0].name!r} is joined from the table {table}, and this command reads no tables")
    return TableJoin(signature, tables) if tables is not None and field_sources.joined_fields(signature) else None


def create_join_inputs(settings: Settings, signature: Signature) -> JoinInputDecoder:
    """Create the decoder that reads the fields in each record, and the keys for the join with tables.

    An event's row in a table is found by its key. The decoder returns this key for each table, but does not read the tables.

    Raises:
        FormatMismatch: events in this format cannot contain a field of the signature or the key of a table. Also raised if a
            joined field names a table that is not configured.
        Fatal: the format's library or its schema is missing.
    """
    paths: dict[str, str | None] = {}
    for table, fields in field_sources.joined_fields(signature).items():
        if table not in settings.tables:
            raise FormatMismatch(
                f"field {fields[0].name!r} is joined from the table {table}, which the configuration lacks; add tables.{table}"
            )
        paths[table] = settings.tables[table].key
        _check_key(settings, table)
    decoder = _create_record_decoder(settings, signature)
    id_path = settings.input.id_field
    is_key_as_id = False
    if id_path is None and (keyed := _create_keyed_decoder(settings, signature, paths.values())):
        id_path, keyed_decoder = keyed
        decoder = KeyAsIdDecoder(keyed_decoder, decoder)
        is_key_as_id = True
    readers = {path: _create_key_reader(settings, signature, path, id_path) for path in dict.fromkeys(paths.values())}
    return JoinInputDecoder(decoder, {table: readers[path] for table, path in paths.items()}, has_ids=not is_key_as_id)


def _check_key(settings: Settings, table: str) -> None:
    """Raise FormatMismatch if the key of a table is a field of the event, but the input format has no named fields."""
    path = settings.tables[table].key
    if path is not None and settings.input.format not in NAMED_FIELD_FORMATS:
        raise FormatMismatch(
            f"tables.{table}.key is the path {path} of events, and input.format {settings.input.format} has no named fields; "
            "leave the key out to use the key of the record"
        )


def _create_keyed_decoder(settings: Settings, signature: Signature, paths: Iterable[str | None]) -> tuple[str, Decoder] | None:
    """Create a record decoder that returns the key at one of `paths` as the event's id. The first possible path is used.

    Returns:
        (path, decoder); None if no path is possible. A path is possible if it is not None, is not the path of a field and does
        not conflict with the path of a field.
    """
    for path in paths:
        if path is not None and not _is_field(signature, path):
            with contextlib.suppress(FormatMismatch):  # the path conflicts with the path of a field
                return path, _create_record_decoder(_with_id(settings, path), signature)
    return None


def _create_key_reader(settings: Settings, signature: Signature, path: str | None, id_path: str | None) -> KeyReader:
    """Create the reader of the keys with which the rows of a table are looked up.

    Events contain the keys at `path`. If `path` is None, the keys of the records are used.

    `id_path` is the path of the ids that the record decoder reads; None if that decoder reads no ids.
    """
    if path is None:
        return RecordKeyReader()
    if id_path and json_path.parse_object_path(id_path) == json_path.parse_object_path(path) and not _is_field(signature, path):
        return IdKeyReader()
    return EventKeyReader(_create_format_decoder(_with_id(settings, path), Signature((), ())))


def _is_field(signature: Signature, path: str) -> bool:
    """Return whether the signature has a field at this path of the event.

    An event id that is read at such a path has the dtype of the field.
    """
    steps = json_path.parse_object_path(path)
    return any(field.steps == steps for field in field_sources.only_value_fields(signature).fields)


def _with_id(settings: Settings, path: str) -> Settings:
    return settings.model_copy(update={"input": settings.input.model_copy(update={"id": path})})


def _create_record_decoder(settings: Settings, signature: Signature) -> Decoder:
    """Create the decoder of all fields except those joined from tables. It also reads the fields of `output.carry`."""
    value_signature = field_sources.only_value_fields(signature)
    _check_parsed(settings, signature)
    decoder = _create_format_decoder(settings, value_signature)
    record_signature = field_sources.only_record_fields(signature)
    if field_sources.fields_outside_value(signature):
        decoder = KeyHeaderDecoder(decoder, record_signature)
    if not settings.output.carry:
        return decoder
    carry = settings.output.carry
    return PassthroughDecoder(
        decoder, create_path_reader(settings, [field.path for field in carry]), carry, _select_header_marks(settings)
    )


def _select_header_marks(settings: Settings) -> Sequence[bytes]:
    """Return the substrings by which schema headers are recognised (MARKS); an empty sequence for a format without schemas."""
    if not INPUT_FORMATS[settings.input.format].has_schema:
        return ()
    from scorer.decoding.schema_formats.schema_id_headers import MARKS

    return MARKS


def _check_parsed(settings: Settings, signature: Signature) -> None:
    """Raise FormatMismatch if a binary field is the whole value of a record, but the input format parses values.

    The decoder would then reject every event.
    """
    whole_value = next(
        (
            f
            for f in field_sources.fields_outside_value(signature)
            if f.source == field_sources.VALUE and f.raw and f.dtype != "string"
        ),
        None,
    )
    if whole_value and not INPUT_FORMATS[settings.input.format].is_binary:
        field = f"field {whole_value.name!r} is the whole value, as bytes of {whole_value.dtype}"
        raise FormatMismatch(f"{field}, and input.format {settings.input.format} parses values; use bytes")


def _create_format_decoder(settings: Settings, signature: Signature) -> Decoder:
    id_field = settings.input.id_field
    largest = settings.input.max_event_bytes
    if not signature.fields and INPUT_FORMATS[settings.input.format].fields == "positional":
        raise FormatMismatch(f"no field is inside the value, and input.format {settings.input.format} reads fields; use bytes")
    match settings.input.format:
        case "json":
            from scorer.decoding.json.decoder import JsonDecoder

            return JsonDecoder(signature, id_field, largest)
        case "json-array":
            from scorer.decoding.json.arrays import JsonArrayDecoder

            return JsonArrayDecoder(signature, largest)
        case "json-envelope":
            from scorer.decoding.json.arrays import JsonEnvelopeDecoder

            return JsonEnvelopeDecoder(signature, id_field, largest)
        case "float32":
            from scorer.decoding.float32 import Float32Decoder

            return Float32Decoder(signature, largest)
        case "bytes":
            from scorer.decoding.raw_bytes_format import BytesDecoder

            return BytesDecoder(signature, largest)
        case _:
            from scorer.decoding.schema_formats.decoder import SchemaDecoder

            return SchemaDecoder(signature, settings)


def create_path_reader(settings: Settings, paths: Sequence[Path]) -> PathReader:
    """Create the reader of the values at `paths` in events of `input.format`, which must be a format with named fields.

    Raises Fatal if the format's library or its schema is missing.
    """
    if settings.input.format == "json":
        from scorer.decoding.json.passthrough import JsonPassthrough

        return JsonPassthrough(paths)
    from scorer.decoding.schema_formats.passthrough import SchemaPassthrough

    return SchemaPassthrough(settings, paths)


def create_id_reader(settings: Settings) -> IdReader:
    """Create the reader of the event's id field (`input.id`) for the configured format."""
    from scorer.decoding.json.decoder import JsonIdReader

    if INPUT_FORMATS[settings.input.format].has_schema and settings.input.id_field:
        from scorer.decoding.schema_formats.decoder import SchemaIdReader

        return SchemaIdReader(settings)
    return JsonIdReader(settings.input.id_field)
