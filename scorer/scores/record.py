"""The score record as one JSON object, built column-wise. `schema.py` has its fields.

Its key, timestamp and partition come from the input record and are set where it is produced.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple, Self

import orjson

from scorer.settings.carry import CarriedField, Row, Scalar

Headers = list[tuple[str, str | bytes | None]]
Value = float | list[float] | dict[str, list[float]] | None
"""A score for formats that have types: one number, numbers in a row, such by name, or nothing."""


def json_column(values: Sequence[Any]) -> list[bytes]:
    """Each value as JSON, by one call for the whole column where no value contains a comma."""
    if not values:
        return []
    parts = orjson.dumps(values)[1:-1].split(b",")
    return parts if len(parts) == len(values) else [orjson.dumps(value) for value in values]


def values(scores: Sequence[bytes]) -> list[Value]:
    """Encoded scores (JSON) as values. Arrays of arrays are flattened row by row; named outputs are arrays, be it of one."""
    return [_value(score) for score in orjson.loads(b"[" + b",".join(scores) + b"]")]


def _value(score: Any) -> Value:
    if isinstance(score, list):
        return _flat(score)
    if isinstance(score, dict):
        return {name: _flat(output if isinstance(output, list) else [output]) for name, output in score.items()}
    return None if score is None else float(score)


def _flat(score: list[Any]) -> list[float]:
    return [number for one in score for number in (_flat(one) if isinstance(one, list) else [float(one)])]


class RecordColumns(NamedTuple):
    """What differs in the records of a batch, one entry an event, in the order of the schema. `scores` are JSON; `places` are
    the events' topics and partitions; times are Unix ms. `carried` has a value for each field of `output.carry`, or None
    where the event could not be read."""

    ids: Sequence[str]
    scores: Sequence[Any]
    decisions: Sequence[str | None]
    places: Sequence[tuple[str, int]]
    offsets: Sequence[int]
    event_ms: Sequence[int]
    carried: Sequence[Row | None]


def decision_piece(decision: str | None) -> bytes:
    """Return the part of a record between its score and its source."""
    return b',"decision":%b' % orjson.dumps(decision)


def source_piece(place: tuple[str, int]) -> bytes:
    """Return the part of a record between its decision and its offset."""
    return b',"source":{"topic":%b,"partition":%d,"offset":' % (orjson.dumps(place[0]), place[1])


class RecordEncoder:
    """Builds the records of one version, as JSON. `carry` are the fields of events that stand in them. `role` is champion,
    canary or shadow, and `arm` the same until `acting` says otherwise. `plain`: the records are JSON."""

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
        """The same for records of this role, arm and revision of the channel. `fallback`: why it answers for another."""
        other = copy.copy(self)
        other.provenance = {**self.provenance, "role": role, "arm": arm}
        other.revision, other.fallback = revision, fallback
        return other

    def named(self, version: str, digest: str) -> Self:
        """The same for records in the name of another version, which cannot write its own."""
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
        """`RecordColumns` to records. `scored_ms` is Unix ms; `carried` None: of no event."""
        columns = RecordColumns(ids, scores, decisions, places, offsets, event_ms, carried or [None] * len(ids))
        return self._encoded(columns, self._last(status, scored_ms))

    def tail(self, status: str, scored_ms: int) -> bytes:
        """Return the part of a record after its event's time."""
        return b"," + orjson.dumps(self._last(status, scored_ms))[1:]

    def _last(self, status: str, scored_ms: int) -> dict[str, str | int]:
        """The fields that are the same in each record of a batch, in the order of the schema."""
        constant: dict[str, str | int] = {"status": status, **self.provenance}
        arm = constant.pop("arm")
        constant |= {"scored_ms": scored_ms, "arm": arm, "revision": self.revision}
        return constant if self.fallback is None else constant | {"fallback": self.fallback}

    def _encoded(self, columns: RecordColumns, tail: Mapping[str, str | int]) -> list[bytes]:
        """The records. `tail` has the fields that are the same in each, in the order of the schema."""
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
        """What each record has behind its event's time: `last`, which all have, and what is carried."""
        if not self.carry:
            return [last] * len(carried)
        return [self._with_carried(last, each) for each in self._named(carried)]

    def _named(self, carried: Sequence[Row | None]) -> Iterator[dict[str, Scalar]]:
        nothing, names = [None] * len(self.carry), self._names
        return (dict(zip(names, nothing if row is None else row, strict=True)) for row in carried)

    def _with_carried(self, last: bytes, carried: Mapping[str, Scalar]) -> bytes:
        return b'%b,"carried":%b}' % (last[:-1], orjson.dumps(carried))

    def carried_column(self, carried: Sequence[Row | None]) -> list[bytes]:
        """Return the `carried` object of each record as JSON."""
        return list(map(orjson.dumps, self._named(carried)))

    def headers(self, names: Sequence[str], ids: Sequence[str], decisions: Sequence[str | None], status: str) -> list[Headers]:
        """Fields of the records copied into Kafka headers, for filters downstream."""
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
