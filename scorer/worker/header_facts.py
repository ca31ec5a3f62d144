"""What the headers of a batch's events say: how an event is named, and until when it wants an answer."""

from collections.abc import Sequence
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from publisher.kafka.source_position import ORIGIN
from scorer.dead_letters.reasons import Poison, Reason
from scorer.decoding.batch import Batch
from scorer.decoding.columnar_batch import ColumnarBatch
from scorer.decoding.headers import CE_ID, DEADLINE_DIGITS, NO_HEADER_VALUES, HeaderValues, event_id, field_ids
from scorer.native.byte_columns import ByteColumn
from scorer.worker.columns import pick, placed

Id = str | int | None


class HeaderFacts:
    """For one batch. `names` are the ids in `ce_id`, where all events have a plain one; `matter` tells whether headers matter
    beside that."""

    def __init__(self, batch: Batch) -> None:
        self.names: ByteColumn | None = None
        self._batch = batch
        self._facts: list[HeaderValues] | None = None  # None: no event has a header that matters
        self._columns = batch.columns.header_columns() if isinstance(batch, ColumnarBatch) else None

    @property
    def matter(self) -> bool:
        return self._facts is not None

    def by_deadline(self, rows: list[int], now_ms: int) -> tuple[list[int], list[int], dict[int, Poison]]:
        """Return the rows in time, the rows that are too late, and the rows whose id or deadline cannot be read."""
        if len(rows) == len(self._batch) and self._all_in_time(now_ms):
            return rows, [], {}
        headers = pick(self._batch.headers, rows)
        if not any(headers):
            return rows, [], {}
        found = [HeaderValues.from_headers(one) if one else NO_HEADER_VALUES for one in headers]
        self._facts = placed(self._facts or [NO_HEADER_VALUES] * len(self._batch), rows, found)
        fresh: list[int] = []
        expired: list[int] = []
        bad: dict[int, Poison] = {}
        for row, facts in zip(rows, found, strict=True):
            if facts.bad_id is not None:
                bad[row] = Poison(Reason.NOT_UTF8, facts.bad_id)
            elif facts.bad_deadline is not None:
                error = f"header deadline is {facts.bad_deadline!r:.100}, not a time in Unix ms"
                bad[row] = Poison(Reason.BAD_DEADLINE, error)
            else:
                (expired if facts.deadline is not None and facts.deadline < now_ms else fresh).append(row)
        return fresh, expired, bad

    def ids(self, rows: list[int], fields: Sequence[Id], region: str) -> list[str]:
        """The ids of these rows, whose configured fields are given."""
        if self._facts is None and self.names is not None:
            return [(name or b"").decode() for name in pick(self.names, rows)]
        if self._facts is None and (names := field_ids(fields)) is not None:
            return names
        facts = pick(self._facts, rows) if self._facts else repeat(NO_HEADER_VALUES, len(rows))
        places, offsets = pick(self._batch.places, rows), pick(self._batch.offsets, rows)
        return [
            event_id(fact, named, region, (*place, offset))
            for fact, named, place, offset in zip(facts, fields, places, offsets, strict=True)
        ]

    def _all_in_time(self, now_ms: int) -> bool:
        """Whether the headers are columns that say no more than names, and deadlines that are all to come."""
        if self._columns is None:
            return False
        names, deadlines = self._columns.get(CE_ID), self._columns.get("deadline")
        if names is None and ORIGIN in self._columns:
            return False
        if deadlines is not None and ((times := numbers(deadlines)) is None or (times < now_ms).any()):
            return False
        if names is not None and (names.any_empty() or not plain(names)):
            return False
        self.names = names
        return True


def numbers(texts: ByteColumn) -> NDArray[np.int64] | None:
    """Decimal numbers of one length as numbers; None where one is none."""
    lengths = texts.lengths()
    digits = int(lengths[0])
    if texts.nulls is not None or not 0 < digits <= DEADLINE_DIGITS or (lengths != digits).any():
        return None
    each = texts.text[texts.starts[:, None] + np.arange(digits)].astype(np.int64) - ord("0")
    return each @ (10 ** np.arange(digits)[::-1]) if ((each >= 0) & (each <= 9)).all() else None


def plain(texts: ByteColumn) -> bool:
    """Whether each text is there, and stands in a JSON string as it is."""
    each = texts.text[texts.starts.min() : texts.ends.max()]
    return texts.nulls is None and bool(((each >= 0x20) & (each < 0x7F) & (each != ord('"')) & (each != ord("\\"))).all())
