"""Decoding of joined fields. The values of an event's joined fields come from a row of a table.

The decoding has two steps. A `JoinInputDecoder` reads the fields in each record, and for each table the key of the event's row.
This step may run in a sandbox process. A `TableJoin` looks up the rows in the tables of this process and completes the tensors.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from model_registry.package import field_sources, json_path
from model_registry.package.signature import InputField, Signature
from scorer.dead_letters.reasons import Poison, Reason
from scorer.decoding.mixed_tensors import TensorAssembler
from scorer.decoding.record_metadata import ListedMetadata, RecordMetadata
from scorer.decoding.tensors import merge, select
from scorer.decoding.types import Decoded, Decoder
from scorer.native import byte_columns
from scorer.native.byte_columns import AsciiColumn, Column
from scorer.native.scanner import IdColumn
from scorer.tables.lookup import TableLookup

SHOWN = 60  # bytes of a key in an error


@dataclass(slots=True)
class JoinInput:
    """The part of a batch that is decoded without tables.

    Attributes:
        decoded: the valid events of the batch, with the fields of their records.
        keys: by table name, one key for each valid event. The event's row in the table has this key. None for an event
            without a key.
    """

    decoded: Decoded
    keys: Mapping[str, Column]


class KeyReader(Protocol):
    """Reader of the keys with which the rows of a table are looked up."""

    def read(self, values: Sequence[bytes | None], metadata: RecordMetadata, decoded: Decoded) -> Column:
        """Return the key of each valid event of a batch; None for an event without a key.

        Args:
            values: the values of all records of the batch.
            metadata: the metadata of all records of the batch.
            decoded: the valid events of the batch.
        """


class RecordKeyReader:
    """Reader that returns the keys of the records."""

    def read(self, values: Sequence[bytes | None], metadata: RecordMetadata, decoded: Decoded) -> Column:
        """Return the keys of the valid events; see `KeyReader`."""
        return _select_rows(metadata.keys(), decoded.rows, len(values))


class KeyAsIdDecoder:
    """Decoder that returns the key of the event's row in a table as the event's id, so that one pass reads fields and keys.

    An invalid key does not make the event invalid. Each event that `decoder` rejects is decoded again by `without_id`.

    Args:
        decoder: the decoder of the events that reads the id at the path of the key.
        without_id: the decoder of the same events that reads no id.
    """

    def __init__(self, decoder: Decoder, without_id: Decoder) -> None:
        self._decoder = decoder
        self._without_id = without_id

    def decode(self, values: Sequence[bytes | None], parts: RecordMetadata | None = None) -> Decoded:
        """Decode a batch; see `Decoder`."""
        decoded = self._decoder.decode(values, parts)
        if not decoded.rejected:
            return decoded
        rows = sorted(decoded.rejected)
        without_id = self._without_id.decode([values[row] for row in rows], parts and parts.listed().select(rows))
        decoded.rejected = {rows[index]: poison for index, poison in without_id.rejected.items()}
        if not without_id.rows:
            return decoded
        without_id.rejected = {}
        return merge([(range(len(values)), decoded), (rows, without_id)])


class IdKeyReader:
    """Reader that returns the ids of the decoded events as keys."""

    def read(self, values: Sequence[bytes | None], metadata: RecordMetadata, decoded: Decoded) -> Column:  # noqa: ARG002
        """Return the keys of the valid events; see `KeyReader`."""
        return encode_keys(decoded.ids)


class EventKeyReader:
    """Reader of the keys that events contain at a path.

    A text becomes a key in UTF-8, and an integer becomes its decimal digits. An event with any other value has no key.

    Args:
        decoder: a decoder that reads only the id of each event, at the path of the key.
    """

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder

    def read(self, values: Sequence[bytes | None], metadata: RecordMetadata, decoded: Decoded) -> Column:
        """Return the keys of the valid events; see `KeyReader`."""
        identified = self._decoder.decode(values, metadata)
        keys = encode_keys(identified.ids)
        if len(identified.rows) == len(values):
            return _select_rows(keys, decoded.rows, len(values))
        by_row = dict(zip(identified.rows, keys, strict=True))
        return [by_row.get(row) for row in decoded.rows]


class JoinInputDecoder:
    """Decoder that reads the fields in each record, and for each table the key of the event's row. It reads no tables.

    Args:
        decoder: the decoder of the fields of records.
        readers: the readers of the keys, by the name of the table.
        has_ids: True if `decoder` returns real event ids; False if it returns keys as ids (see `KeyAsIdDecoder`), which are
            removed after the keys are read.
    """

    def __init__(self, decoder: Decoder, readers: Mapping[str, KeyReader], *, has_ids: bool = True) -> None:
        self._decoder = decoder
        self._readers = readers
        self._has_ids = has_ids

    def read(self, values: Sequence[bytes | None], parts: RecordMetadata | None = None) -> JoinInput:
        """Decode a batch; see `Decoder` for the arguments and the errors."""
        decoded = self._decoder.decode(values, parts)
        metadata = parts or ListedMetadata.empty(len(values))
        distinct = set(self._readers.values())  # several tables may have the same key
        keys = {reader: reader.read(values, metadata, decoded) for reader in distinct}
        if not self._has_ids:
            decoded.ids = [None] * len(decoded.rows)
        return JoinInput(decoded, {table: keys[reader] for table, reader in self._readers.items()})


class TableJoin:
    """Join of the events of one signature with the rows of tables.

    Args:
        signature: the signature, which has joined fields.
        tables: the tables of these fields.
    """

    def __init__(self, signature: Signature, tables: TableLookup) -> None:
        self._fields = field_sources.joined_fields(signature)
        self._tables = tables
        self._assembler = TensorAssembler(signature, lambda field: field_sources.table_of(field) is not None)

    def join(self, batch: JoinInput, partitions: NDArray[np.int32]) -> Decoded:
        """Add the joined fields to the events of a batch. An event is rejected if a required field has no value.

        Args:
            batch: the events with the keys of their rows. This method changes the decoded events.
            partitions: the input partition of each record of the batch, (B,).
        """
        decoded = batch.decoded
        if len(decoded.rows) < len(partitions):
            partitions = partitions[decoded.rows]
        columns: dict[str, NDArray[Any]] = {}
        missing: dict[int, Poison] = {}
        for table, fields in self._fields.items():
            keys = batch.keys[table]
            joined = self._tables.columns(table, fields, keys, partitions)
            columns |= joined.tensors
            for field in fields:
                if field.required:
                    rows = np.flatnonzero(joined.missing[field.name])
                    missing = _explain_missing(field, keys, joined.found, rows) | missing
        if missing:
            decoded.rejected |= {decoded.rows[index]: poison for index, poison in missing.items()}
            keep = [index for index in range(len(decoded.rows)) if index not in missing]
            decoded = select(decoded, keep)
            columns = {name: column[keep] for name, column in columns.items()}
        return self._assembler.add(decoded, columns)


class TableFieldsDecoder:
    """Decoder of events with joined fields, whose values come from rows of tables."""

    def __init__(self, inputs: JoinInputDecoder, join: TableJoin) -> None:
        self._inputs = inputs
        self._join = join

    def decode(self, values: Sequence[bytes | None], parts: RecordMetadata | None = None) -> Decoded:
        """Decode a batch; see `Decoder`."""
        metadata = parts or ListedMetadata.empty(len(values))
        return self._join.join(self._inputs.read(values, metadata), metadata.partitions())


def encode_keys(ids: Sequence[str | int | None]) -> Column:
    """Encode ids as keys of rows in a table: text as UTF-8, integers as decimal digits. None stays None."""
    if isinstance(ids, IdColumn):
        return ids.column()
    if isinstance(ids, AsciiColumn):
        return ids.texts
    return [None if id_ is None else str(id_).encode("utf-8", "surrogatepass") for id_ in ids]


def _select_rows(column: Column, rows: Sequence[int], count: int) -> Column:
    """Return the entries of a column with `count` entries at the indices `rows`."""
    return column if len(rows) == count else byte_columns.part(column, np.array(rows, np.int64))


def _explain_missing(field: InputField, keys: Column, found: NDArray[np.bool_], rows: NDArray[np.intp]) -> dict[int, Poison]:
    """Explain why the events at the indices `rows` have no value for a required joined field. Return each error by index."""
    table = field_sources.table_of(field)
    name = field_sources.qualified_name(field)
    errors: dict[int, Poison] = {}
    pairs: Iterable[tuple[int, bytes | None]] = zip(rows.tolist(), byte_columns.take_rows(keys, rows), strict=True)
    for index, key in pairs:
        shown = repr(key[:SHOWN].decode("utf-8", "backslashreplace")) if key is not None else ""
        if key is None:
            fault = f"the event has no key for the table {table}"
        elif found[index]:
            column = json_path.format_path(field_sources.column_steps(field))
            fault = f"the row of the table {table} with the key {shown} has no {column}"
        else:
            fault = f"the table {table} has no row with the key {shown}, or the row cannot be decoded"
        errors[index] = Poison(Reason.MISSING_FIELD, f"required field {name}: {fault}")
    return errors
