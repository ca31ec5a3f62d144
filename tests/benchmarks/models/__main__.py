"""`python -m tests models`: exported models, from `init` to their scores, compared with ONNX Runtime called directly.

The scorer runs on a real broker, exactly once. Every score must equal ONNX Runtime's for the single event, within 1e-5 of the
largest number, and both audits must be clean. A table is printed on stderr. The exit code is 1 if a score differs.
"""

import argparse
import contextlib
import json
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from scorer.demo.broker.embedded import EmbeddedBroker
from tests.benchmarks.models.cases import Case, cases
from tests.benchmarks.models.server import SETTINGS, on_server, start
from tests.benchmarks.models.stage import ground, served
from tests.integration.backends.servers import ModelServer
from tests.integration.scorer.rig import Rig

COLUMNS = ("events", "open_after_init", "largest_difference", "batch", "scorer_cpu_us", "onnx_runtime_cpu_us")
console = Console(stderr=True, highlight=False, width=140)


def main(arguments: Sequence[str]) -> int:
    by_name = {case.name: case for case in cases()}
    parser = argparse.ArgumentParser(prog="python -m tests models", description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=list(by_name), help="this model; repeatable (default: all)")
    parser.add_argument("--share", type=float, default=1.0, help="of each model's events, such as 0.1")
    parser.add_argument("--server", action="append", choices=list(SETTINGS), help="also there; repeatable (default: mlserver)")
    parser.add_argument("--no-server", action="store_true", help="in the scorer only")
    parser.add_argument("--json", action="store_true", help="figures as JSON on stdout")
    options = parser.parse_args(arguments)
    rows: list[dict[str, Any]] = []
    kinds = [] if options.no_server else options.server or ["mlserver"]
    with (
        tempfile.TemporaryDirectory(prefix="scorestream-models-") as name,
        EmbeddedBroker() as broker,
        contextlib.ExitStack() as closing,
    ):
        servers = {}
        for kind in kinds:
            servers[kind] = start(kind, Path(name) / kind)
            closing.callback(servers[kind].close)
        for case in (by_name[case_name] for case_name in options.only or by_name):
            console.print(f"{case.name} ...", markup=False)
            rows += played(case, broker.bootstrap_servers, Path(name), options.share, servers)
    console.print(shown(rows))
    for row in rows:
        for difference in row["differences"][:5]:
            console.print(f"DIFFERS {row['model']} ({row['where']}): {difference}", markup=False)
    if options.json:
        print(json.dumps(rows, indent=1))
    return int(any(row["differences"] for row in rows))


def played(
    case: Case, bootstrap_servers: str, folder: Path, share: float, servers: Mapping[str, ModelServer]
) -> Iterator[dict[str, Any]]:
    """Yield the figures of a model in the scorer, then on each server."""
    backend = "scorer"
    try:
        prepared = ground(case, folder / case.name, share)
        rig = Rig(bootstrap_servers, prepared.package.parent, case.name, **case.settings)
        try:
            yield {"model": case.name, "where": backend, **served(prepared, prepared.package, rig)}
        finally:
            rig.close()
        for backend, server in servers.items():
            yield {"model": case.name, "where": backend, **on_server(prepared, bootstrap_servers, backend, server)}
    except Exception as error:  # noqa: BLE001 - reported in the table; the other models still run
        traceback.print_exc()
        yield {"model": case.name, "where": backend, "differences": [f"{type(error).__name__}: {error}"]}


def shown(rows: Sequence[dict[str, Any]]) -> Table:
    table = Table(
        "model", "where", *(name.replace("_", " ") for name in COLUMNS), "", title="compared with ONNX Runtime called directly"
    )
    for row in rows:
        cells = [f"{row[name]:,.2g}" if name == "largest_difference" else f"{row[name]:,}" for name in COLUMNS if name in row]
        verdict = "DIFFERS" if row["differences"] else "refused" if "refused" in row else "equal"
        table.add_row(row["model"], row["where"], *(cells or ["-"] * len(COLUMNS)), verdict)
    return table


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
