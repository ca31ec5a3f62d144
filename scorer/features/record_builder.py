"""Building of feature records: the records with the inputs of scored events, for the topic `features.topic`.

A record has the key and the timestamp of its event. The records are encoded as columns. The native library produces them if it
also fetched the batch. This module does not call Kafka. It never makes an event fail: a record that cannot be encoded, or that
is too large for the topic, is left out and counted.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from publisher.transactions.session import Record
from scorer.decoding.batch import Batch
from scorer.decoding.columnar_batch import ColumnarBatch
from scorer.features.record_encoder import AnsweringVersions, EventColumns, FeatureEncoder
from scorer.features.sample import KeySample
from scorer.native.byte_columns import ByteColumn
from scorer.native.feature_rows import column_of
from scorer.native.librdkafka import librdkafka_plugin
from scorer.native.produce_records import ColumnarRecords, RecordPiece, joined, texts_of

log = logging.getLogger(__name__)

OVERSIZE = "oversize"
FAILED = "encoding-failed"
REJECTED = "record-refused"
MAX_FAILURES = 200  # failed attempts to encode parts of a batch, about 40 ms
DROP_REASONS = (OVERSIZE, FAILED, REJECTED)
"""Why a feature record is left out: it is too large for its topic, it could not be encoded, or the broker rejects it."""


@dataclass(frozen=True, slots=True)
class FeatureRecords:
    """The feature records of some rows of a batch.

    Attributes:
        rows: (n,), the index of each record's event in the batch, ascending.
        records: the records, in the order of `rows`.
        dropped: the number of records that were left out, by reason.
    """

    rows: NDArray[np.intp]
    records: Sequence[Record]
    dropped: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ScoredEvents:
    """Scored events of a batch whose feature records are built with one encoder.

    Attributes:
        batch: the batch of the events.
        rows: (n,), the index of each event in the batch, ascending.
        ids: the ids of the events, encoded as the content of JSON strings.
        tensors: the input tensors of the model; row i belongs to the event at `rows[i]`.
        answers: the versions that scored the events.
        scored_ms: the time of scoring in Unix ms.
    """

    batch: Batch
    rows: NDArray[np.intp]
    ids: ByteColumn
    tensors: Mapping[str, NDArray[Any]]
    answers: AnsweringVersions
    scored_ms: int

    def part(self, first: int, end: int) -> "ScoredEvents":
        """Return the events `first` (included) to `end` (excluded)."""
        at = np.arange(first, end)
        tensors = select_tensors(self.tensors, at)
        return ScoredEvents(self.batch, self.rows[at], self.ids.part(at), tensors, self.answers.part(at), self.scored_ms)


@dataclass(frozen=True, slots=True)
class FeatureRecordBuilder:
    """Builds the feature records of scored events for the topic of the feature log.

    Attributes:
        topic: the topic of the feature log.
        partitions: the number of partitions of the topic to which records are written.
        room: the maximum size of a record in bytes: its key plus its value.
        sample: the selection of the keys whose events are logged; None for all events.
    """

    topic: str
    partitions: int
    room: int
    sample: KeySample | None = None

    def select(self, batch: Batch, rows: NDArray[np.intp]) -> NDArray[np.intp] | None:
        """Return which of the events at the indices `rows` are in the sample, as indices into `rows`; None for all of them."""
        if self.sample is None:
            return None
        return np.flatnonzero(self.sample.select(batch)[rows])

    def build(self, events: ScoredEvents, encoder: FeatureEncoder) -> FeatureRecords:
        """Build one record for each event; leave out and count the records that cannot be encoded or are too large."""
        if not len(events.rows):
            return FeatureRecords(events.rows, [])
        return merged(self._encodable(events, encoder))

    def _encodable(self, events: ScoredEvents, encoder: FeatureEncoder) -> list[FeatureRecords]:
        """Encode the records in parts, and leave out the events that cannot be encoded.

        A part that cannot be encoded is halved, until it consists of the failing event. After MAX_FAILURES failures, a failing
        part is left out without being halved, so that a batch full of such events does not delay its scores.
        """
        parts: list[FeatureRecords] = []
        pending = [events]
        failures = 0
        while pending:
            part = pending.pop()
            count = len(part.rows)
            try:
                encoded = self._without_oversize(part.rows, self._encode(part, encoder))
                parts.append(encoded if not failures else FeatureRecords(encoded.rows, list(encoded.records), encoded.dropped))
            except Exception:  # the score must be published all the same
                failures += 1
                if count > 1 and failures < MAX_FAILURES:
                    pending += [part.part(count // 2, count), part.part(0, count // 2)]
                    continue
                # The text has no numbers, so that the log suppresses repetitions.
                log.exception("feature records could not be encoded, and are left out")
                parts.append(FeatureRecords(part.rows[:0], [], Counter({FAILED: count})))
        return parts

    def _encode(self, events: ScoredEvents, encoder: FeatureEncoder) -> Sequence[Record]:
        batch = events.batch
        rows = events.rows
        columns = _event_columns(batch, rows, events.ids)
        pieces = encoder.pieces(columns, events.tensors, events.answers, events.scored_ms)
        partitions = np.array([number % self.partitions for _, number in columns.places], np.int32)[columns.lanes]
        plugin = librdkafka_plugin()
        if plugin is not None and isinstance(batch, ColumnarBatch):
            keys = batch.columns.keys if len(rows) == len(batch) else _compact(batch.columns.keys.part(rows))
            return ColumnarRecords(plugin, self.topic, pieces, partitions, columns.times, keys)
        values = texts_of(pieces, len(rows))
        keys_listed = [batch.keys[row] for row in rows.tolist()]
        times = columns.times.tolist()
        return [
            (self.topic, value, key, partition, time, None)
            for value, key, partition, time in zip(values, keys_listed, partitions.tolist(), times, strict=True)
        ]

    def _without_oversize(self, rows: NDArray[np.intp], records: Sequence[Record]) -> FeatureRecords:
        """Return the records of these rows, without those that are too large for the topic."""
        if isinstance(records, ColumnarRecords) and records.largest_record <= self.room:
            return FeatureRecords(rows, records)
        fits = np.array([len(value or b"") + len(key or b"") <= self.room for _, value, key, *_ in records], np.bool_)
        if fits.all():
            return FeatureRecords(rows, records)
        fitting = [record for record, is_fitting in zip(records, fits.tolist(), strict=True) if is_fitting]
        return FeatureRecords(rows[fits], fitting, Counter({OVERSIZE: int(np.count_nonzero(~fits))}))


def merged(parts: Sequence[FeatureRecords]) -> FeatureRecords:
    """Concatenate feature records. The rows of each item of `parts` are greater than the rows of the items before it."""
    if len(parts) == 1:
        return parts[0]
    dropped: Counter[str] = Counter()
    for part in parts:
        dropped.update(part.dropped)
    rows = np.concatenate([part.rows for part in parts])
    return FeatureRecords(rows, [record for part in parts for record in part.records], dropped)


def in_order(parts: Sequence[FeatureRecords]) -> Sequence[FeatureRecords]:
    """Return the records of all parts in the order of their events.

    A reader that searches the feature log for an event can then stop at the first record of a later event.
    """
    filled = [part for part in parts if len(part.records)]
    if all(before.rows[-1] < after.rows[0] for before, after in pairwise(filled)):
        return filled
    rows = np.concatenate([part.rows for part in filled])
    records = [record for part in filled for record in part.records]
    order = np.argsort(rows)
    return [FeatureRecords(rows[order], [records[index] for index in order.tolist()])]


def encode_ids(ids: Sequence[str]) -> ByteColumn:
    """Return ids as a column, encoded as the content of JSON strings."""
    return column_of([orjson.dumps(text)[1:-1] for text in ids])


def select_tensors(tensors: Mapping[str, NDArray[Any]], at: NDArray[np.intp] | None) -> Mapping[str, NDArray[Any]]:
    """Return the rows `at` of all tensors; the tensors themselves if `at` is None."""
    return tensors if at is None else {name: tensor[at] for name, tensor in tensors.items()}


def _event_columns(batch: Batch, rows: NDArray[np.intp], ids: ByteColumn) -> EventColumns:
    if isinstance(batch, ColumnarBatch):
        columns = batch.columns
        if len(rows) == len(batch):
            return EventColumns(ids, columns.places, columns.lanes, columns.offsets, columns.times)
        return EventColumns(ids, columns.places, columns.lanes[rows], columns.offsets[rows], columns.times[rows])
    listed = rows.tolist()
    places = list(batch.last)
    lane_of = {place: lane for lane, place in enumerate(places)}
    return EventColumns(
        ids,
        places,
        np.array([lane_of[batch.places[row]] for row in listed], np.int32),
        np.array([batch.offsets[row] for row in listed], np.int64),
        np.array([batch.timestamps[row] for row in listed], np.int64),
    )


def _compact(keys: ByteColumn) -> ByteColumn:
    """Return the keys as a column whose texts follow each other without gaps, as `ColumnarRecords` requires."""
    plugin = librdkafka_plugin()
    assert plugin is not None
    column = joined(plugin, [RecordPiece(keys)], len(keys))
    return ByteColumn(column.text, column.starts, column.ends, keys.nulls)
