"""The score records of a plain batch as columns: what `RecordEncoder` writes, without an object an event.

A batch is plain if it was taken natively and is large enough, headers say no more of its events than ids and deadlines to come,
each has a finite score of one output, and the records are JSON without headers. All others are made one by one, with
the same result.
"""

from collections.abc import Sequence

import numpy as np
import orjson

from scorer.events.batch import Batch
from scorer.events.identity import lane
from scorer.events.native.bus import bus
from scorer.events.native.records import PackedRecords, Piece, chosen, constant
from scorer.events.native.scanner import Ids
from scorer.events.native.taker import Columns
from scorer.events.native.texts import Texts
from scorer.events.packed import PackedBatch
from scorer.scores.outputs import Scores
from scorer.scores.record import RecordEncoder, decision_piece, source_piece
from scorer.settings.carry import Row

FieldIds = Sequence[str | int | None]
FEWEST = 100
"""Events of a batch that are worth it: columns cost about 150 us more than lists, and save more than 1.5 us an event."""
QUOTE, COMMA, BRACKET = b'",]'


def packed(
    batch: Batch,
    ids: FieldIds | Texts,
    scores: Scores,
    encoder: RecordEncoder,
    topic: str,
    partitions: int,
    scored_ms: int,
    carried: Sequence[Row | None] | None = None,
) -> PackedRecords | None:
    """A record for every event of a batch, to a topic of so many partitions; None where the batch is not plain. `ids` are those
    of a field, or the texts of a header; `carried` are the events' carried fields, None where there are none."""
    native = bus()
    if native is None or not isinstance(batch, PackedBatch) or len(batch) < FEWEST:
        return None
    if batch.carried is not None or not encoder.plain:
        return None
    columns = batch.columns
    if (joined := scores.joined()) is None or (named := _ids(ids, columns, encoder.provenance["region"])) is None:
        return None
    count, lanes = len(columns), columns.lanes
    decisions, which = scores.decided()
    pieces = [
        constant(b'{"id":"', count),
        *named,
        constant(b'","score":', count),
        Piece(Texts.split(joined[0], 1, joined[1])),
        chosen(list(map(decision_piece, decisions)), which),
        chosen([source_piece(place) for place in columns.places], lanes),
        Piece(numbers=columns.offsets),
        constant(b'},"event_ms":', count),
        Piece(numbers=columns.times),
        *_ends(encoder, encoder.tail("scored", scored_ms), carried, count),
    ]
    out = np.array([partition % partitions for _, partition in columns.places], np.int32)[lanes]
    return PackedRecords(native, topic, pieces, out, columns.times, columns.keys)


def _ends(encoder: RecordEncoder, last: bytes, carried: Sequence[Row | None] | None, count: int) -> list[Piece]:
    """What stands behind an event's time: the same in all, and what each carries."""
    if not encoder.carry:
        return [constant(last, count)]
    column = encoder.carried_column(carried or [None] * count)
    each = chosen(column, np.arange(count, dtype=np.int32))
    return [constant(last[:-1] + b',"carried":', count), each, constant(b"}", count)]


def _ids(ids: FieldIds | Texts, columns: Columns, region: str) -> list[Piece] | None:
    """The ids between their quotation marks; None where some events have one and others have none."""
    if isinstance(ids, Texts):
        return [Piece(ids)]
    if isinstance(ids, Ids) and (texts := ids.texts()) is not None:
        return [Piece(texts)]
    absent = len(columns) if isinstance(ids, Ids) and ids.absent() else list(ids).count(None)
    if absent == len(columns):
        prefixes = [orjson.dumps(lane(region, *place))[1:-1] for place in columns.places]
        return [chosen(prefixes, columns.lanes), Piece(numbers=columns.offsets)]
    return None if absent else _listed(list(map(str, ids)))


def _listed(ids: list[str]) -> list[Piece] | None:
    """Ids that are there as strings; None where one contains what stands between two of them in JSON."""
    text = orjson.dumps(ids)
    each = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero((each[:-1] == QUOTE) & ((each[1:] == COMMA) | (each[1:] == BRACKET)))
    if text.count(b'","') != len(ids) - 1 or len(ends) != len(ids):
        return None
    return [Piece(Texts.split(text, 2, ends, between=3))]
