"""The rows of one table in memory: raw bytes for later decoding, and decoded columns for look-ups.

One thread, the writer, changes the rows. Any thread may look rows up. A lock protects each step of the writer. The writer
decodes and copies outside of the lock, and holds the lock for at most SLICE_ROWS rows, so that a look-up waits less than 2 ms.

The raw bytes are kept, because a version of the model that is loaded later may need other columns. Each set of joined fields
has columns of its own. A look-up of a set whose columns are not built yet decodes the raw bytes, so that its result does not
depend on the progress of the writer. This module depends on the key index, the arena and the protocol of decoders. It makes no
Kafka calls.
"""

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_registry.package.signature import InputField
from scorer.native.byte_columns import ByteColumn, part
from scorer.tables.key_index import KeyIndex, Keys, RowNumbers, Spaces, create_key_index
from scorer.tables.lookup import JoinedColumns
from scorer.tables.row_arena import RowArena, Values
from scorer.tables.row_blocks import BlockLayout, CreateRowDecoder, DecodedRows, Fields, RowDecoder

SLICE_ROWS = 1_000
GROWTH = 1.25
"""The growth factor of the arrays. At most a fifth of their memory is unused, and each row is copied about four times."""
MIN_ROWS = 1_024
MAX_TEXTS = 65_536
"""The largest number of distinct texts that a set of columns stores once for all rows. Further texts are stored per row."""
UNUSED_SECONDS = 600.0
"""The columns of a set are removed if no look-up has used them for this time while look-ups use another set."""


@dataclass(frozen=True, slots=True)
class TableRecords:
    """Records of a table. The records of each partition are in the order of their offsets.

    Attributes:
        partitions: (n,) the partition of each record.
        offsets: (n,) the offset of each record.
        keys: the keys.
        values: the values; None for a tombstone.
        removed: (n,) bool: whether the value is None.
    """

    partitions: NDArray[np.int32]
    offsets: NDArray[np.int64]
    keys: Keys
    values: Values
    removed: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.offsets)

    def select(self, rows: NDArray[np.intp]) -> "TableRecords":
        """Return the records at these indices."""
        keys = part(self.keys, rows)
        return TableRecords(self.partitions[rows], self.offsets[rows], keys, part(self.values, rows), self.removed[rows])


OnRejected = Callable[[str, str, int, int], None]
"""Called by the writer for a row that cannot be decoded: with the reason, the error, the partition and the offset. If the row
was stored before its columns were requested, partition and offset are -1."""


class RowStore:
    """The rows of one table.

    Args:
        create_decoder: a function that creates the decoder of the rows for a set of fields.
        by_partition: whether a key is unique in its partition only (`scope: partition`).
        on_rejected: a function to call for each row that cannot be decoded.
        index: the index of the keys; by default the fastest available one.
        arena: the store of the raw bytes; by default one with segments of the default size.
        unused_seconds: the time without a look-up after which the columns of a set of fields are removed; see UNUSED_SECONDS.
    """

    def __init__(
        self,
        create_decoder: CreateRowDecoder,
        *,
        by_partition: bool,
        on_rejected: OnRejected = lambda *_: None,
        index: KeyIndex | None = None,
        arena: RowArena | None = None,
        unused_seconds: float = UNUSED_SECONDS,
    ) -> None:
        self._create_decoder = create_decoder
        self._by_partition = by_partition
        self._on_rejected = on_rejected
        self._unused_seconds = unused_seconds
        self._lock = threading.Lock()
        self._index = create_key_index() if index is None else index
        self._arena = RowArena() if arena is None else arena
        self._positions = np.full(0, -1, np.int64)  # by row number: the position in the arena; -1 without a row
        self._lengths = np.zeros(0, np.int32)
        self._partitions = np.zeros(0, np.int32)
        self._rows_of_partition: Counter[int] = Counter()
        self._sets: dict[Fields, _ColumnSet] = {}
        self._requested: dict[Fields, _ColumnSet] = {}
        self._raw_decoders: dict[Fields, RowDecoder] = {}
        self._raw_turn = threading.Lock()
        self.decodes_raw = 0  # look-ups of fields whose columns are not built yet

    # ---- any thread ----

    def __len__(self) -> int:
        return len(self._index)

    @property
    def nbytes(self) -> int:
        """The memory of the rows in bytes: index, raw bytes and columns. Texts and arrays of varying length are estimated."""
        arrays = self._positions.nbytes + self._lengths.nbytes + self._partitions.nbytes
        return self._index.nbytes + self._arena.nbytes + arrays + sum(each.nbytes(len(self)) for each in [*self._sets.values()])

    def count(self, partition: int) -> int:
        """Return the number of rows that came from a partition of the topic."""
        return self._rows_of_partition[partition]

    def get(self, key: bytes, partition: int | None = None) -> bytes | None:
        """Return the raw bytes of the row with this key; None if there is no row.

        If a key is unique in its partition only, `partition` is the partition; None searches all partitions.
        """
        with self._lock:
            spaces = sorted(self._rows_of_partition) if partition is None else [partition]
            for space in spaces if self._by_partition else [0]:
                rows = self._index.rows([key], space)
                if rows[0] >= 0:
                    return self._arena.read(self._positions[rows], self._lengths[rows])[0]
        return None

    def columns(self, fields: Sequence[InputField], keys: Keys, partitions: Spaces) -> tuple[JoinedColumns, int]:
        """Look rows up; see `TableLookup.columns`. Return the joined columns, and the number of keys that have a row.

        Raises:
            DependencyUnavailable: the columns are not built yet, and the schema registry does not answer.
            FormatMismatch: rows cannot contain the fields.
        """
        wanted = tuple(fields)
        spaces = partitions if self._by_partition else 0
        with self._lock:
            numbers = self._index.rows(keys, spaces)
            columns = self._sets.get(wanted)
            if columns is not None:
                columns.used_at = time.monotonic()
                return columns.look_up(numbers), int(np.count_nonzero(numbers >= 0))
            present = np.flatnonzero(numbers >= 0)
            rows = numbers[present]
            values = self._arena.read(self._positions[rows], self._lengths[rows])
        self.request(wanted)
        return self._decode_raw(wanted, len(keys), present, values), len(present)

    def request(self, fields: Fields) -> None:
        """Request that the writer builds the columns of these fields. Raises FormatMismatch."""
        with self._lock:
            if fields in self._sets or fields in self._requested:
                return
        layout = BlockLayout(fields)
        columns = _ColumnSet(layout, self._create_decoder(layout))
        with self._lock:
            if fields not in self._sets:  # another thread may have requested them, and the writer may have built them
                self._requested.setdefault(fields, columns)

    def is_built(self, fields: Fields) -> bool:
        """Return whether look-ups of these fields use built columns."""
        return fields in self._sets

    def _decode_raw(self, fields: Fields, count: int, present: NDArray[np.intp], values: Values) -> JoinedColumns:
        self.decodes_raw += 1
        layout = BlockLayout(fields)
        found = np.zeros(count, np.bool_)
        blocks = layout.defaults(count)
        missing = np.ones((count, len(layout.required)), np.bool_)
        if len(present):
            with self._raw_turn:
                if fields not in self._raw_decoders:
                    self._raw_decoders = {fields: self._create_decoder(layout)}
                decoded = self._raw_decoders[fields].decode(values)
            found[present] = decoded.found
            missing[present] = decoded.missing
            for block, rows in zip(blocks, decoded.blocks, strict=True):
                block[present] = rows
        return _joined(layout, found, blocks, missing)

    # ---- the writer ----

    def apply(self, records: TableRecords) -> None:
        """Apply records in their order. There must be at most SLICE_ROWS records, each with a key.

        Raises:
            DependencyUnavailable: the schema registry does not answer yet. Nothing is applied; apply the same records
                again later.
            Fatal: the schema registry rejects all requests.
        """
        put = np.flatnonzero(~records.removed)
        values = part(records.values, put) if len(put) < len(records) else records.values
        sets = self._sets | self._requested
        decoded = {fields: columns.decoder.decode(values) for fields, columns in sets.items()} if len(put) else {}
        self._ensure_capacity(self._index.capacity + len(records))
        positions, lengths = self._arena_append(records)
        spaces = records.partitions if self._by_partition else 0
        self._index.reserve(records.keys)
        with self._lock:
            rows = self._index.apply(records.keys, records.removed, spaces)
            self._replace(rows, positions, lengths, records.partitions)
            for fields, decoded_rows in decoded.items():
                sets[fields].assign(rows[put], decoded_rows)
        self._report(decoded, records.partitions[put], records.offsets[put])

    def drop(self, partition: int) -> None:
        """Remove all rows that came from a partition of the topic."""
        rows = np.flatnonzero((self._partitions == partition) & (self._positions >= 0))
        for start in range(0, len(rows), SLICE_ROWS):
            dropped = rows[start : start + SLICE_ROWS]
            with self._lock:
                self._index.remove_rows(dropped)
                self._arena.release(int(self._lengths[dropped].sum()))
                self._positions[dropped] = -1
                self._lengths[dropped] = 0
        with self._lock:
            self._rows_of_partition.pop(partition, None)
        self.compact()

    def build(self) -> bool:
        """Decode the next rows of the columns that are requested. Return whether columns are still incomplete.

        Raises the same errors as `apply`. After DependencyUnavailable, call `build` again later: it decodes the same rows.
        """
        for fields, columns in [*self._requested.items()]:
            if columns.end is None:  # `apply` decodes all later records for these columns, too
                columns.end = self._index.capacity
            stop = min(columns.built + SLICE_ROWS, columns.end)
            self._ensure_capacity(stop)
            rows = columns.built + np.flatnonzero(self._positions[columns.built : stop] >= 0)
            for at, values in self._arena.columns(self._positions[rows], self._lengths[rows]):
                decoded = columns.decoder.decode(values)
                with self._lock:
                    columns.assign(rows[at], decoded)
                for error in decoded.rejected.values():
                    self._on_rejected(error.reason, str(error), -1, -1)
            columns.built = stop
            if stop == columns.end:
                with self._lock:
                    del self._requested[fields]
                    self._sets[fields] = columns
                self._forget_unused()
        return bool(self._requested)

    def compact(self, *, always: bool = False) -> None:
        """Free the memory of replaced rows if it is large (see `RowArena.wastes`), or if `always` is true."""
        if not self._arena.wastes and not always:
            return
        rows = np.flatnonzero(self._lengths > 0)
        sparse = self._arena.sparse_segments(self._positions[rows], self._lengths[rows])
        moving = rows[self._arena.in_segments(self._positions[rows], sparse)]
        for start in range(0, len(moving), SLICE_ROWS):
            moved = moving[start : start + SLICE_ROWS]
            for at, values in self._arena.columns(self._positions[moved], self._lengths[moved]):
                positions, lengths = self._arena.append(_copied(values))
                with self._lock:
                    self._positions[moved[at]] = positions
                    self._arena.release(int(lengths.sum()))
        with self._lock:
            self._arena.free(sparse)

    def _arena_append(self, records: TableRecords) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        positions, lengths = self._arena.append(records.values)
        if records.removed.any():
            positions = np.where(records.removed, -1, positions)
            lengths = np.where(records.removed, 0, lengths)
        return positions, lengths

    def _replace(
        self, rows: RowNumbers, positions: NDArray[np.int64], lengths: NDArray[np.int64], partitions: NDArray[np.int32]
    ) -> None:
        """Replace the arena positions of rows; of several entries with one row number, the last one counts."""
        existing = rows >= 0
        if not existing.all():  # removed keys without a row
            rows = rows[existing]
            positions = positions[existing]
            lengths = lengths[existing]
            partitions = partitions[existing]
        touched = np.unique(rows)
        before = self._lengths[touched].sum()
        self._count(touched, -1)
        self._positions[rows] = positions
        self._lengths[rows] = lengths
        self._partitions[rows] = partitions
        self._count(touched, 1)
        self._arena.release(int(before + lengths.sum() - self._lengths[touched].sum()))

    def _count(self, rows: RowNumbers, sign: int) -> None:
        """Add (`sign` 1) or subtract (-1) the existing rows among `rows` in the row counts of their partitions."""
        partitions, counts = np.unique(self._partitions[rows[self._positions[rows] >= 0]], return_counts=True)
        for partition, count in zip(partitions.tolist(), counts.tolist(), strict=True):
            self._rows_of_partition[partition] += sign * count

    def _ensure_capacity(self, rows: int) -> None:
        """Make room for `rows` row numbers. The copies are made outside of the lock."""
        if rows > len(self._positions):
            size = max(MIN_ROWS, int(rows * GROWTH))
            positions = _grown(self._positions, size, -1)
            lengths = _grown(self._lengths, size, 0)
            partitions = _grown(self._partitions, size, 0)
            with self._lock:
                self._positions = positions
                self._lengths = lengths
                self._partitions = partitions
        for columns in [*self._sets.values(), *self._requested.values()]:
            if columns.capacity < len(self._positions):
                grown = columns.grown(len(self._positions))
                with self._lock:
                    columns.replace_arrays(*grown)

    def _report(self, decoded: dict[Fields, DecodedRows], partitions: NDArray[np.int32], offsets: NDArray[np.int64]) -> None:
        """Report each row that cannot be decoded once, although several sets of fields may fail to decode the row."""
        errors = {row: error for rows in decoded.values() for row, error in rows.rejected.items()}
        for row, error in sorted(errors.items()):
            self._on_rejected(error.reason, str(error), int(partitions[row]), int(offsets[row]))

    def _forget_unused(self) -> None:
        """Remove columns that no look-up has used for a long time while look-ups have used other columns."""
        newest = max(columns.used_at for columns in self._sets.values())
        with self._lock:
            for fields in [*self._sets]:
                if newest - self._sets[fields].used_at > self._unused_seconds:
                    del self._sets[fields]


class _ColumnSet:
    """The decoded columns of one set of joined fields. Row r is the array entry r + 1; entry 0 is a row without values.

    Attributes:
        decoder: the decoder with which the writer decodes the rows.
        built: the row number before which all rows are decoded.
        end: the row number before which the writer decodes all rows to build the columns; None before it begins. Rows that are
            added later are decoded when they are added.
        used_at: the time of the last look-up in monotonic seconds; initially the time of creation.
    """

    def __init__(self, layout: BlockLayout, decoder: RowDecoder) -> None:
        self.decoder = decoder
        self.built = 0
        self.end: int | None = None
        self.used_at = time.monotonic()
        self._layout = layout
        self._blocks = layout.defaults(1)
        self._found = np.zeros(1, np.bool_)
        self._missing = np.ones((1, len(layout.required)), np.bool_)
        self._texts: dict[Any, Any] = {}
        self._object_bytes = 0
        self._object_rows = 0

    @property
    def capacity(self) -> int:
        """The number of row numbers for which the arrays have room."""
        return len(self._found) - 1

    def nbytes(self, rows: int) -> int:
        """Return the memory of the columns of a table with this number of rows, in bytes."""
        arrays = self._found.nbytes + self._missing.nbytes + sum(block.nbytes for block in self._blocks)
        return arrays + (self._object_bytes * rows // self._object_rows if self._object_rows else 0)

    def look_up(self, numbers: RowNumbers) -> JoinedColumns:
        """Return copies of the columns of these rows; a row number of NO_ROW stands for a missing row."""
        at = numbers + 1
        blocks = [block[at] for block in self._blocks]
        return _joined(self._layout, self._found[at], blocks, self._missing[at])

    def assign(self, rows: RowNumbers, decoded: DecodedRows) -> None:
        """Store the columns of decoded rows; of several entries with one row number, the last one counts."""
        at = rows + 1
        self._found[at] = decoded.found
        self._missing[at] = decoded.missing
        if any(values.dtype == object for values in decoded.blocks):
            self._object_rows += len(rows)
        for block, values in zip(self._blocks, decoded.blocks, strict=True):
            block[at] = self._shared(values) if values.dtype == object else values

    def grown(self, capacity: int) -> tuple[list[NDArray[Any]], NDArray[np.bool_], NDArray[np.bool_]]:
        """Return copies of the arrays with room for `capacity` rows."""
        blocks = self._layout.empty(capacity + 1)
        for block, before in zip(blocks, self._blocks, strict=True):
            block[: len(before)] = before
        found = _grown(self._found, capacity + 1, 0)
        missing = np.ones((capacity + 1, self._missing.shape[1]), np.bool_)
        missing[: len(self._missing)] = self._missing
        return blocks, found, missing

    def replace_arrays(self, blocks: list[NDArray[Any]], found: NDArray[np.bool_], missing: NDArray[np.bool_]) -> None:
        """Use these arrays, which `grown` has returned."""
        self._blocks = blocks
        self._found = found
        self._missing = missing

    def _shared(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the values with equal texts replaced by one object, and add their memory to the estimate."""
        flat = values.reshape(-1)
        for at, value in enumerate(flat.tolist() if values.ndim > 1 else flat):
            if not isinstance(value, str):
                self._object_bytes += value.nbytes + sys.getsizeof(value)
            elif value in self._texts:
                flat[at] = self._texts[value]
            else:
                self._object_bytes += sys.getsizeof(value)
                if len(self._texts) < MAX_TEXTS:
                    self._texts[value] = value
        return values


def _joined(
    layout: BlockLayout, found: NDArray[np.bool_], blocks: Sequence[NDArray[Any]], missing: NDArray[np.bool_]
) -> JoinedColumns:
    return JoinedColumns(
        found, layout.tensors(blocks), {name: missing[:, column] for column, name in enumerate(layout.required)}
    )


def _grown(array: NDArray[Any], size: int, fill: int) -> NDArray[Any]:
    grown = np.full(size, fill, array.dtype)
    grown[: len(array)] = array
    return grown


def _copied(values: ByteColumn) -> list[bytes | None]:
    """Return copies of the strings of a column, because the column is not valid after an append to its arena."""
    return values.take_rows(np.arange(len(values)))
