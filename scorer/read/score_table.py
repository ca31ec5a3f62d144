"""Read the scores of a time range as a table, in bounded memory: committed records only, without a consumer group."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Message

from publisher.errors import USAGE, Fatal
from publisher.kafka.reader import TopicReader
from publisher.kafka.skipped_records import SkippedRecords
from publisher.runtime.progress_bars import ShowProgress, ignore_progress, read_with_progress
from publisher.runtime.time_range import ALWAYS, TimeRange, resolve_time
from scorer.data_files.arrow import MixedTypes, fits, infer_type, known_type, load_pyarrow
from scorer.evaluation.join_labels import FORMAT_HINT, spans_of_window
from scorer.read.newest_labels import NewestLabels, read_newest_labels
from scorer.read.score_rows import ScoreRows, arrow_schema
from scorer.scores import formats
from scorer.scores.decode_record import FullScoreRecord, decode_full_record
from scorer.settings import Settings, load

if TYPE_CHECKING:
    import pandas
    import pyarrow

log = logging.getLogger(__name__)

CHUNK_ROWS = 1 << 14
CHUNK_BYTES = 16 << 20
"""A chunk of rows is complete at CHUNK_ROWS rows or at CHUNK_BYTES bytes of encoded records."""
MAX_UNTYPED = 1 << 17  # rows without any score that are held until a score shows the type
TEXT_HINT = "read scores as JSON text: --score-text, or score_text=True"


@dataclass(frozen=True, slots=True)
class ScoreTable:
    """The scores of a time range. Each iteration and each method reads the topic again.

    Iterating yields `pyarrow.RecordBatch` objects of one schema. The rows of one input partition are in the order of its
    events.

    Attributes:
        settings: the settings of the scorer.
        window: the time range of the events.
        labels: whether the columns `label` and `label_time` are added.
        score_text: whether the column `score` is JSON text.
    """

    settings: Settings
    window: TimeRange = ALWAYS
    labels: bool = False
    score_text: bool = False

    def __iter__(self) -> "Iterator[pyarrow.RecordBatch]":
        """Yield the scores as record batches, at least one, which may be empty.

        Raises:
            Fatal: the topic cannot be read, no record is a score, the scores have no common type, or pyarrow is missing.
        """
        load_pyarrow()
        return (rows.record_batch() for rows in self.typed_rows(ignore_progress))

    def to_arrow(self) -> "pyarrow.Table":
        """Return all scores as a table. Raises the errors of an iteration."""
        return load_pyarrow().Table.from_batches(list(self))

    def to_pandas(self) -> "pandas.DataFrame":
        """Return all scores as a data frame, which needs pandas. Raises the errors of an iteration."""
        return self.to_arrow().to_pandas()

    def rows(self, show: ShowProgress) -> Iterator[ScoreRows]:
        """Yield the scores in chunks without Arrow types, at least one chunk, and show the progress. Raises Fatal."""
        reader = TopicReader(self.settings.kafka, f"{self.settings.name}.read")
        labels = read_newest_labels(reader, self.settings, show) if self.labels else None
        yield from self._rows(reader, labels, show)

    def typed_rows(self, show: ShowProgress) -> Iterator[ScoreRows]:
        """Yield the scores in chunks with one Arrow schema, at least one chunk, and show the progress. Raises Fatal."""
        pa = load_pyarrow()
        reader = TopicReader(self.settings.kafka, f"{self.settings.name}.read")
        labels = read_newest_labels(reader, self.settings, show) if self.labels else None
        label_type = None
        if labels is not None:
            label_type = pa.float64() if labels.are_numbers else pa.dictionary(pa.int32(), pa.string())
        carry = self.settings.output.carry
        for score_type, rows in _with_score_type(self._rows(reader, labels, show)):
            yield rows.with_schema(arrow_schema(score_type, carry, label_type))

    def _rows(self, reader: TopicReader, labels: NewestLabels | None, show: ShowProgress) -> Iterator[ScoreRows]:
        carry = self.settings.output.carry
        for records in read_records(reader, self.settings, self.window, show):
            columns = None if labels is None else labels.look_up([record.id for record in records])
            rows = ScoreRows.from_records(records, carry, columns)
            yield rows.with_score_text() if self.score_text else rows


def scores(
    config: str | Path | Mapping[str, Any],
    *,
    since: str | datetime | timedelta | None = None,
    until: str | datetime | timedelta | None = None,
    labels: bool = False,
    score_text: bool = False,
) -> ScoreTable:
    """Return the scores of the events in a time range. The topic is read when the result is iterated or converted.

    Args:
        config: the configuration of the scorer: the path of the file, or its content as a mapping.
        since: the earliest time of the events: a datetime, ISO 8601 or Unix ms as text, or a duration before now (`"1h"` or a
            timedelta). None for all scores that the topic retains.
        until: the end of the range (exclusive), in the same forms as `since`; None for the present.
        labels: whether to add the newest label of each event as `label` and `label_time`. The whole topic of labels is read.
        score_text: whether scores are JSON text, which is necessary if the range has scores of different forms, for example
            numbers and vectors.

    Raises:
        SettingsError: the configuration is not valid.
        ValueError: a time is not valid, or `since` is not before `until`.
    """
    path = Path(config) if isinstance(config, str) else config
    return ScoreTable(load(path).settings, window_of(since, until), labels, score_text)


def window_of(since: str | datetime | timedelta | None, until: str | datetime | timedelta | None) -> TimeRange:
    """Return the time range from `since` to `until`; see `scores`. Raises ValueError."""
    window = TimeRange(*(None if when is None else resolve_time(when) for when in (since, until)))
    if window.from_ms is not None and window.to_ms is not None and window.from_ms >= window.to_ms:
        raise ValueError(f"the start {since} is not before the end {until}")
    return window


def read_records(
    reader: TopicReader, settings: Settings, window: TimeRange, show: ShowProgress = ignore_progress
) -> Iterator[list[FullScoreRecord]]:
    """Yield the committed score records with timestamps in a time range, in lists of bounded size.

    The last list may be empty. Unreadable records are logged and skipped.

    Raises:
        Fatal: the topic cannot be read, or records were read and none is a score.
    """
    topic = settings.output.topic
    spans = spans_of_window(reader, topic, window)
    as_json = formats.as_json(settings)
    skipped = SkippedRecords(log)
    readable = 0
    size = 0
    records: list[FullScoreRecord] = []
    for batch in read_with_progress(reader, spans, show, "reading scores"):
        for message, offset in zip(batch.messages, batch.offsets, strict=True):
            if not window.contains(message.timestamp()[1]):
                continue
            try:
                records.append(decode_full_record(as_json(message.value() or b"null")))
            except ValueError as error:
                skipped.skip(*batch.partition, offset, error)
                continue
            readable += 1
            size += _bytes(message)
            if len(records) >= CHUNK_ROWS or size >= CHUNK_BYTES:
                yield records
                records = []
                size = 0
    if (unreadable := skipped.counts.total()) and not readable:
        raise Fatal(f"{topic} has {unreadable:,} records in this range, and none is a readable score", FORMAT_HINT, USAGE)
    yield records


def _bytes(message: Message) -> int:
    return len(message.value() or b"")


def _with_score_type(chunks: Iterable[ScoreRows]) -> Iterator[tuple[Any, ScoreRows]]:
    """Yield each chunk of rows with the Arrow type of its scores. The first chunk with scores determines the type.

    Raises:
        Fatal: a later score does not fit into this type.
    """
    pa = load_pyarrow()
    column_type = None
    untyped: list[ScoreRows] = []
    for rows in chunks:
        try:
            type_ = infer_type(rows.columns["score"])
        except MixedTypes as error:
            raise _mixed(rows, str(error)) from None
        if column_type is not None and not fits(type_, column_type):
            raise _mixed(rows, f"{type_} after {column_type}")
        if column_type is not None:
            yield column_type, rows
            continue
        untyped.append(rows)
        if not pa.types.is_null(type_) or sum(map(len, untyped)) > MAX_UNTYPED:
            column_type = known_type(type_)
            yield from ((column_type, each) for each in untyped)
            untyped = []
    yield from ((known_type(pa.null()), each) for each in untyped)


def _mixed(rows: ScoreRows, error: str) -> Fatal:
    versions = ", ".join(dict.fromkeys(rows.columns["version"]))
    return Fatal(f"the scores have no common type: {error} (versions {versions})", TEXT_HINT, USAGE)
