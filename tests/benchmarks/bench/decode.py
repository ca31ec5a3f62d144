"""The cost of decoding in each input format: CPU microseconds per event, compared with loops over the formats' libraries.

    python -m tests.benchmarks.bench.decode [--json] [--seconds 0.3]

Two contents: `tab30`, 30 numbers with an id, and `array784`, one array of 784 floats with an id. Every way decodes the same
batch into the same float32 tensor. The rounds of all ways alternate, and the best of each counts, so that a busy machine
affects all equally.
"""

import argparse
import json
import operator
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from scorer.decoding import decoder_factory
from tests.benchmarks.bench.contents import FORMATS, Contents, contents
from tests.benchmarks.bench.workload import POOL, Workload
from tests.unit.scorer.decoding.schema_events import avro_reader, proto_class

CONTENTS = {"tab30": (Workload(decimals=4), 512), "array784": (Workload(784, decimals=4, array=True), 64)}
"""The workload and the number of events in a batch, by content."""
Decode = Callable[[], NDArray[Any]]


def ways(workload: Workload, count: int, folder: Path) -> Iterator[tuple[str, list[bytes], Decode]]:
    """Yield (name, events, decode) of each way; names of other libraries are indented."""
    for format_ in FORMATS:
        written = contents(workload, format_, folder)
        values = list(written.events(count))
        yield format_, values, ours(workload, written, values)
        if format_ in ("json", "avro", "protobuf"):
            name, decode = plain(workload, format_, written, values)
            yield f"  {name}", values, decode


def ours(workload: Workload, written: Contents, values: list[bytes]) -> Decode:
    decoder = decoder_factory.create_decoder(written.settings(), workload.signature)
    return lambda: decoder.decode(values).tensors["x"]


def plain(workload: Workload, format_: str, written: Contents, values: list[bytes]) -> tuple[str, Decode]:
    schema = Path(written.input["schema_file"]).read_text() if "schema_file" in written.input else ""
    name, read, get = "json.loads", cast(Callable[[bytes], Any], json.loads), cast(Callable[[Any, str], Any], operator.getitem)
    if format_ == "avro":
        name, read = "fastavro", avro_reader(json.loads(schema))
    elif format_ == "protobuf":
        name, read, get = "protobuf (upb)", proto_class(schema, "Event").FromString, getattr

    def decode() -> NDArray[Any]:
        events = [read(value) for value in values]
        if workload.array:
            return np.array([get(event, "x") for event in events], np.float32)
        return np.array([[get(event, field) for field in workload.names] for event in events], np.float32)

    return name, decode


def measured(content: str, folder: Path, seconds: float) -> list[dict[str, Any]]:
    """Measure each way for about `seconds`; return a row per way. Raises AssertionError if two ways differ."""
    workload, count = CONTENTS[content]
    all_ways = list(ways(workload, count, folder))
    expected = np.array(workload.rows(), np.float32)[np.arange(count) % POOL]
    for name, _, decode in all_ways:
        assert np.array_equal(decode(), expected), f"{content}: {name} decodes to other numbers"
    best = dict.fromkeys((name for name, _, _ in all_ways), float("inf"))
    until = time.process_time() + seconds * len(all_ways)
    while time.process_time() < until:
        for name, _, decode in all_ways:
            began = time.process_time()
            decode()
            best[name] = min(best[name], time.process_time() - began)
    microseconds = {name: spent / count * 1e6 for name, spent in best.items()}
    return [
        {
            "content": content,
            "way": name.strip(),
            "ours": not name.startswith(" "),
            "bytes": round(sum(map(len, values)) / count),
            "us": round(microseconds[name], 3),
            "times_json": round(microseconds["json"] / microseconds[name], 2),
        }
        for name, values, _ in all_ways
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.bench.decode", description="The cost of decoding in each format."
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--seconds", type=float, default=0.3, help="for each format and content")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = [row for name in CONTENTS for row in measured(name, Path(folder), options.seconds)]
    if options.json:
        print(json.dumps(rows))
        return
    table = Table("content", "way", "bytes", "us/event", "x json")
    for row in rows:
        way = row["way"] if row["ours"] else f"[dim]{row['way']}[/]"
        table.add_row(row["content"], way, str(row["bytes"]), f"{row['us']:.3f}", f"{row['times_json']:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
