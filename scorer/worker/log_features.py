"""Select and encode the feature records (the model inputs) of the events that a version has scored.

This is the step between the tensors of the pipeline and `features/record_builder.py`. It does not call Kafka.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scorer.decoding.batch import Batch
from scorer.decoding.columnar_batch import ColumnarBatch
from scorer.decoding.types import Decoded
from scorer.features.record_builder import FeatureRecordBuilder, FeatureRecords, ScoredEvents, encode_ids, select_tensors
from scorer.features.record_encoder import AnsweringVersions, FeatureEncoder
from scorer.native.byte_columns import ByteColumn
from scorer.native.librdkafka import librdkafka_plugin
from scorer.native.produce_records import joined
from scorer.scores.columnar_records import id_pieces
from scorer.worker.read_headers import BatchHeaders


@dataclass(frozen=True, slots=True)
class LoggedBatch:
    """A batch whose scored events get feature records: the events, their headers, and the tensors of the decoded events."""

    batch: Batch
    headers: BatchHeaders
    decoded: Decoded

    def build(
        self,
        builder: FeatureRecordBuilder,
        at: NDArray[np.intp] | None,
        encoder: FeatureEncoder,
        answers: AnsweringVersions,
        region: str,
        scored_ms: int,
    ) -> FeatureRecords:
        """Build the feature records of scored events.

        Args:
            builder: builds the records for the topic of the feature log.
            at: the indices of the scored events in `decoded.rows`, ascending; None for all of them.
            encoder: encodes the feature records, in the same way for all versions in `answers`.
            answers: the versions that scored the events.
            region: the region of the input topics.
            scored_ms: the time of scoring in Unix ms, which is also in the score records.
        """
        rows = self._rows(at)
        if (selected := builder.select(self.batch, rows)) is not None:
            rows = rows[selected]
            at = selected if at is None else at[selected]
            answers = answers.part(selected)
        ids = self._ids(at, rows.tolist() if len(rows) < len(self.batch) else range(len(rows)), region)
        tensors = select_tensors(self.decoded.tensors, at)
        return builder.build(ScoredEvents(self.batch, rows, ids, tensors, answers, scored_ms), encoder)

    def _rows(self, at: NDArray[np.intp] | None) -> NDArray[np.intp]:
        if len(self.decoded.rows) == len(self.batch):
            return np.arange(len(self.batch)) if at is None else at
        rows = np.array(self.decoded.rows, np.intp)
        return rows if at is None else rows[at]

    def _ids(self, at: NDArray[np.intp] | None, rows: Sequence[int], region: str) -> ByteColumn:
        """Return the ids of the events of `rows`, encoded as the content of JSON strings. `at` is as in `build`."""
        if (column := self._id_column(region)) is not None:
            return column if at is None else column.part(at)
        fields = self.decoded.ids if at is None else [self.decoded.ids[index] for index in at.tolist()]
        return encode_ids(self.headers.ids(self.batch, list(rows), fields, region))

    def _id_column(self, region: str) -> ByteColumn | None:
        """Return the ids of all events of the batch as a column; None if they must be determined event by event."""
        plugin = librdkafka_plugin()
        if plugin is None or not isinstance(self.batch, ColumnarBatch) or self.headers.values is not None:
            return None
        if len(self.decoded.rows) < len(self.batch):
            return None
        pieces = id_pieces(self.headers.names or self.decoded.ids, self.batch.columns, region)
        if pieces is None:
            return None
        if len(pieces) == 1 and pieces[0].which is None and pieces[0].texts is not None:
            return pieces[0].texts
        return joined(plugin, pieces, len(self.batch))


def positions_of(rows: Sequence[int], decoded: Decoded) -> NDArray[np.intp] | None:
    """Return the indices of these rows in `decoded.rows`; None if they are all of its rows."""
    if len(rows) == len(decoded.rows):
        return None
    return np.searchsorted(np.array(decoded.rows, np.intp), np.array(rows, np.intp))
