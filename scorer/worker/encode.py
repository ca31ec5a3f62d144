"""The last stage of the pipeline: encode the score records of answered events.

If a whole batch meets the conditions in `columnar_records.py`, its records are encoded as columns. Other records are
encoded one by one, with the same result.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat

import numpy as np

from publisher.transactions.session import Record
from scorer.dead_letters.reasons import Poison, Reason
from scorer.decoding.batch import Batch, Headers, select_rows
from scorer.native.produce_records import ColumnarRecords
from scorer.scores.answer import BatchAnswers
from scorer.scores.columnar_records import VersionScores, packed
from scorer.scores.record import RecordEncoder
from scorer.settings import Settings
from scorer.settings.carry import Row
from scorer.topics import RECORD_OVERHEAD
from scorer.worker.read_headers import BatchHeaders, FieldId


@dataclass(frozen=True, slots=True)
class TargetTopic:
    """A topic to write records to, with the number of partitions in use and the largest accepted record in bytes."""

    topic: str
    partitions: int
    max_bytes: int

    @property
    def room(self) -> int:
        """The largest size of key and value together, in bytes."""
        return max(0, self.max_bytes - RECORD_OVERHEAD)

    def reduced_to(self, current: "TargetTopic") -> "TargetTopic":
        """Return this target with at most as many partitions as `current`, which describes the topic as it is now."""
        return replace(self, partitions=min(self.partitions, current.partitions))


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers to some events of a batch before they are encoded.

    Attributes:
        rows: the indices of the events in the batch, ascending.
        answer: the score and decision of each row, and the status that all rows have.
        ids: the value of the configured id field of each row; None for an event without the field.
        carried: the event fields of `output.carry` of each row; None if no field is configured.
    """

    rows: list[int]
    answer: BatchAnswers
    ids: Sequence[FieldId]
    carried: Sequence[Row | None] | None = None


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """The records of answered rows, all with the same status.

    `rejected` has the errors of the rows that get no record, because it would be too large.
    """

    rows: Sequence[int]
    records: Sequence[Record]
    status: str
    rejected: Mapping[int, Poison] = field(default_factory=dict)


def encode(
    batch: Batch,
    headers: BatchHeaders,
    answers: Answers,
    encoder: RecordEncoder,
    settings: Settings,
    target: TargetTopic,
    at_ms: int,
) -> EncodedRows:
    """Encode the records of answered events with `at_ms` (Unix ms) as the time of scoring."""
    rows = answers.rows
    answer = answers.answer
    if answer.columns is not None and len(rows) == len(batch):
        version_scores = [VersionScores(np.arange(len(rows)), answer.columns, encoder)]
        columns = encode_columns(batch, headers, version_scores, answers, settings, target, at_ms)
        if columns is not None:
            return EncodedRows(rows, columns, answer.status)
    keys = select_rows(batch.keys, rows)
    ids = headers.ids(batch, rows, answers.ids, settings.region)
    values = _encode_values(batch, answers, ids, encoder, target, at_ms)
    records = list(
        zip(
            repeat(target.topic, len(rows)),
            values,
            keys,
            [partition % target.partitions for partition in select_rows(batch.partitions, rows)],
            select_rows(batch.timestamps, rows),
            _record_headers(batch, answers, ids, encoder, settings),
            strict=True,
        )
    )
    if max(map(len, values), default=0) + max(map(len, filter(None, keys)), default=0) > target.room:
        return _without_oversize(rows, records, answer.status, target)
    return EncodedRows(rows, records, answer.status)


def encode_columns(
    batch: Batch,
    headers: BatchHeaders,
    scores: Sequence[VersionScores],
    answers: Answers,
    settings: Settings,
    target: TargetTopic,
    at_ms: int,
) -> ColumnarRecords | None:
    """Encode the records of a whole batch as columns.

    Return None if the batch does not meet the conditions for columns (see `columnar_records.py`), or if a record would be too
    large for the output topic.

    Args:
        batch: the batch.
        headers: the ids and deadlines in its headers.
        scores: the scores of each version. Exactly one version has scored each row.
        answers: the ids and the carried fields of all rows.
        settings: the settings of the scorer.
        target: the output topic.
        at_ms: the time of scoring in Unix ms.
    """
    if headers.values is not None or settings.output.headers:
        return None
    ids = headers.names or answers.ids
    records = packed(batch, ids, scores, target.topic, target.partitions, at_ms, answers.carried)
    return records if records is not None and records.largest_record <= target.room else None


def _encode_values(
    batch: Batch, answers: Answers, ids: Sequence[str], encoder: RecordEncoder, target: TargetTopic, at_ms: int
) -> Sequence[bytes]:
    """Encode the values of score records. A value that would be too large is encoded without the fields of `output.carry`."""
    rows = answers.rows
    answer = answers.answer
    positions = select_rows(batch.places, rows), select_rows(batch.offsets, rows), select_rows(batch.timestamps, rows)
    columns = ids, answer.scores, answer.decisions, *positions, answer.status, at_ms
    values = encoder.encode(*columns, answers.carried)
    if not answers.carried:
        return values
    sizes = [len(value) + len(key or b"") for value, key in zip(values, select_rows(batch.keys, rows), strict=True)]
    if max(sizes) <= target.room:
        return values
    records_without_ends = encoder.encode(*columns, None)
    return [
        value if size <= target.room else other for value, other, size in zip(values, records_without_ends, sizes, strict=True)
    ]


def _record_headers(
    batch: Batch, answers: Answers, ids: Sequence[str], encoder: RecordEncoder, settings: Settings
) -> Sequence[Headers]:
    """Return the headers of the records: first the headers of `output.headers`, then the headers copied from the event."""
    names = settings.output.headers
    answer = answers.answer
    headers: Sequence[Headers] = [None] * len(answers.rows)
    if names:
        headers = encoder.headers(names, ids, answer.decisions, answer.status)
    if batch.carried is not None:
        carried = select_rows(batch.carried, answers.rows)
        headers = [[*(own_headers or ()), *more] for own_headers, more in zip(headers, carried, strict=True)]
    return headers


def _without_oversize(rows: list[int], records: Sequence[Record], status: str, target: TargetTopic) -> EncodedRows:
    """Separate the rows whose record fits the topic from the rows that are rejected because their record is too large."""
    fitting: list[tuple[int, Record]] = []
    rejected: dict[int, Poison] = {}
    for row, record in zip(rows, records, strict=True):
        _, value, key, *_ = record
        size = len(value or b"")
        if size + len(key or b"") > target.room:
            error = f"the score record has {size} bytes without its key; the limit of {target.topic} is {target.max_bytes}"
            rejected[row] = Poison(Reason.SCORE_OVERSIZE, error)
        else:
            fitting.append((row, record))
    return EncodedRows([row for row, _ in fitting], [record for _, record in fitting], status, rejected)
