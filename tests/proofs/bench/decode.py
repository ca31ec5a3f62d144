"""What decoding costs in each input format: CPU microseconds an event, beside plain loops over the formats' own libraries.

    python -m tests.proofs.bench.decode [--json] [--seconds 0.3]

Two contents: `tab30`, 30 numbers with an id, and `array784`, one array of 784 floats with an id. Every way decodes the same
batch into the same float32 tensor; the rounds of all ways alternate, and the best of each counts, so that a busy machine
disturbs all alike.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from model_registry.package.signature import Signature
from scorer.events import formats
from scorer.events.decoder import Decoder
from scorer.events.json.objects import JsonDecoder
from scorer.settings import Settings
from tests.unit.scorer.events.schema_events import avro_encoder, avro_reader, proto_class

CONTENTS = {"tab30": (30, 512), "array784": (784, 64)}
"""Numbers of an event, and events of a batch."""
LARGEST = 1_000_000
Decode = Callable[[], Any]


class Content:
    """One kind of event: `rows` of numbers, and every way they are written and read."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.width, self.count = CONTENTS[name]
        self._folder = folder
        self.array = name == "array784"
        self.rows: list[list[float]] = np.random.default_rng(1).normal(size=(self.count, self.width)).round(4).tolist()
        fields = [{"name": "x", "array": True, "length": self.width}] if self.array else self._names()
        inputs = [{"tensor": "x", "dtype": "float32", "fields": fields}]
        self.signature = Signature.parse(json.dumps({"inputs": inputs, "output": {"tensor": "y"}}))
        types: list[tuple[str, Any]] = [("x", {"type": "array", "items": "float"})] if self.array else []
        types = types or [(field, "float") for field in self._names()]
        self.avro = {"type": "record", "name": "E", "fields": [{"name": n, "type": t} for n, t in [("id", "string"), *types]]}
        numbers = "repeated float x = 2;" if self.array else "".join(f"float f{k} = {k + 2};" for k in range(self.width))
        self.proto = f'syntax = "proto3"; message E {{ string id = 1; {numbers} }}'
        self.events = [{"id": f"event-{n}", **self._event(row)} for n, row in enumerate(self.rows)]

    def _names(self) -> list[str]:
        return [f"f{k}" for k in range(self.width)]

    def _event(self, row: list[float]) -> dict[str, Any]:
        return {"x": row} if self.array else dict(zip(self._names(), row, strict=True))

    def tensor(self, events: Sequence[dict[str, Any]]) -> NDArray[np.float32]:
        """What a plain loop makes of decoded events."""
        rows = [event["x"] for event in events] if self.array else [[event[name] for name in self._names()] for event in events]
        return np.array(rows, np.float32)

    def decoder(self, format_: str, schema: str | None = None) -> Decoder:
        """Ours."""
        entry: dict[str, Any] = {"topics": ["t"], "format": format_}
        if format_ not in ("json-array", "float32"):
            entry["id"] = "id"
        if schema is not None:
            entry["schema_file"] = self._folder / f"{self.name}.{'avsc' if format_ == 'avro' else 'proto'}"
            entry["schema_file"].write_text(schema)
        settings = {"name": "bench", "kafka": {"bootstrap_servers": "none:1"}, "input": entry, "output": {"topic": "o"}}
        return formats.decoder(Settings.model_validate({**settings, "model": {"source": "oci:./r"}}), self.signature)

    def ways(self) -> Iterator[tuple[str, list[bytes], Decode]]:
        """(name, events, decode) of each."""
        objects = [json.dumps(event).encode() for event in self.events]
        yield "json", objects, self._ours("json", objects)
        plain = JsonDecoder(self.signature, "id", LARGEST, fewest=None)
        yield "  no native scanner", objects, lambda: plain.decode(objects).tensors["x"]
        yield "  json.loads", objects, lambda: self.tensor([json.loads(value) for value in objects])
        arrays = [json.dumps(row).encode() for row in self.rows]
        yield "json-array", arrays, self._ours("json-array", arrays)
        envelopes = [
            json.dumps({"id": e["id"], "features": row}).encode() for e, row in zip(self.events, self.rows, strict=True)
        ]
        yield "json-envelope", envelopes, self._ours("json-envelope", envelopes)
        raw = [np.array(row, "<f4").tobytes() for row in self.rows]
        yield "float32", raw, self._ours("float32", raw)
        encode = avro_encoder(self.avro)
        records = [encode(event) for event in self.events]
        yield "avro", records, self._ours("avro", records, json.dumps(self.avro))
        read = avro_reader(self.avro)
        yield "  fastavro", records, lambda: self.tensor([read(value) for value in records])
        new = proto_class(self.proto, "E")
        messages = [new(**event).SerializeToString() for event in self.events]
        yield "protobuf", messages, self._ours("protobuf", messages, self.proto)
        yield "  protobuf (upb)", messages, lambda: self._upb(new, messages)

    def _ours(self, format_: str, values: list[bytes], schema: str | None = None) -> Decode:
        decoder = self.decoder(format_, schema)
        return lambda: decoder.decode(values).tensors["x"]

    def _upb(self, new: Any, values: list[bytes]) -> NDArray[np.float32]:
        events = [new.FromString(value) for value in values]
        if self.array:
            return np.array([event.x for event in events], np.float32)
        return np.array([[getattr(event, name) for name in self._names()] for event in events], np.float32)


def measured(content: Content, seconds: float) -> list[dict[str, Any]]:
    """A row a way; each runs for about so many seconds. Raises AssertionError where two ways do not agree."""
    ways = list(content.ways())
    expected = np.array(content.rows, np.float32)
    for name, _, decode in ways:
        assert np.array_equal(decode(), expected), f"{content.name}: {name} decodes to something else"
    best = dict.fromkeys((name for name, _, _ in ways), float("inf"))
    until = time.process_time() + seconds * len(ways)
    while time.process_time() < until:
        for name, _, decode in ways:
            began = time.process_time()
            decode()
            best[name] = min(best[name], time.process_time() - began)
    microseconds = {name: spent / content.count * 1e6 for name, spent in best.items()}
    return [
        {
            "content": content.name,
            "way": name.strip(),
            "ours": not name.startswith(" "),
            "bytes": round(sum(map(len, values)) / len(values)),
            "us": round(microseconds[name], 3),
            "times_json": round(microseconds["json"] / microseconds[name], 2),
        }
        for name, values, _ in ways
    ]


def main(arguments: Sequence[str]) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.proofs.bench.decode", description="What decoding costs in each format."
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--seconds", type=float, default=0.3, help="for each format and content")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        rows = [row for name in CONTENTS for row in measured(Content(name, Path(folder)), options.seconds)]
    if options.json:
        print(json.dumps(rows))
        return 0
    table = Table("content", "way", "bytes", "us/event", "x json")
    for row in rows:
        way = row["way"] if row["ours"] else f"[dim]{row['way']}[/]"
        table.add_row(row["content"], way, str(row["bytes"]), f"{row['us']:.3f}", f"{row['times_json']:.2f}")
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
