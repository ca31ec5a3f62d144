"""The score record in Avro. One schema for every model and version: what a consumer reads never changes under it.

What is constant for a version and a batch stands at the end of the record and is encoded once.
"""

import json
import struct
from collections.abc import Sequence
from io import BytesIO
from typing import Any

from scorer.scores.record import RecordEncoder
from scorer.scores.values import Value, values

NUMBERS = {"type": "array", "items": "double"}
SOURCE = {
    "type": "record",
    "name": "Source",
    "fields": [{"name": "topic", "type": "string"}, {"name": "partition", "type": "int"}, {"name": "offset", "type": "long"}],
}
SCHEMA = {
    "type": "record",
    "name": "Score",
    "namespace": "scorestream",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "score", "type": ["null", "double", NUMBERS, {"type": "map", "values": NUMBERS}]},
        {"name": "decision", "type": ["null", "string"]},
        {"name": "source", "type": SOURCE},
        {"name": "event_ms", "type": "long"},
        *({"name": name, "type": "string"} for name in ("status", "model", "version", "digest", "role", "region")),
        {"name": "scored_ms", "type": "long"},
    ],
}
"""`score`: null where the event expired, a number, the elements of an array row by row, or such arrays by output."""
TEXT = json.dumps(SCHEMA, indent=2)
double = struct.Struct("<d").pack


class AvroRecordEncoder(RecordEncoder):
    """Builds the records of one version; `header` begins each."""

    def __init__(self, header: bytes, **provenance: str) -> None:
        super().__init__(**provenance)
        self._header = header
        constant = ("model", "version", "digest", "role", "region")
        self._constant = b"".join(string(self.provenance[name]) for name in constant)

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
    ) -> list[bytes]:
        """See RecordEncoder; `scores` are JSON."""
        decided = {decision: b"\0" if decision is None else b"\2" + string(decision) for decision in set(decisions)}
        sources = {(topic, partition): string(topic) + long(partition) for topic, partition in set(places)}
        tail = string(status) + self._constant + long(scored_ms)
        header = self._header
        return [
            b"".join((header, string(id_), _score(score), decided[decision], sources[place], long(offset), long(ms), tail))
            for id_, score, decision, place, offset, ms in zip(
                ids, values(scores), decisions, places, offsets, event_ms, strict=True
            )
        ]


def as_json(value: bytes, start: int) -> Any:
    """A record behind a header of `start` bytes as what JSON can say. Raises ValueError where it is none."""
    from fastavro import parse_schema, schemaless_reader

    stream = BytesIO(value)
    stream.seek(start)
    try:
        return schemaless_reader(stream, parse_schema(SCHEMA), None)
    except (EOFError, IndexError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"no score record in Avro: {error!r}") from error


def _score(value: Value) -> bytes:
    if value is None:
        return b"\0"
    if isinstance(value, float):
        return b"\2" + double(value)
    if isinstance(value, list):
        return b"\4" + _numbers(value)
    named = b"".join(string(name) + _numbers(numbers) for name, numbers in value.items())
    return b"\6" + (long(len(value)) + named if named else b"") + b"\0"


def _numbers(numbers: list[float]) -> bytes:
    return (long(len(numbers)) + struct.pack(f"<{len(numbers)}d", *numbers) if numbers else b"") + b"\0"


def string(text: str) -> bytes:
    """A string as Avro writes it."""
    data = text.encode()
    return long(len(data)) + data


def long(number: int) -> bytes:
    """A whole number as Avro writes it: zigzag, seven bits a byte."""
    left = number << 1 if number >= 0 else (-number << 1) - 1
    if left < 0x80:
        return bytes((left,))
    found = bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    found.append(left)
    return bytes(found)
