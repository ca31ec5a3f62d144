"""`python -m tests gpu`: an encoder of BERT's base size, a ResNet-50 and a table's perceptron, through the loop, on a GPU.

Self-contained: random weights, events in memory (`transport_memory.py`), no network, under ten minutes. One JSON on stdout, a
table on stderr. What cannot be run is named in it. `--device cpu --quick` rehearses all of it without a GPU. `--keep` keeps the
figures beside this file and puts them into deploy/backends.md. Exit codes: 0 ran, 2 usage, 3 no device could be used.
"""

import argparse
import datetime as dt
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from scorer.backends import BackendMissing, InferenceFailed, ModelRefused
from tests.proofs.gpu import table
from tests.proofs.gpu.measure import measure
from tests.proofs.gpu.networks import networks
from tests.support.environment import ROOT

SECONDS = 540.0
COLUMNS = (
    "batch", "device_ms", "events_per_second", "share_of_device", "half_load_p99_ms", "half_load_p99_aim_ms",
)  # fmt: skip
talk = Console(stderr=True, highlight=False, soft_wrap=True)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests gpu", description=__doc__.splitlines()[0])
    parser.add_argument("--device", action="append", choices=["cpu", "cuda", "tensorrt"], help="default: cuda and tensorrt")
    parser.add_argument("--quick", action="store_true", help="small networks, short runs: to see that it works")
    parser.add_argument("--keep", action="store_true", help="keep the figures, and put them into deploy/backends.md")
    options = parser.parse_args(arguments)
    devices = options.device or ["cuda", "tensorrt"]
    if options.keep and (options.quick or "cpu" in devices):
        parser.error("--keep is for whole runs on a GPU")
    figures, not_run = _measured(devices, quick=options.quick, until=time.monotonic() + SECONDS)
    found = {
        "machine": _machine(devices),
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "commit": _commit(),
        "quick": options.quick,
        "figures": figures,
        "not_run": not_run,
    }
    talk.print(_shown(figures))
    for one in not_run:
        talk.print(f"NOT RUN {one['network']} on {one['device']}: {one['why']}", markup=False)
    print(json.dumps(found, indent=2))
    if options.keep and figures:
        table.KEPT.write_text(json.dumps(found, indent=1) + "\n")
        table.PAGE.write_text(table.put(table.PAGE.read_text(), found))
    return 0 if figures else 3


def _measured(devices: Sequence[str], *, quick: bool, until: float) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    figures, not_run = [], []
    with tempfile.TemporaryDirectory(prefix="scorestream-gpu-") as name:
        for network in networks(quick=quick):
            package = network.package(Path(name) / network.name)
            for device in devices:
                talk.print(f"{network.name} on {device} ...", markup=False)
                try:
                    if time.monotonic() > until:
                        raise TimeoutError("out of time")
                    figures.append(measure(network, device, package, quick=quick, until=until))
                except (BackendMissing, ModelRefused, InferenceFailed, TimeoutError) as error:
                    not_run.append({"network": network.name, "device": device, "why": str(error)})
    return figures, not_run


def _machine(devices: Sequence[str]) -> str:
    if "cpu" not in devices:
        asked = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        try:
            said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()[0]
        except (OSError, subprocess.CalledProcessError, IndexError):
            return "no NVIDIA card"
        return ", driver ".join(part.strip() for part in said.split(","))
    return platform.processor() or platform.machine()


def _commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _shown(figures: Sequence[dict[str, Any]]) -> Table:
    shown = Table("network", "device", *COLUMNS, title="through the loop")
    for one in figures:
        for row in one["buckets"]:
            shown.add_row(one["network"], one["device"], *(f"{row[name]:,.4g}" for name in COLUMNS))
    return shown


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
