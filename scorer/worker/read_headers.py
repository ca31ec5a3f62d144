"""The first stage of the pipeline: the ids and deadlines in the headers of a batch's events.

If all events have the same header names, and all ids are printable ASCII, each header is read as a column. Otherwise the
headers are read event by event.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from publisher.kafka.source_position import ORIGIN
from scorer.dead_letters.reasons import Poison, Reason
from scorer.decoding.batch import Batch, select_rows
from scorer.decoding.columnar_batch import ColumnarBatch
from scorer.decoding.event_id import event_id, field_ids
from scorer.decoding.headers import CE_ID, DEADLINE_DIGITS, NO_HEADER_VALUES, HeaderValues
from scorer.native.byte_columns import ByteColumn

FieldId = str | int | None


@dataclass(frozen=True, slots=True)
class BatchHeaders:
    """The ids and deadlines in the headers of a batch's events. Rows are indices into the batch.

    Attributes:
        expired: the rows whose deadline has passed.
        rejected: the rows whose id or deadline cannot be read.
        names: the column of ids in the header `ce_id`; None without this header, or if the headers were read event by event.
        values: the header values of each event; None if the headers were read as columns, or if no event has headers.
    """

    expired: frozenset[int] = frozenset()
    rejected: Mapping[int, Poison] = field(default_factory=dict)
    names: ByteColumn | None = None
    values: Sequence[HeaderValues] | None = None

    def split(self, rows: list[int]) -> tuple[list[int], list[int]]:
        """Return the rows whose deadline has not passed, and the expired rows."""
        if not self.expired:
            return rows, []
        return [row for row in rows if row not in self.expired], [row for row in rows if row in self.expired]

    def ids(self, batch: Batch, rows: list[int], fields: Sequence[FieldId], region: str) -> list[str]:
        """Return the id of the event of each of these rows; see `decoding.event_id.event_id`.

        Args:
            batch: the batch whose headers these are.
            rows: the rows, ascending.
            fields: the value of the configured id field in each row's event; None for an event without this field.
            region: the region of the input topics. It becomes part of an id that is derived from the position of the event.
        """
        if self.values is None:
            if self.names is not None:
                return [(name or b"").decode() for name in select_rows(self.names, rows)]
            if (names := field_ids(fields)) is not None:
                return names
        values = repeat(NO_HEADER_VALUES, len(rows)) if self.values is None else select_rows(self.values, rows)
        places = select_rows(batch.places, rows)
        offsets = select_rows(batch.offsets, rows)
        return [
            event_id(value, field_id, region, (*place, offset))
            for value, field_id, place, offset in zip(values, fields, places, offsets, strict=True)
        ]


def read_headers(batch: Batch, rows: list[int], now_ms: int) -> BatchHeaders:
    """Read the ids and deadlines in the headers of these rows. A deadline before `now_ms` (Unix ms) has passed."""
    if (columns := _read_columns(batch, now_ms)) is not None:
        return columns
    headers = select_rows(batch.headers, rows)
    if not any(headers):
        return BatchHeaders()
    values = [NO_HEADER_VALUES] * len(batch)
    expired: set[int] = set()
    rejected: dict[int, Poison] = {}
    for row, own_headers in zip(rows, headers, strict=True):
        if not own_headers:
            continue
        values[row] = value = HeaderValues.from_headers(own_headers)
        if value.bad_id is not None:
            rejected[row] = Poison(Reason.NOT_UTF8, value.bad_id)
        elif value.bad_deadline is not None:
            error = f"header deadline is {value.bad_deadline!r:.100}, not a time in Unix ms"
            rejected[row] = Poison(Reason.BAD_DEADLINE, error)
        elif value.deadline is not None and value.deadline < now_ms:
            expired.add(row)
    return BatchHeaders(frozenset(expired), rejected, None, values)


def _read_columns(batch: Batch, now_ms: int) -> BatchHeaders | None:
    """Read the headers of all events at once, as columns. Return None if the headers must be read event by event instead.

    Reading event by event is necessary if, for example, an id is not printable ASCII, a deadline has passed, or the events have
    different header names.
    """
    if not isinstance(batch, ColumnarBatch) or batch.unread or (columns := batch.columns.header_columns()) is None:
        return None
    names = columns.get(CE_ID)
    deadlines = columns.get("deadline")
    if names is None and ORIGIN in columns:
        return None
    if deadlines is not None and ((times := parse_numbers(deadlines)) is None or (times < now_ms).any()):
        return None
    if names is not None and (names.any_empty() or not is_plain(names)):
        return None
    return BatchHeaders(names=names)


def parse_numbers(texts: ByteColumn) -> NDArray[np.int64] | None:
    """Parse a column of decimal numbers as (B,) integers.

    Return None if a text is not a number, or if the texts have different lengths.
    """
    lengths = texts.lengths()
    digits = int(lengths[0])
    if texts.nulls is not None or not 0 < digits <= DEADLINE_DIGITS or (lengths != digits).any():
        return None
    digit_matrix = texts.text[texts.starts[:, None] + np.arange(digits)].astype(np.int64) - ord("0")
    return digit_matrix @ (10 ** np.arange(digits)[::-1]) if ((digit_matrix >= 0) & (digit_matrix <= 9)).all() else None


def is_plain(texts: ByteColumn) -> bool:
    """Return whether no text is null and every text is printable ASCII that needs no escape in a JSON string."""
    characters = texts.text[texts.starts.min() : texts.ends.max()]
    return texts.nulls is None and bool(
        ((characters >= 0x20) & (characters < 0x7F) & (characters != ord('"')) & (characters != ord("\\"))).all()
    )
