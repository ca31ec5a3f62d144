"""The score records of a plain batch as columns: what `RecordEncoder` writes, without an object an event.

A batch is plain if it was taken natively, headers say no more of its events than ids and deadlines to come, each was decoded
natively and has a finite score of one output, and the records are JSON without headers. All others go the way of `scoring.py`,
with the same result.
"""

from collections.abc import Sequence

import numpy as np
import orjson

from scorer.events.batch import Batch
from scorer.events.identity import lane
from scorer.events.native.bus import bus
from scorer.events.native.records import PackedRecords, Piece, chosen, constant
from scorer.events.native.scanner import Ids
from scorer.events.native.texts import Texts
from scorer.events.packed import PackedBatch
from scorer.scores.record import RecordEncoder, Scores, decision_piece, source_piece


def packed(
    batch: Batch,
    ids: Sequence[str | int | None] | Texts,
    scores: Scores,
    encoder: RecordEncoder,
    topic: str,
    partitions: int,
    scored_ms: int,
) -> PackedRecords | None:
    """A record for every event of a batch, to a topic of so many partitions; None where the batch is not plain. `ids` are those
    of a field, or the texts of a header."""
    native = bus()
    if native is None or not isinstance(batch, PackedBatch) or not isinstance(ids, Ids | Texts) or not encoder.plain:
        return None
    columns, joined = batch.columns, scores.joined()
    if joined is None or batch.carried is not None:
        return None
    count, lanes = len(columns), columns.lanes
    names = ids if isinstance(ids, Texts) else ids.texts()
    if names is not None:
        beginning = [constant(b'{"id":"', count), Piece(names)]
    elif isinstance(ids, Ids) and ids.absent():
        prefixes = [lane(encoder.provenance["region"], *place) for place in columns.places]
        beginning = [
            chosen([b'{"id":' + orjson.dumps(prefix)[:-1] for prefix in prefixes], lanes),
            Piece(numbers=columns.offsets),
        ]
    else:
        return None
    decisions, which = scores.decided()
    pieces = [
        *beginning,
        constant(b'","score":', count),
        Piece(Texts.split(joined[0], 1, joined[1])),
        chosen(list(map(decision_piece, decisions)), which),
        chosen([source_piece(place) for place in columns.places], lanes),
        Piece(numbers=columns.offsets),
        constant(b'},"event_ms":', count),
        Piece(numbers=columns.times),
        constant(encoder.tail("scored", scored_ms), count),
    ]
    out = np.array([partition % partitions for _, partition in columns.places], np.int32)[lanes]
    return PackedRecords(native, topic, pieces, out, columns.times, columns.keys)
