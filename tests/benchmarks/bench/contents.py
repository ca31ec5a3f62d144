"""A workload's events in every input format: the same ids and numbers, written without code of the scorer.

Events of one row differ only in their id, so that each row is encoded once, and each event's id is put before it.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scorer.settings import Settings
from tests.benchmarks.bench.workload import POOL, Workload, event
from tests.unit.scorer.decoding.schema_events import avro_encoder, proto_class, settings_of

FORMATS = ("json", "json-array", "json-envelope", "float32", "avro", "protobuf")
IDENTIFIED = {"id": "id"}
FIRST_FIELD = b"\x0a"  # Protobuf's tag of field 1, length-delimited


@dataclass(frozen=True, slots=True)
class Contents:
    """`write(id)` returns an event; `input` is the configuration of the format."""

    write: Callable[[int], bytes]
    input: Mapping[str, Any]

    def events(self, count: int) -> Iterator[bytes]:
        """Return the events with the ids 0 to `count`."""
        return map(self.write, range(count))

    def settings(self) -> Settings:
        stated: dict[str, Any] = {"format": "json", "id": "header:ce_id", "max_event_bytes": 100_000, **self.input}
        return settings_of(stated.pop("format"), **stated)


def contents(workload: Workload, format_: str, folder: Path) -> Contents:
    """Return the events of a workload in a format; write schema files into the folder."""
    named = {"format": format_, **IDENTIFIED}
    rows = workload.rows()
    if format_ == "json":
        bodies = workload.bodies()
        return Contents(lambda id_: event(bodies, id_), IDENTIFIED)
    if format_ == "float32":
        raw = [np.array(row, "<f4").tobytes() for row in rows]
        return Contents(lambda id_: raw[id_ % POOL], {"format": format_})
    if format_.startswith("json"):
        texts = [json.dumps(row).encode() for row in rows]
        if format_ == "json-array":
            return Contents(lambda id_: texts[id_ % POOL], {"format": format_})
        return Contents(lambda id_: b'{"id":%d,"features":%b}' % (id_, texts[id_ % POOL]), named)
    if format_ == "avro":
        type_: Any = {"type": "array", "items": "float"} if workload.array else "float"
        fields = [{"name": "id", "type": "string"}, *({"name": name, "type": type_} for name in workload.names)]
        schema = {"type": "record", "name": "Event", "fields": fields}
        path = _written(folder / f"{workload.features}.avsc", json.dumps(schema))
        encode = avro_encoder(schema)
        behind = [encode({"id": "", **workload.event(row)})[1:] for row in rows]
        return Contents(lambda id_: _sized(b"%d" % id_, 2) + behind[id_ % POOL], {"schema_file": path, **named})
    type_ = "repeated float" if workload.array else "float"
    numbers = "".join(f"{type_} {name} = {at};" for at, name in enumerate(workload.names, 2))
    text = f'syntax = "proto3"; message Event {{ string id = 1; {numbers} }}'
    path = _written(folder / f"{workload.features}.proto", text)
    new = proto_class(text, "Event")
    messages = [new(**workload.event(row)).SerializeToString() for row in rows]
    return Contents(lambda id_: FIRST_FIELD + _sized(b"%d" % id_, 1) + messages[id_ % POOL], {"schema_file": path, **named})


def _sized(text: bytes, unit: int) -> bytes:
    """Return a short text after its length times `unit`, a varint of one byte."""
    return bytes([len(text) * unit]) + text


def _written(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)
