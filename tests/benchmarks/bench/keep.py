"""Keep the figures of one run of the side-by-side harness, with all programs, for the picture of the README.

    python -m tests.benchmarks.bench.keep results.jsonl figures.json "two cores of ..., load 0.4"

The first file has the lines of `drain` and `paced` of the harness; the second is the output of `python -m tests bench --only
bus`. Writes `kept.json`; `python -m tests bench --plot` draws it.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.bench.counting import spread
from tests.benchmarks.bench.plot import DELIVERY, KEPT, OURS

PEERS = {
    "hand": "Java loop, hand-written",
    "flink": "Flink 2.2",
    "streams": "Kafka Streams 4.3",
    "python": "Python loop, hand-written",
    "quix": "Quix Streams 3.28",
}
"""The names of the programs by their names in the harness; ours is `scorestream`."""
DRAINED = {"ev_s": "events_per_s", "cpu_us_per_event": "cpu_us_per_event", "broker_cpu_us_per_event": "broker_cpu_us_per_event"}
PACED = {"p50": "p50_ms", "p99": "p99_ms", "broker_cpu_us_per_event": "broker_cpu_us_per_event"}
COMMAND = "harness.py drain and paced --workload tab30 --mode eos, all programs in one run; [lowest, highest] of its rounds"

Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.bench.keep")
    parser.add_argument("results", type=Path)
    parser.add_argument("figures", type=Path)
    parser.add_argument("machine", help="the machine, and its load by other work")
    options = parser.parse_args()
    rows = [json.loads(line) for line in options.results.read_text().splitlines()]
    picture = kept(rows, json.loads(options.figures.read_text())["bus"], options.machine)
    KEPT.write_text(json.dumps(picture, indent=1) + "\n")


def kept(rows: Sequence[Row], bus: Sequence[Row], machine: str) -> Row:
    """Return the figures of the picture. Raises ValueError if a program lost or duplicated events, or was not drained."""
    if wrong := [row for row in rows if row["missing"] or row["dup"] or row["wrong"] or row["mode"] != "eos"]:
        raise ValueError(f"{wrong[0]['name']} was not exactly once in a run of {wrong[0]['kind']}: measure it again")
    names = list(dict.fromkeys(row["name"] for row in rows))
    if undrained := [name for name in (OURS, *names) if not _of(rows, name, "drain")]:
        raise ValueError(f"{undrained[0]} was not drained: run `harness.py drain --name {undrained[0]}`")
    ours = {"delivery": DELIVERY, **spread([_named(row, DRAINED) for row in _of(rows, OURS, "drain")])}
    paced = [{"delivery": DELIVERY, **row} for row in _paced(rows, OURS)]
    peers = [_peer(rows, name) for name in names if name != OURS]
    return {"machine": machine, "command": COMMAND, "drain": [ours], "paced": paced, "bus": list(bus), "peers": peers}


def _peer(rows: Sequence[Row], name: str) -> Row:
    drained = [_named(row, DRAINED) for row in _of(rows, name, "drain")]
    return {"name": PEERS[name], **{figure: _ends(drained, figure) for figure in drained[0]}, "paced": _paced(rows, name)}


def _paced(rows: Sequence[Row], name: str) -> list[Row]:
    """Return a row per rate."""
    at: dict[float, list[Row]] = {}
    for row in _of(rows, name, "paced"):
        at.setdefault(row["rate"], []).append(_named(row, PACED))
    return [{"rate": rate, **{figure: _ends(runs, figure) for figure in runs[0]}} for rate, runs in sorted(at.items())]


def _of(rows: Sequence[Row], name: str, kind: str) -> list[Row]:
    return [row for row in rows if (row["name"], row["kind"]) == (name, kind)]


def _named(row: Row, names: dict[str, str]) -> Row:
    return {ours: row[theirs] for theirs, ours in names.items()}


def _ends(runs: Sequence[Row], figure: str) -> list[float]:
    values = [run[figure] for run in runs]
    return [min(values), max(values)]


if __name__ == "__main__":
    main()
