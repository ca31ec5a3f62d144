"""The score record as a JSON object, which is encoded column by column. `schema.py` describes its fields.

This module encodes only the value of the record. The key, the timestamp and the partition are taken from the input record.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple, Self

import orjson

from scorer.settings.carry import CarriedField, Row, Scalar

Headers = list[tuple[str, str | bytes | None]]
Value = float | list[float] | dict[str, list[float]] | None
"""A score in Avro or Protobuf: a number, a list of numbers, a dict of such lists by output name, or None."""


def json_column(values: Sequence[Any]) -> list[bytes]:
    """Encode each value as JSON. If no value contains a comma, one call encodes the whole column."""
    if not values:
        return []
    parts = orjson.dumps(values)[1:-1].split(b",")
    return parts if len(parts) == len(values) else [orjson.dumps(value) for value in values]


def values(scores: Sequence[bytes]) -> list[Value]:
    """Parse JSON scores for Avro and Protobuf.

    A nested array is flattened in row-major order. A score with several outputs is an object, whose
    values become lists.
    """
    return [_parse_value(score) for score in orjson.loads(b"[" + b",".join(scores) + b"]")]


def _parse_value(score: Any) -> Value:
    if isinstance(score, list):
        return _flatten(score)
    if isinstance(score, dict):
        return {name: _flatten(output if isinstance(output, list) else [output]) for name, output in score.items()}
    return None if score is None else float(score)


def _flatten(score: list[Any]) -> list[float]:
    return [number for element in score for number in (_flatten(element) if isinstance(element, list) else [float(element)])]


class RecordColumns(NamedTuple):
    """The record fields that differ between events, in the order of the schema. Each column has one entry per event.

    Attributes:
        scores: the scores: JSON texts for JSON records, and the parsed values (see `values`) for Avro and Protobuf records.
        places: the topic and partition of each event.
        event_ms: the times of the events in Unix ms.
        carried: for each event, the values of the fields in `output.carry`; None if the event could not be read.
    """

    ids: Sequence[str]
    scores: Sequence[Any]
    decisions: Sequence[str | None]
    places: Sequence[tuple[str, int]]
    offsets: Sequence[int]
    event_ms: Sequence[int]
    carried: Sequence[Row | None]


def decision_piece(decision: str | None) -> bytes:
    """Return the part of a JSON record that contains the decision. In the JSON text, the score precedes it."""
    return b',"decision":%b' % orjson.dumps(decision)


def source_piece(place: tuple[str, int]) -> bytes:
    """Return the part of a JSON record that contains the topic and the partition. In the JSON text, the offset follows."""
    return b',"source":{"topic":%b,"partition":%d,"offset":' % (orjson.dumps(place[0]), place[1])


class RecordEncoder:
    """Encoder of the score records of one version as JSON, and base of the encoders of the other formats.

    Attributes:
        plain: whether the encoded records are JSON; False in the encoders of the other formats.
        carry: the event fields that are copied to the records.
        provenance: the record fields that describe the version and its role.
    """

    # In `provenance`, `role` is the role of the version that answered: champion, canary or shadow. `arm` is the role, champion
    # or canary, that the event's key belongs to.

    plain = True

    def __init__(
        self, carry: Sequence[CarriedField] = (), /, *, model: str, version: str, digest: str, role: str, region: str
    ) -> None:
        self.carry = carry
        self._names = [field.name for field in carry]
        self.provenance = {"model": model, "version": version, "digest": digest, "role": role, "region": region, "arm": role}
        self.revision = 0
        self.fallback: str | None = None

    def acting(self, *, role: str, arm: str, revision: int, fallback: str | None = None) -> Self:
        """Return a copy of the encoder whose records have this role and revision.

        Args:
            role: the role of the version that answers: champion, canary or shadow.
            arm: the role (champion or canary) to which the traffic split assigns the event's key.
            revision: the revision of the channel.
            fallback: why this version answers in place of another one, or why a shadow has no score; None if neither applies.
        """
        other = copy.copy(self)
        other.provenance = {**self.provenance, "role": role, "arm": arm}
        other.revision = revision
        other.fallback = fallback
        return other

    def named(self, version: str, digest: str) -> Self:
        """Return a copy of the encoder for records that name another version, which is not loaded."""
        other = copy.copy(self)
        other.provenance = {**self.provenance, "version": version, "digest": digest}
        return other

    def encode(
        self,
        ids: Sequence[str],
        scores: Sequence[bytes],
        decisions: Sequence[str | None],
        places: Sequence[tuple[str, int]],
        offsets: Sequence[int],
        event_ms: Sequence[int],
        status: str,
        scored_ms: int,
        carried: Sequence[Row | None] | None = None,
    ) -> list[bytes]:
        """Encode the records of a batch.

        Args:
            ids: the ids of the events. This list and the following lists have one entry per event.
            scores: the scores as JSON.
            decisions: the decisions.
            places: the topics and partitions of the events.
            offsets: the offsets of the events.
            event_ms: the times of the events in Unix ms.
            status: the status of all these records.
            scored_ms: the time of scoring in Unix ms.
            carried: the carried fields (`output.carry`) of each event; None if no event has carried fields.
        """
        columns = RecordColumns(ids, scores, decisions, places, offsets, event_ms, carried or [None] * len(ids))
        return self._encoded(columns, self._constant_fields(status, scored_ms))

    def tail(self, status: str, scored_ms: int) -> bytes:
        """Return the end of a JSON record, after the event's time: the fields that are the same in all records of a batch."""
        return b"," + orjson.dumps(self._constant_fields(status, scored_ms))[1:]

    def _constant_fields(self, status: str, scored_ms: int) -> dict[str, str | int]:
        """Return the fields that are the same in all records of a batch, in the order of the schema."""
        constant: dict[str, str | int] = {"status": status, **self.provenance}
        arm = constant.pop("arm")
        constant |= {"scored_ms": scored_ms, "arm": arm, "revision": self.revision}
        return constant if self.fallback is None else constant | {"fallback": self.fallback}

    def _encoded(self, columns: RecordColumns, tail: Mapping[str, str | int]) -> list[bytes]:
        """Encode the records of a batch.

        Args:
            columns: The fields that differ between events, in the order of the schema.
            tail: The fields that are the same in all records, in the order of the schema.
        """
        kinds = list(zip(columns.decisions, columns.places, strict=True))
        middles = {(decision, place): decision_piece(decision) + source_piece(place) for decision, place in set(kinds)}
        parts = zip(
            repeat(b'{"id":'),
            json_column(columns.ids),
            repeat(b',"score":'),
            columns.scores,
            map(middles.__getitem__, kinds),
            json_column(columns.offsets),
            repeat(b'},"event_ms":'),
            json_column(columns.event_ms),
            self._ends(b"," + orjson.dumps(tail)[1:], columns.carried),
        )
        return list(map(b"".join, parts))

    def _ends(self, last: bytes, carried: Sequence[Row | None]) -> list[bytes]:
        """Return the end of each record: the encoded common fields `last`, followed by the event's carried fields."""
        if not self.carry:
            return [last] * len(carried)
        return [self._with_carried(last, named) for named in self._name_fields(carried)]

    def _name_fields(self, carried: Sequence[Row | None]) -> Iterator[dict[str, Scalar]]:
        absent_values = [None] * len(self.carry)
        names = self._names
        return (dict(zip(names, absent_values if row is None else row, strict=True)) for row in carried)

    def _with_carried(self, last: bytes, carried: Mapping[str, Scalar]) -> bytes:
        return b'%b,"carried":%b}' % (last[:-1], orjson.dumps(carried))

    def carried_column(self, carried: Sequence[Row | None]) -> list[bytes]:
        """Return the `carried` object of each record as JSON."""
        return list(map(orjson.dumps, self._name_fields(carried)))

    def headers(self, names: Sequence[str], ids: Sequence[str], decisions: Sequence[str | None], status: str) -> list[Headers]:
        """Return the Kafka headers of each record: the record's fields in `names`, so that consumers can filter by them."""
        constant: Headers = [(name, self.provenance[name].encode()) for name in names if name in self.provenance]
        if "status" in names:
            constant.append(("status", status.encode()))
        rows: list[Headers] = []
        for id_, decision in zip(ids, decisions, strict=True):
            row = list(constant)
            if "id" in names:
                row.append(("id", id_.encode()))
            if "decision" in names and decision is not None:
                row.append(("decision", decision.encode()))
            rows.append(row)
        return rows
