"""The score records of a plain batch as columns: what `RecordEncoder` writes, without an object an event.

A batch is plain if it was taken natively and is large enough, headers say no more of its events than ids and deadlines to come,
each has a finite score of one output, and the records are JSON without headers. All others are made one by one, with
the same result.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import orjson
from numpy.typing import NDArray

from scorer.decoding.batch import Batch
from scorer.decoding.columnar_batch import ColumnarBatch
from scorer.decoding.headers import field_ids, partition_prefix
from scorer.native.byte_columns import AsciiColumn, ByteColumn
from scorer.native.fetch import MessageColumns
from scorer.native.librdkafka import librdkafka_plugin
from scorer.native.produce_records import ColumnarRecords, RecordPiece, chosen, constant
from scorer.native.scanner import IdColumn
from scorer.scores.outputs import Scores
from scorer.scores.record import RecordEncoder, decision_piece, source_piece
from scorer.settings.carry import Row

FieldIds = Sequence[str | int | None]
FEWEST = 100
"""Events of a batch that are worth it: columns cost about 150 us more than lists, and save more than 1.5 us an event."""
QUOTE, COMMA, BRACKET = b'",]'


@dataclass(frozen=True, slots=True)
class VersionScores:
    """What one version answers of a batch: scores for the rows `at` ((n,), ascending), and what encodes them."""

    at: NDArray[np.intp]
    scores: Scores
    encoder: RecordEncoder


def packed(
    batch: Batch,
    ids: FieldIds | ByteColumn,
    parts: Sequence[VersionScores],
    topic: str,
    partitions: int,
    scored_ms: int,
    carried: Sequence[Row | None] | None = None,
) -> ColumnarRecords | None:
    """A record for every event of a batch, to a topic of so many partitions; None where the batch is not plain. `parts` have
    each row once; `ids` are those of a field, or the texts of a header; `carried` are the events' carried fields, None where
    there are none."""
    native, encoder = librdkafka_plugin(), parts[0].encoder
    if native is None or not isinstance(batch, ColumnarBatch) or len(batch) < FEWEST:
        return None
    if batch.carried is not None or not encoder.plain:
        return None
    columns = batch.columns
    if (scores := _scores(parts, len(columns))) is None or (named := _ids(ids, columns, encoder.provenance["region"])) is None:
        return None
    count, lanes = len(columns), columns.lanes
    decisions, which = _decisions(parts, count)
    last = _ends([part.encoder.tail("scored", scored_ms) for part in parts], parts, count)
    pieces = [
        constant(b'{"id":"', count),
        *named,
        constant(b'","score":', count),
        RecordPiece(scores),
        chosen(list(map(decision_piece, decisions)), which),
        chosen([source_piece(place) for place in columns.places], lanes),
        RecordPiece(numbers=columns.offsets),
        constant(b'},"event_ms":', count),
        RecordPiece(numbers=columns.times),
        *_with_carried(encoder, last, carried, count),
    ]
    out = np.array([partition % partitions for _, partition in columns.places], np.int32)[lanes]
    return ColumnarRecords(native, topic, pieces, out, columns.times, columns.keys)


def _scores(parts: Sequence[VersionScores], count: int) -> ByteColumn | None:
    """The scores of all parts by their rows; None where some have no plain form."""
    found: list[ByteColumn] = []
    for part in parts:
        if (joined := part.scores.joined()) is None:
            return None
        found.append(ByteColumn.split(joined[0], 1, joined[1]))
    if len(found) == 1:
        return found[0]
    starts, ends, base = np.empty(count, np.int64), np.empty(count, np.int64), 0
    for part, texts in zip(parts, found, strict=True):
        starts[part.at], ends[part.at] = texts.starts + base, texts.ends + base
        base += len(texts.text)
    return ByteColumn(np.concatenate([texts.text for texts in found]), starts, ends)


def _decisions(parts: Sequence[VersionScores], count: int) -> tuple[Sequence[str | None], NDArray[np.int32]]:
    """All decisions that the parts know, and for each row which of them it is."""
    if len(parts) == 1:
        return parts[0].scores.decided()
    names: list[str | None] = []
    which = np.empty(count, np.int32)
    for part in parts:
        known, each = part.scores.decided()
        which[part.at] = each + len(names)
        names += known
    return names, which


def _ends(tails: Sequence[bytes], parts: Sequence[VersionScores], count: int) -> tuple[Sequence[bytes], NDArray[np.int32]]:
    """What stands behind an event's time, of each part, and for each row whose part it is."""
    which = np.zeros(count, np.int32)
    for number, part in enumerate(parts[1:], start=1):
        which[part.at] = number
    return tails, which


def _with_carried(
    encoder: RecordEncoder,
    ends: tuple[Sequence[bytes], NDArray[np.int32]],
    carried: Sequence[Row | None] | None,
    count: int,
) -> list[RecordPiece]:
    """What stands behind an event's time: the same in all of a part, and what each carries."""
    tails, which = ends
    if not encoder.carry:
        return [chosen(tails, which)]
    column = encoder.carried_column(carried or [None] * count)
    each = chosen(column, np.arange(count, dtype=np.int32))
    return [chosen([tail[:-1] + b',"carried":' for tail in tails], which), each, constant(b"}", count)]


def _ids(ids: FieldIds | ByteColumn, columns: MessageColumns, region: str) -> list[RecordPiece] | None:
    """The ids between their quotation marks; None where some events have one and others have none, or an empty one."""
    if isinstance(ids, ByteColumn):
        return _named(ids)
    if isinstance(ids, AsciiColumn):
        return _named(ids.texts)
    if isinstance(ids, IdColumn) and (texts := ids.texts()) is not None:
        return _named(texts)
    absent = len(columns) if isinstance(ids, IdColumn) and ids.absent() else list(ids).count(None)
    if absent == len(columns):
        prefixes = [orjson.dumps(partition_prefix(region, *place))[1:-1] for place in columns.places]
        return [chosen(prefixes, columns.lanes), RecordPiece(numbers=columns.offsets)]
    names = None if absent else field_ids(ids)
    return None if names is None else _listed(names)


def _named(ids: ByteColumn) -> list[RecordPiece] | None:
    """The ids as they are, None if one is empty: it identifies nothing, and counts as absent."""
    return None if ids.any_empty() else [RecordPiece(ids)]


def _listed(ids: list[str]) -> list[RecordPiece] | None:
    """Ids that are there as strings; None where one contains what stands between two of them in JSON."""
    text = orjson.dumps(ids)
    each = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero((each[:-1] == QUOTE) & ((each[1:] == COMMA) | (each[1:] == BRACKET)))
    if text.count(b'","') != len(ids) - 1 or len(ends) != len(ids):
        return None
    return [RecordPiece(ByteColumn.split(text, 2, ends, between=3))]
