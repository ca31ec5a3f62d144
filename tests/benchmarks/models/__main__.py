"""`python -m tests models`: models as exporters write them, from `init` to their scores, beside ONNX Runtime called directly.

On a real broker, exactly once. Every score must be ONNX Runtime's for the event alone, within 1e-5 of the largest number, and
both audits clean. A table on stderr. Exit code 1 where something differs.
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
talk = Console(stderr=True, highlight=False, width=140)


def main(arguments: Sequence[str]) -> int:
    known = {case.name: case for case in cases()}
    parser = argparse.ArgumentParser(prog="python -m tests models", description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=list(known), help="this model; repeatable (default: all)")
    parser.add_argument("--share", type=float, default=1.0, help="of each model's events, such as 0.1")
    parser.add_argument("--server", action="append", choices=list(SETTINGS), help="also there; repeatable (default: mlserver)")
    parser.add_argument("--no-server", action="store_true", help="in the scorer only")
    parser.add_argument("--json", action="store_true", help="figures as JSON on stdout")
    options = parser.parse_args(arguments)
    found: list[dict[str, Any]] = []
    wanted = [] if options.no_server else options.server or ["mlserver"]
    with (
        tempfile.TemporaryDirectory(prefix="scorestream-models-") as name,
        EmbeddedBroker() as broker,
        contextlib.ExitStack() as closing,
    ):
        servers = {}
        for kind in wanted:
            servers[kind] = start(kind, Path(name) / kind)
            closing.callback(servers[kind].close)
        for case in (known[one] for one in options.only or known):
            talk.print(f"{case.name} ...", markup=False)
            found += played(case, broker.bootstrap_servers, Path(name), options.share, servers)
    talk.print(shown(found))
    for one in found:
        for said in one["differences"][:5]:
            talk.print(f"DIFFERS {one['model']} ({one['where']}): {said}", markup=False)
    if options.json:
        print(json.dumps(found, indent=1))
    return int(any(one["differences"] for one in found))


def played(
    case: Case, bootstrap_servers: str, folder: Path, share: float, servers: Mapping[str, ModelServer]
) -> Iterator[dict[str, Any]]:
    """The figures of a model in the scorer, then on each server."""
    where = "scorer"
    try:
        made = ground(case, folder / case.name, share)
        rig = Rig(bootstrap_servers, made.package.parent, case.name, **case.settings)
        try:
            yield {"model": case.name, "where": where, **served(made, made.package, rig)}
        finally:
            rig.close()
        for where, server in servers.items():
            yield {"model": case.name, "where": where, **on_server(made, bootstrap_servers, where, server)}
    except Exception as error:  # noqa: BLE001 - told in the table; the others go on
        traceback.print_exc()
        yield {"model": case.name, "where": where, "differences": [f"{type(error).__name__}: {error}"]}


def shown(found: Sequence[dict[str, Any]]) -> Table:
    table = Table(
        "model", "where", *(name.replace("_", " ") for name in COLUMNS), "", title="beside ONNX Runtime called directly"
    )
    for one in found:
        cells = [f"{one[name]:,.2g}" if name == "largest_difference" else f"{one[name]:,}" for name in COLUMNS if name in one]
        verdict = "DIFFERS" if one["differences"] else "refused" if "refused" in one else "equal"
        table.add_row(one["model"], one["where"], *(cells or ["-"] * len(COLUMNS)), verdict)
    return table


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
