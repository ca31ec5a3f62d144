"""The cost of decoding JSON objects with the native scanner and with msgspec alone, by batch size: CPU us per event.

    python -m tests.benchmarks.bench.scanner [--json] [--batches 4096,256,64,8,4,1] [--rounds 9]

Two contents: `tab30`, 30 numbers of four places, and `names75`, 75 numbers of 17 digits under long names. Rounds alternate
between both ways, so that a busy machine affects both equally. The smallest batch in `scorer/decoding/json/native_rows.py` is a
result of this measurement.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from model_registry.package.signature import Signature
from model_registry.package.signature_schema import parse_signature
from scorer.decoding.json.decoder import JsonDecoder
from scorer.native.load import native_library
from tests.benchmarks.bench.components import cost, numbers

CONTENTS = {"tab30": (30, 4, "f{}"), "names75": (75, None, "customer_transactions_of_the_last_{}_days_mean")}
"""The count of numbers in an event, their decimal places (None: all), and the pattern of their names, by content."""
MIN_SECONDS = 0.02
LARGEST = 1_000_000


def events(content: str, count: int) -> tuple[Signature, list[bytes]]:
    """Return a signature and events for it."""
    width, places, name = CONTENTS[content]
    names = [name.format(k) for k in range(width)]
    inputs = [{"tensor": "x", "dtype": "float32", "fields": names}]
    drawn = np.random.default_rng(1).normal(size=(count, width))
    rows = (drawn if places is None else drawn.round(places)).tolist()
    values = [json.dumps({"id": f"event-{n}", **dict(zip(names, row, strict=True))}).encode() for n, row in enumerate(rows)]
    return parse_signature(json.dumps({"inputs": inputs, "output": {"tensor": "y"}})), values


def measured(content: str, batches: Sequence[int], rounds: int, least: float = MIN_SECONDS) -> Iterator[dict[str, Any]]:
    """Yield a row per batch size: median, lowest and highest of each way. Raises AssertionError if they differ."""
    signature, values = events(content, max(batches))
    ways = {
        name: JsonDecoder(signature, "id", LARGEST, min_events=min_events)
        for name, min_events in (("native", 1), ("msgspec", None))
    }
    for size in batches:
        batch = values[:size]
        native, msgspec_only = (decoder.decode(batch) for decoder in ways.values())
        assert list(native.ids) == list(msgspec_only.ids)
        assert native.tensors["x"].tobytes() == msgspec_only.tensors["x"].tobytes()
        costs: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, decoder in ways.items():
                costs[name].append(cost(_call(decoder, batch), size, rounds=1, min_seconds=least).us)
        yield {"content": content, "batch": size, **{name: _spread(samples) for name, samples in costs.items()}}


def _call(decoder: JsonDecoder, batch: list[bytes]) -> Callable[[], object]:
    return lambda: decoder.decode(batch)


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"us": round(statistics.median(values), 3), "lowest": round(min(values), 3), "highest": round(max(values), 3)}


def main(arguments: Sequence[str]) -> int:
    """Measure and print. Returns exit code 2 if there is no native scanner."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.bench.scanner", description="The gain of the native scanner."
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--batches", type=numbers, default=[4096, 256, 64, 8, 4, 1])
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args(arguments)
    if native_library().library is None:
        print(f"there is no native scanner: {native_library().status}", file=sys.stderr)
        return 2
    rows = [row for content in CONTENTS for row in measured(content, options.batches, options.rounds)]
    if options.json:
        print(json.dumps(rows))
        return 0
    table = Table("content", "batch", "native us/event", "msgspec us/event")
    for row in rows:
        ways = (f"{row[way]['us']:.2f} ({row[way]['lowest']:.2f}-{row[way]['highest']:.2f})" for way in ("native", "msgspec"))
        table.add_row(row["content"], str(row["batch"]), *ways)
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
