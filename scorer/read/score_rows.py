"""Rows of scores as columns: their names, and their conversion to JSON, CSV and Arrow. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import orjson

from publisher.runtime.time_range import iso_time
from scorer.data_files.arrow import load_pyarrow
from scorer.scores.decode_record import FullScoreRecord
from scorer.settings.carry import CarriedField

NAMES = (
    "id",
    "score",
    "decision",
    "status",
    "model",
    "version",
    "digest",
    "role",
    "arm",
    "revision",
    "fallback",
    "source_topic",
    "source_partition",
    "source_offset",
    "event_time",
    "scored_time",
    "region",
)
"""The columns of a score, without labels and carried fields (`output.carry`). The times are in Unix ms."""
CATEGORIES = frozenset(
    {"decision", "status", "model", "version", "digest", "role", "arm", "fallback", "source_topic", "region"}
)
TIMES = frozenset({"event_time", "scored_time", "label_time"})
LABEL_NAMES = ("label", "label_time")
CARRIED = "carried_"


class LabelColumns(NamedTuple):
    """The label of each row (a class name or a number), and its time in Unix ms. Both are None for a row without a label."""

    labels: list[str | float | None]
    times: list[int | None]


class ScoreRows:
    """Rows of scores as columns of Python values; see `TableRows`.

    Args:
        columns: the values of each column, by the name of the column. All lists have the same length.
        schema: the Arrow schema (see `arrow_schema`); None if `record_batch` is never called.
    """

    def __init__(self, columns: dict[str, list[Any]], schema: Any = None) -> None:
        self.columns = columns
        self._schema = schema

    @classmethod
    def from_records(
        cls, records: Sequence[FullScoreRecord], carry: Sequence[CarriedField], labels: LabelColumns | None
    ) -> "ScoreRows":
        """Create rows from records, with a column for each field in `carry`. Omit the label columns if `labels` is None."""
        columns: dict[str, list[Any]] = dict(zip(NAMES, map(list, _transpose(map(_values, records), len(NAMES))), strict=True))
        for field in carry:
            columns[CARRIED + field.name] = [_carried_value(record, field) for record in records]
        if labels is not None:
            columns |= dict(zip(LABEL_NAMES, labels, strict=True))
        return cls(columns)

    def __len__(self) -> int:
        return len(self.columns["id"])

    @property
    def names(self) -> Sequence[str]:
        return list(self.columns)

    def json_rows(self) -> Iterator[bytes]:
        names = self.names
        return (orjson.dumps(dict(zip(names, row, strict=True))) for row in self._text_rows())

    def csv_rows(self) -> Iterator[Sequence[str]]:
        return (list(map(_cell, row)) for row in self._text_rows())

    def record_batch(self) -> Any:
        pa = load_pyarrow()
        arrays = []
        for field in self._schema:
            column = self.columns[field.name]
            if pa.types.is_dictionary(field.type):
                arrays.append(pa.array(column, pa.string()).dictionary_encode())
            else:
                arrays.append(pa.array(column, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _text_rows(self) -> Iterable[Sequence[Any]]:
        """Return the rows, with times as ISO 8601."""
        columns = (
            [None if time is None else iso_time(time) for time in column] if name in TIMES else column
            for name, column in self.columns.items()
        )
        return zip(*columns, strict=True)

    def with_schema(self, schema: Any) -> "ScoreRows":
        """Return the same rows with an Arrow schema."""
        return ScoreRows(self.columns, schema)

    def with_score_text(self) -> "ScoreRows":
        """Return a copy whose scores are JSON text."""
        texts = [None if score is None else orjson.dumps(score).decode() for score in self.columns["score"]]
        return ScoreRows({**self.columns, "score": texts})


def arrow_schema(score_type: Any, carry: Sequence[CarriedField], label_type: Any) -> Any:
    """Return the Arrow schema of rows.

    Args:
        score_type: the Arrow type of scores.
        carry: the carried fields. A field without a type is text.
        label_type: the Arrow type of labels; None if rows have no labels.
    """
    pa = load_pyarrow()
    time = pa.timestamp("ms", tz="UTC")
    special = {"id": pa.string(), "score": score_type, "revision": pa.int64()}
    special |= {"source_partition": pa.int32(), "source_offset": pa.int64()}
    special |= dict.fromkeys(TIMES, time) | dict.fromkeys(CATEGORIES, pa.dictionary(pa.int32(), pa.string()))
    fields = [(name, special[name]) for name in NAMES]
    carried = {"long": pa.int64(), "double": pa.float64(), "boolean": pa.bool_()}
    fields += [(CARRIED + field.name, carried.get(field.type or "", pa.string())) for field in carry]
    if label_type is not None:
        fields += [("label", label_type), ("label_time", time)]
    return pa.schema(fields)


def _transpose(rows: Iterable[tuple[Any, ...]], width: int) -> Iterable[Sequence[Any]]:
    return list(zip(*rows, strict=True)) or [()] * width


def _values(record: FullScoreRecord) -> tuple[Any, ...]:
    """Return the values of a record in the order of NAMES."""
    source = record.source
    return (
        record.id,
        record.score,
        record.decision,
        record.status,
        record.model,
        record.version,
        record.digest,
        record.role,
        record.arm,
        record.revision,
        record.fallback,
        source.topic,
        source.partition,
        source.offset,
        record.event_ms,
        record.scored_ms,
        record.region,
    )


def _carried_value(record: FullScoreRecord, field: CarriedField) -> Any:
    """Return the value of a carried field; as text if the field has no type. None if the record has no such value."""
    value = field.fitted((record.carried or {}).get(field.name))
    if field.type is not None or value is None or isinstance(value, str):
        return value
    return orjson.dumps(value).decode()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else orjson.dumps(value).decode()
