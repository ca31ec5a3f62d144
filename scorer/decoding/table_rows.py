"""Decoding of the rows of a table to the joined fields of a signature.

A row is decoded like an event, with the decoder of the table's format. If a row has no value for a required field, the row is
not rejected. The events that are joined with this row are rejected later, by the join.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from model_registry.package import field_sources
from model_registry.package.signature import InputField, Signature, TensorInput
from publisher.kafka.clients import LARGEST_MESSAGE
from scorer.dead_letters.reasons import Reason
from scorer.decoding.types import Decoded, Decoder
from scorer.settings import Settings
from scorer.settings.input import InputSettings
from scorer.tables.row_blocks import BlockLayout, CreateRowDecoder, DecodedRows


class TableRowDecoder:
    """Decoder of the rows of one table to the fields of one layout; see `RowDecoder`.

    Args:
        table: the name of the table.
        layout: the fields to decode.
        settings: the settings of the scorer.

    Raises:
        FormatMismatch: the paths of two fields conflict, or rows in this format cannot contain the fields.
        Fatal: the library of the format is missing.
    """

    def __init__(self, table: str, layout: BlockLayout, settings: Settings) -> None:
        self._layout = layout
        self._format = _row_settings(table, settings)
        columns = _columns(layout.fields)
        blocks = [[columns[field.name] for field in block] for block in layout.blocks]
        self._whole = self._create(blocks)
        self._relaxed = self._create([[_optional(field) for field in block] for block in blocks])
        self._required = [self._create([[columns[name]]]) for name in layout.required]

    def decode(self, values: Sequence[bytes | None]) -> DecodedRows:
        """Decode rows; see `RowDecoder`."""
        count = len(values)
        decoded = self._whole.decode(values)
        missing = np.zeros((count, len(self._required)), np.bool_)
        if not decoded.rejected:
            blocks = [decoded.tensors[str(index)] for index in range(len(self._layout.blocks))]
            return DecodedRows(np.ones(count, np.bool_), blocks, missing, {})
        found = np.zeros(count, np.bool_)
        blocks = self._layout.defaults(count)
        self._insert(decoded, decoded.rows, blocks)
        found[decoded.rows] = True
        others = sorted(decoded.rejected)
        rejected = dict(decoded.rejected)
        if self._required:
            relaxed = self._relaxed.decode([values[row] for row in others])
            rows = [others[row] for row in relaxed.rows]
            self._insert(relaxed, rows, blocks)
            found[rows] = True
            for column, decoder in enumerate(self._required):
                absent = decoder.decode([values[row] for row in rows]).rejected
                missing[[rows[row] for row, error in absent.items() if error.reason == Reason.MISSING_FIELD], column] = True
            rejected = {others[row]: error for row, error in relaxed.rejected.items()}
        missing[~found] = True
        return DecodedRows(found, blocks, missing, rejected)

    def _insert(self, decoded: Decoded, rows: Sequence[int], blocks: list[np.ndarray]) -> None:
        for index, block in enumerate(blocks):
            block[list(rows)] = decoded.tensors[str(index)]

    def _create(self, blocks: Sequence[Sequence[InputField]]) -> Decoder:
        """Create a decoder that returns one tensor per block. The name of a tensor is the index of its block, such as "0"."""
        tensors = [
            TensorInput(str(index), fields[0].dtype, tuple(fields), fields[0].shape if fields[0].varies else None)
            for index, fields in enumerate(blocks)
        ]
        signature = Signature(tuple(tensors), ())
        if self._format.input.format == "json":
            from scorer.decoding.json.decoder import JsonDecoder

            return JsonDecoder(signature, None, LARGEST_MESSAGE)
        from scorer.decoding.schema_formats.decoder import SchemaDecoder

        return SchemaDecoder(signature, self._format)


def row_decoder_factory(table: str, settings: Settings) -> CreateRowDecoder:
    """Return the function that creates the decoders of the rows of a table."""
    return lambda layout: TableRowDecoder(table, layout, settings)


def _row_settings(table: str, settings: Settings) -> Settings:
    """Return the settings for the decoder of the rows: their input is the topic of the table."""
    chosen = settings.tables[table]
    rows = InputSettings(topics=[chosen.topic], format=chosen.format, max_event_bytes=LARGEST_MESSAGE)
    return settings.model_copy(update={"input": rows})


def _columns(fields: Sequence[InputField]) -> dict[str, InputField]:
    """Convert joined fields to fields that are read from a row. The keys of the result are the names in the signature.

    A field at the top level of the row gets the name of its column and no path, so that the native scanner can read it. Other
    fields get a path and, if their name is in use, a prefix that makes it unique.
    """
    steps = {field.name: field_sources.column_steps(field) for field in fields}
    names = {str(path[0]) for path in steps.values() if len(path) == 1}
    unused = set(names)
    columns = {}
    for field in fields:
        path = steps[field.name]
        name = str(path[0])
        if len(path) == 1 and name in unused:
            columns[field.name] = replace(field, name=name, path=None, source=None)
            unused.remove(name)
            continue
        name = field.name
        while name in names:
            name = f"{field_sources.table_of(field)}.{name}"
        names.add(name)
        columns[field.name] = replace(field, name=name, path=path, source=None)
    return columns


def _optional(field: InputField) -> InputField:
    """Return the field as an optional field. The default of a required field is then a placeholder without meaning."""
    if not field.required:
        return field
    placeholder = "" if field.dtype == "string" else 0
    return replace(field, required=False, default=None if field.varies else placeholder)
