"""Encoding of the score records of a batch as columns, without a Python object per event.

The batch must be a large `ColumnarBatch`, and its headers may contain only ids and deadlines in the future. Each event must
have a finite score of one output, and the records must be JSON without headers. `RecordEncoder` encodes all other batches. Both
encoders produce the same bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import orjson
from numpy.typing import NDArray

from scorer.decoding.batch import Batch
from scorer.decoding.columnar_batch import ColumnarBatch
from scorer.decoding.event_id import field_ids, partition_prefix
from scorer.native.byte_columns import AsciiColumn, ByteColumn
from scorer.native.fetch import MessageColumns
from scorer.native.librdkafka import librdkafka_plugin
from scorer.native.produce_records import ColumnarRecords, RecordPiece, chosen, constant
from scorer.native.scanner import IdColumn
from scorer.scores.outputs import Scores
from scorer.scores.record import RecordEncoder, decision_piece, source_piece
from scorer.settings.carry import Row

FieldIds = Sequence[str | int | None]
MIN_EVENTS = 100
"""The minimum number of events of a batch. Encoding as columns costs 150 us more per batch, and saves over 1.5 us per event."""
QUOTE, COMMA, BRACKET = b'",]'


@dataclass(frozen=True, slots=True)
class VersionScores:
    """The scores that one version gave to some rows of a batch, and the version's encoder.

    `at` has the indices of the rows, (n,), ascending.
    """

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
    """Encode a record for every event of a batch as columns; None if the batch must be encoded row by row.

    Args:
        batch: the fetched events.
        ids: the values of the configured id field, or the values of the id header.
        parts: the scores of each version, which together cover each row once.
        topic: the output topic.
        partitions: the number of partitions of the output topic.
        scored_ms: the time of scoring in Unix ms.
        carried: the carried fields (`output.carry`) of each event; None if no fields are configured.
    """
    native = librdkafka_plugin()
    encoder = parts[0].encoder
    if native is None or not isinstance(batch, ColumnarBatch) or len(batch) < MIN_EVENTS:
        return None
    if batch.carried is not None or not encoder.plain:
        return None
    columns = batch.columns
    scores = _join_scores(parts, len(columns))
    own_ids = None if scores is None else id_pieces(ids, columns, encoder.provenance["region"])
    if scores is None or own_ids is None:
        return None
    count = len(columns)
    lanes = columns.lanes
    decisions, indices = _join_decisions(parts, count)
    last = _join_ends([part.encoder.tail("scored", scored_ms) for part in parts], parts, count)
    pieces = [
        constant(b'{"id":"', count),
        *own_ids,
        constant(b'","score":', count),
        RecordPiece(scores),
        chosen(list(map(decision_piece, decisions)), indices),
        chosen([source_piece(place) for place in columns.places], lanes),
        RecordPiece(numbers=columns.offsets),
        constant(b'},"event_ms":', count),
        RecordPiece(numbers=columns.times),
        *_end_pieces(encoder, last, carried, count),
    ]
    out = np.array([partition % partitions for _, partition in columns.places], np.int32)[lanes]
    return ColumnarRecords(native, topic, pieces, out, columns.times, columns.keys)


def _join_scores(parts: Sequence[VersionScores], count: int) -> ByteColumn | None:
    """Return the scores of all versions as JSON texts, in the order of the batch's rows.

    Returns None if the scores of a version cannot be encoded in one text; see `Scores.joined`.
    """
    columns: list[ByteColumn] = []
    for part in parts:
        if (joined := part.scores.joined()) is None:
            return None
        columns.append(ByteColumn.split(joined[0], 1, joined[1]))
    if len(columns) == 1:
        return columns[0]
    starts = np.empty(count, np.int64)
    ends = np.empty(count, np.int64)
    base = 0
    for part, texts in zip(parts, columns, strict=True):
        starts[part.at] = texts.starts + base
        ends[part.at] = texts.ends + base
        base += len(texts.text)
    return ByteColumn(np.concatenate([texts.text for texts in columns]), starts, ends)


def _join_decisions(parts: Sequence[VersionScores], count: int) -> tuple[Sequence[str | None], NDArray[np.int32]]:
    """Return the possible decisions of all versions, and for each row the index of its decision."""
    if len(parts) == 1:
        return parts[0].scores.decided()
    names: list[str | None] = []
    indices = np.empty(count, np.int32)
    for part in parts:
        part_decisions, part_indices = part.scores.decided()
        indices[part.at] = part_indices + len(names)
        names += part_decisions
    return names, indices


def _join_ends(tails: Sequence[bytes], parts: Sequence[VersionScores], count: int) -> tuple[Sequence[bytes], NDArray[np.int32]]:
    """Return `tails`, and for each row of the batch the index in `tails` of the version that scored the row.

    `tails` has the result of `RecordEncoder.tail` for each version, in the order of `parts`.
    """
    indices = np.zeros(count, np.int32)
    for number, part in enumerate(parts[1:], start=1):
        indices[part.at] = number
    return tails, indices


def _end_pieces(
    encoder: RecordEncoder,
    ends: tuple[Sequence[bytes], NDArray[np.int32]],
    carried: Sequence[Row | None] | None,
    count: int,
) -> list[RecordPiece]:
    """Return the pieces of each record after the event's time: the tail of its version, and its carried fields.

    Args:
        encoder: encodes the carried fields.
        ends: the tails of the versions, and for each record the index of its tail; see `_join_ends`.
        carried: the carried fields of each event; None if no fields are configured.
        count: the number of records.
    """
    tails, indices = ends
    if not encoder.carry:
        return [chosen(tails, indices)]
    column = encoder.carried_column(carried or [None] * count)
    end_of_row = chosen(column, np.arange(count, dtype=np.int32))
    return [chosen([tail[:-1] + b',"carried":' for tail in tails], indices), end_of_row, constant(b"}", count)]


def id_pieces(ids: FieldIds | ByteColumn, columns: MessageColumns, region: str) -> list[RecordPiece] | None:
    """Return the pieces that form the id of each record, encoded as the content of a JSON string.

    If no event has an id, the ids are the positions of the events, which begin with `region`.

    Returns:
        The pieces; None if an id is empty, if only some of the events have an id, or if the ids cannot be encoded together.
    """
    if isinstance(ids, ByteColumn):
        return _require_ids(ids)
    if isinstance(ids, AsciiColumn):
        return _require_ids(ids.texts)
    if isinstance(ids, IdColumn) and (texts := ids.texts()) is not None:
        return _require_ids(texts)
    absent = len(columns) if isinstance(ids, IdColumn) and ids.absent() else list(ids).count(None)
    if absent == len(columns):
        prefixes = [orjson.dumps(partition_prefix(region, *place))[1:-1] for place in columns.places]
        return [chosen(prefixes, columns.lanes), RecordPiece(numbers=columns.offsets)]
    names = None if absent else field_ids(ids)
    return None if names is None else _encode_ids(names)


def _require_ids(ids: ByteColumn) -> list[RecordPiece] | None:
    """Return one piece with these ids; None if an id is empty, which counts as absent."""
    return None if ids.any_empty() else [RecordPiece(ids)]


def _encode_ids(ids: list[str]) -> list[RecordPiece] | None:
    """Return one piece with these ids as the content of JSON strings; None if they cannot be encoded together."""
    # All ids are encoded in one JSON text, which is then split. That fails if an id contains the characters at which it is
    # split.
    text = orjson.dumps(ids)
    characters = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero((characters[:-1] == QUOTE) & ((characters[1:] == COMMA) | (characters[1:] == BRACKET)))
    if text.count(b'","') != len(ids) - 1 or len(ends) != len(ids):
        return None
    return [RecordPiece(ByteColumn.split(text, 2, ends, between=3))]
