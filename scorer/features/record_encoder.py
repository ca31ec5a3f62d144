"""Encoding of feature records: the position, version and inputs of scored events as pieces that form the records' values.

`read.py` decodes these records. The fields of a record, in JSON and in Avro, are `id`, `source` (`topic`, `partition`,
`offset`), `event_ms`, `scored_ms`, `model`, `version`, `digest`, `role`, `revision` and `inputs`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import orjson
from numpy.typing import NDArray

from scorer.decoding.batch import Place
from scorer.features.input_pieces import Tensors, avro_pieces, json_pieces
from scorer.features.logged_inputs import LoggedTensor
from scorer.native.byte_columns import ByteColumn
from scorer.native.feature_rows import avro_integers, column_of
from scorer.native.produce_records import RecordPiece, chosen, constant
from scorer.scores.avro_values import long, string
from scorer.scores.record import RecordEncoder, source_piece

ESCAPE = ord("\\")
VERSION_FIELDS = ("model", "version", "digest", "role")


@dataclass(frozen=True, slots=True)
class EventColumns:
    """The events of feature records as columns, with one entry per event.

    Attributes:
        ids: the ids, encoded as the content of JSON strings.
        places: the distinct (topic, partition) pairs of the events.
        lanes: (n,) int32, for each event the index of its pair in `places`.
        offsets: (n,) int64, the offsets of the events.
        times: (n,) int64, the times of the events in Unix ms.
    """

    ids: ByteColumn
    places: Sequence[Place]
    lanes: NDArray[np.int32]
    offsets: NDArray[np.int64]
    times: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets)


@dataclass(frozen=True, slots=True)
class AnsweringVersions:
    """The versions that scored events: one version, or champion and candidate.

    Attributes:
        encoders: the score record encoder of each version. It contains the version, its role and the channel's revision.
        which: (n,) int32, for each event the index of its version in `encoders`.
    """

    encoders: Sequence[RecordEncoder]
    which: NDArray[np.int32]

    @classmethod
    def single(cls, encoder: RecordEncoder, count: int) -> "AnsweringVersions":
        """Create an instance for `count` events, all scored by the version of `encoder`."""
        return cls([encoder], np.zeros(count, np.int32))

    def part(self, at: NDArray[np.intp]) -> "AnsweringVersions":
        """Return the versions of the events at the indices `at`."""
        return AnsweringVersions(self.encoders, self.which[at])


class FeatureEncoder(ABC):
    """Encoder of the feature records of one version. `logged` are the tensors whose values are logged."""

    def __init__(self, logged: Sequence[LoggedTensor]) -> None:
        self.logged = logged

    @abstractmethod
    def pieces(self, events: EventColumns, tensors: Tensors, answers: AnsweringVersions, scored_ms: int) -> list[RecordPiece]:
        """Return the pieces that form the values of the records, one record per event.

        Args:
            events: the events.
            tensors: the tensors with which the model was run; row i belongs to event i.
            answers: the versions that scored the events.
            scored_ms: the time of scoring in Unix ms.
        """


class JsonFeatureEncoder(FeatureEncoder):
    """Encoder of feature records in JSON."""

    def pieces(self, events: EventColumns, tensors: Tensors, answers: AnsweringVersions, scored_ms: int) -> list[RecordPiece]:
        count = len(events)
        versions = [
            {"scored_ms": scored_ms, **_version_fields(encoder.provenance), "revision": encoder.revision}
            for encoder in answers.encoders
        ]
        return [
            constant(b'{"id":"', count),
            RecordPiece(events.ids),
            chosen([b'"' + source_piece(place) for place in events.places], events.lanes),
            RecordPiece(numbers=events.offsets),
            constant(b'},"event_ms":', count),
            RecordPiece(numbers=events.times),
            chosen([b",%b," % orjson.dumps(version)[1:-1] + b'"inputs":{' for version in versions], answers.which),
            *json_pieces(self.logged, tensors, count),
            constant(b"}}", count),
        ]


class AvroFeatureEncoder(FeatureEncoder):
    """Encoder of feature records in Avro. Each record begins with `header`, which has the id of the schema."""

    def __init__(self, logged: Sequence[LoggedTensor], header: bytes) -> None:
        super().__init__(logged)
        self._header = header

    def pieces(self, events: EventColumns, tensors: Tensors, answers: AnsweringVersions, scored_ms: int) -> list[RecordPiece]:
        count = len(events)
        ids = _unescaped(events.ids)
        places = [string(topic) + long(partition) for topic, partition in events.places]
        versions = [
            b"".join(map(string, _version_fields(encoder.provenance).values())) + long(encoder.revision)
            for encoder in answers.encoders
        ]
        return [
            constant(self._header, count),
            RecordPiece(avro_integers(ids.lengths().reshape(count, 1))),
            RecordPiece(ids),
            chosen(places, events.lanes),
            RecordPiece(avro_integers(np.stack([events.offsets, events.times], axis=1))),
            chosen([long(scored_ms) + version for version in versions], answers.which),
            *avro_pieces(self.logged, tensors, count),
        ]


def _version_fields(provenance: Mapping[str, str]) -> dict[str, str]:
    return {name: provenance[name] for name in VERSION_FIELDS}


def _unescaped(ids: ByteColumn) -> ByteColumn:
    """Return ids without the escapes of JSON."""
    if not (ids.text == ESCAPE).any():
        return ids
    return column_of([orjson.loads(b'"%b"' % (text or b"")).encode() for text in ids])
