"""The score records of a batch: columns as they are where every event is plain, else one record after another."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import NamedTuple

import numpy as np

from publisher.transactions.protocol import Record
from scorer.dead_letters.reasons import Poison, Reason
from scorer.decoding.batch import Batch, Headers
from scorer.decoding.types import Decoded
from scorer.native.produce_records import ColumnarRecords
from scorer.scores.answer import BatchAnswers
from scorer.scores.columnar_records import VersionScores, packed
from scorer.scores.record import RecordEncoder
from scorer.settings import Settings
from scorer.settings.carry import Row
from scorer.topics import RECORD_OVERHEAD
from scorer.worker.columns import pick, placed
from scorer.worker.header_facts import HeaderFacts


@dataclass(frozen=True, slots=True)
class Target:
    """A topic that records are written to: how many partitions it has and the largest record it takes, in bytes."""

    topic: str
    partitions: int
    max_bytes: int

    def narrowed(self, found: "Target") -> "Target":
        """Return the topic with no more partitions than were found."""
        return replace(self, partitions=min(self.partitions, found.partitions))


class Made(NamedTuple):
    """Rows with their records, and what is wrong with the rows whose record is too large for the topic."""

    rows: list[int]
    records: Sequence[Record]
    refused: dict[int, Poison]


class ScoreRecords:
    """For one batch, in `target`. `facts` are those of its headers; `now_ms` is the wall clock."""

    def __init__(self, batch: Batch, facts: HeaderFacts, settings: Settings, target: Target, now_ms: Callable[[], int]) -> None:
        self._batch = batch
        self._facts = facts
        self._settings = settings
        self._target = target
        self._room = max(0, target.max_bytes - RECORD_OVERHEAD)
        self._now_ms = now_ms
        self._field_ids: Sequence[str | int | None] = [None] * len(batch)
        self._carried: Sequence[Row | None] | None = None

    def learn(self, decoded: Decoded) -> None:
        """The ids and carried fields of events that were decoded; `rows` are the batch's."""
        whole = len(decoded.rows) == len(self._batch)
        self._field_ids = decoded.ids if whole else placed(self._field_ids, decoded.rows, decoded.ids)
        if decoded.carried is not None:
            self._carried = placed(self._carried or [None] * len(self._batch), decoded.rows, decoded.carried)

    def of(self, rows: list[int], answer: BatchAnswers, encoder: RecordEncoder) -> Made:
        """The records of these rows."""
        batch, target = self._batch, self._target
        if answer.columns is not None and len(rows) == len(batch):
            part = VersionScores(np.arange(len(rows)), answer.columns, encoder)
            if (columns := self.columns([part])) is not None:
                return Made(rows, columns, {})
        partitions, times, keys = pick(batch.partitions, rows), pick(batch.timestamps, rows), pick(batch.keys, rows)
        ids = self._facts.ids(rows, pick(self._field_ids, rows), self._settings.region)
        values = self._encoded(rows, ids, answer, encoder)
        names = self._settings.output.headers
        headers: Sequence[Headers] = [None] * len(rows)
        if names:
            headers = encoder.headers(names, ids, answer.decisions, answer.status)
        if batch.carried is not None:
            headers = [[*(own or ()), *more] for own, more in zip(headers, pick(batch.carried, rows), strict=True)]
        width = target.partitions
        out = [partition % width for partition in partitions]
        records: Sequence[Record] = list(zip(repeat(target.topic, len(rows)), values, keys, out, times, headers, strict=True))
        if max(map(len, values), default=0) + max(map(len, filter(None, keys)), default=0) > self._room:
            return self._without_oversize(rows, records)
        return Made(rows, records, {})

    def columns(self, parts: Sequence[VersionScores]) -> ColumnarRecords | None:
        """The records of all rows as columns, which these parts make up; None where they are not plain, or one is too large."""
        if self._facts.matter or self._settings.output.headers:
            return None
        target = self._target
        names, carried, at_ms = self._facts.names or self._field_ids, self._carried, self._now_ms()
        found = packed(self._batch, names, parts, target.topic, target.partitions, at_ms, carried)
        return found if found is not None and found.largest_record <= self._room else None

    def _encoded(self, rows: list[int], ids: Sequence[str], answer: BatchAnswers, encoder: RecordEncoder) -> Sequence[bytes]:
        """The values of score records. One that only what it carries makes too large carries nothing."""
        batch = self._batch
        where = pick(batch.places, rows), pick(batch.offsets, rows), pick(batch.timestamps, rows)
        columns = ids, answer.scores, answer.decisions, *where, answer.status, self._now_ms()
        carried = None if self._carried is None else pick(self._carried, rows)
        values = encoder.encode(*columns, carried)
        sizes = (
            [len(value) + len(key or b"") for value, key in zip(values, pick(batch.keys, rows), strict=True)] if carried else []
        )
        if max(sizes, default=0) <= self._room:
            return values
        bare = encoder.encode(*columns, None)
        return [value if size <= self._room else other for value, other, size in zip(values, bare, sizes, strict=True)]

    def _without_oversize(self, rows: list[int], records: Sequence[Record]) -> Made:
        """The same without the records that the output topic would refuse."""
        kept, refused = [], {}
        for row, record in zip(rows, records, strict=True):
            _, value, key, *_ = record
            if len(value or b"") + len(key or b"") > self._room:
                size, target = len(value or b""), self._target
                error = f"the score record has {size} bytes beside its key; {target.topic} takes {target.max_bytes}"
                refused[row] = Poison(Reason.SCORE_OVERSIZE, error)
            else:
                kept.append((row, record))
        return Made([row for row, _ in kept], [record for _, record in kept], refused)
