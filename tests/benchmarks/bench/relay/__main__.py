"""The relay and MirrorMaker 2 (tuned; both exactly-once): a table on stderr, every figure as JSON on stdout.

    python -m tests.benchmarks.bench.relay                        # 1 million records of 200 bytes, 8 partitions, 3 rounds each
    python -m tests.benchmarks.bench.relay --records 20000 --rounds 1 --seconds 2 --away 3  # tiny: tests the benchmark itself

The two take turns on the same two clusters. `loopback` and `link` have separate clusters; the source of `link` is in a network
namespace with a round trip of 80 ms (needs root). The exit code is 1 if a copy is not complete, 2 if nothing can be run.
"""

import argparse
import contextlib
import json
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.benchmarks.bench.counting import spread
from tests.benchmarks.bench.machine import description
from tests.benchmarks.bench.relay import link, measures
from tests.benchmarks.bench.relay.engines import ENGINES
from tests.benchmarks.bench.relay.stage import Stage

RATE = 1_000.0
PLACES = ("loopback", "link")
ROUND_TRIP_MS = 80.0
SHOWN = {
    ("loopback", "drain"): ("first_record_s", "drain_per_s", "cpu_s", "peak_mb"),
    ("loopback", "paced"): ("p50_added_ms", "p99_source_ms", "p99_destination_ms"),
    ("link", "drain"): ("first_record_s", "drain_per_s", "cpu_s", "peak_mb"),
    ("link", "back"): ("back_s",),
}
console = Console(stderr=True, highlight=False, width=None if sys.stderr.isatty() else 140)


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as Ctrl-C: ends the started processes
    results: dict[str, Any] = {"machine": description(), "records": options.records, "rounds": options.rounds}
    for place in PLACES:
        if options.only in (None, place):
            reason = link.missing() if place == "link" else ""
            if reason:
                console.print(f"NOT RUN {place}: {reason}", markup=False)
                results[place] = {"not_run": reason}
            else:
                results[place] = _measure(place, options)
    print(json.dumps(results, indent=None if options.json else 1))
    console.print(_table(results))
    faults = [
        run
        for place in PLACES
        for measurement in results.get(place, {}).values()
        if isinstance(measurement, dict)
        for run in measurement.get("faults", [])
    ]
    for fault in faults:
        console.print(f"NOT CLEAN: {fault}", markup=False)
    return 2 if all("not_run" in results.get(place, {"not_run": ""}) for place in PLACES) else int(bool(faults))


def _measure(place: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run each measurement with the engines in turn; return the figures by measurement and engine."""
    results: dict[str, Any] = {}
    with contextlib.ExitStack() as exits:
        cable = exits.enter_context(link.Link(ROUND_TRIP_MS)) if place == "link" else None
        stage = exits.enter_context(Stage(cable))
        stage.fill("bench.records", options.records)
        kinds: dict[str, Callable[[measures.Engine], dict[str, float]]] = {
            "drain": lambda engine: measures.drain(stage, engine, "bench.records", options.records),
            "paced": lambda engine: measures.paced(stage, engine, RATE, options.seconds),
            "back": lambda engine: measures.back(stage, engine, RATE, options.away),
        }
        for kind in (kind for shown_place, kind in SHOWN if shown_place == place):
            runs: dict[str, list[dict[str, float]]] = {name: [] for name in ENGINES}
            faults: list[str] = []
            for _ in range(options.rounds):
                for name, engine in ENGINES.items():
                    console.print(f"{time.strftime('%H:%M:%S')} {place} {kind} {name}", markup=False)
                    try:
                        runs[name].append(kinds[kind](engine))
                    except (AssertionError, RuntimeError) as error:
                        faults.append(f"{place} {kind} {name}: {error}")
            results[kind] = {name: spread(runs[name]) for name in ENGINES if runs[name]} | {"faults": faults}
    return results


def _table(results: dict[str, Any]) -> Table:
    shown = Table("", "", *ENGINES, title="the relay and MirrorMaker 2: median (lowest to highest)")
    for (place, kind), names in SHOWN.items():
        for name in names:
            figures = [results.get(place, {}).get(kind, {}).get(engine, {}).get(name) for engine in ENGINES]
            cells = [
                f"{spread_['median']:,.1f} ({spread_['lowest']:,.1f} to {spread_['highest']:,.1f})" if spread_ else "-"
                for spread_ in figures
            ]
            shown.add_row(f"{place} {kind}", name, *cells)
    return shown


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.bench.relay", description="The relay and MirrorMaker 2.")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help="of the latency measurement")
    parser.add_argument("--away", type=float, default=30.0, help="seconds for which the link is cut")
    parser.add_argument("--only", choices=PLACES, help="only these measurements")
    parser.add_argument("--json", action="store_true", help="one line on stdout")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
