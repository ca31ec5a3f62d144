"""`python -m tests gpu`: BERT's encoder, a ResNet-50 and a table's perceptron on a GPU, and faults of the device.

Weights are random; no download is needed. Parts: `loop`, the product's loop over events in memory (`transport_memory.py`);
`broker`, the product on a real broker, compared with the same network called directly; `faults`. Each takes under ten minutes.
The result is one JSON on stdout, with the skipped measurements, and tables on stderr. `--device cpu --quick` runs everything
without a GPU. `--keep` keeps the figures in this folder and updates deploy/gpus.md. Exit codes: 0 all ran, 1 a fault lost
events or ended a process, 2 usage, 3 no device was usable.
"""

import argparse
import datetime as dt
import json
import platform
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from scorer.backends.base import BackendMissing, InferenceFailed, ModelRefused
from scorer.backends.onnx.onnx_runtime import OnnxRuntime
from scorer.demo.broker.embedded import EmbeddedBroker
from scorer.settings.model import ModelSettings
from tests.benchmarks.findings import Finding
from tests.benchmarks.gpu import table
from tests.benchmarks.gpu.faults import faults
from tests.benchmarks.gpu.measure import measure
from tests.benchmarks.gpu.networks import Network, networks
from tests.benchmarks.gpu.on_broker import on_broker
from tests.support.environment import ROOT

SECONDS = 540.0  # of a part: measurements that have not started by then are reported as not run
PARTS = ("loop", "broker", "faults")
REFUSED = (BackendMissing, ModelRefused, InferenceFailed, TimeoutError)
BUCKET_COLUMNS = (
    "batch",
    "device_ms",
    "events_per_second",
    "share_of_device",
    "half_load_p99_ms",
    "half_load_p99_aim_ms",
)
DRAIN_COLUMNS = ("workers", "events_per_second", "gpu_busy", "gpu_mib")
PACED_COLUMNS = ("rate", "p50_ms", "p99_ms", "swap_pause_ms", "gpu_mib", "gpu_mib_with_two_versions")
console = Console(stderr=True, highlight=False, soft_wrap=True)


def main(arguments: Sequence[str]) -> int:
    names = [network.name for network in networks(quick=True)]
    parser = argparse.ArgumentParser(prog="python -m tests gpu", description=__doc__.splitlines()[0])
    parser.add_argument("--device", action="append", choices=["cpu", "cuda", "tensorrt"], help="default: cuda and tensorrt")
    parser.add_argument("--only", action="append", choices=PARTS, help="only this part; may be repeated")
    parser.add_argument("--network", action="append", choices=names, help="only this network; may be repeated")
    parser.add_argument("--quick", action="store_true", help="small networks, short runs: to test the benchmark itself")
    parser.add_argument("--keep", action="store_true", help="keep the figures, and update deploy/gpus.md")
    options = parser.parse_args(arguments)
    devices = options.device or ["cuda", "tensorrt"]
    if options.keep and (options.quick or "cpu" in devices):
        parser.error("--keep is for whole runs on a GPU")
    run = Run(
        [network for network in networks(quick=options.quick) if network.name in (options.network or names)],
        quick=options.quick,
    )
    with tempfile.TemporaryDirectory(prefix="scorestream-gpu-") as folder:
        for device in devices:
            if run.has(device):
                for part in options.only or PARTS:
                    getattr(run, part)(device, Path(folder))
    report = {
        "machine": _machine(devices),
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "commit": _commit(),
        **run.report,
    }
    run.show()
    print(json.dumps(report, indent=2))
    if options.keep and run.measured:
        table.keep(report)
    return 3 if not run.measured else int(not all(finding["ok"] for finding in run.report["faults"]))


class Run:
    """The measurements so far: `figures` of the loop, those of the `broker`, `faults`, and `not_run` with reasons."""

    def __init__(self, chosen: Sequence[Network], *, quick: bool) -> None:
        self._networks = chosen
        self._quick = quick
        self.report: dict[str, Any] = {"quick": quick, "figures": [], "broker": [], "faults": [], "not_run": []}

    @property
    def measured(self) -> bool:
        return any(self.report[name] for name in ("figures", "broker", "faults"))

    def has(self, device: str) -> bool:
        """Whether the device is usable; report its measurements as not run otherwise."""
        try:
            OnnxRuntime(ModelSettings.model_validate({"source": "oci:.", "device": device}))
        except BackendMissing as error:
            self._not_run("all", device, f"{error}; {error.hint}")
            return False
        return True

    def loop(self, device: str, folder: Path) -> None:
        def measure_network(network: Network, until: float) -> dict[str, Any]:
            package = network.package(folder / f"{network.name}-{device}")
            return measure(network, device, package, quick=self._quick, until=until)

        self.report["figures"] += self._each("loop", device, self._networks, measure_network)

    def broker(self, device: str, folder: Path) -> None:
        large = [network for network in self._networks if network.name != "tab30"]  # its figures would be those of the broker
        with EmbeddedBroker(heap_mb=1_024, quick_start=False) as broker:
            servers = broker.bootstrap_servers

            def measure_network(network: Network, _: float) -> dict[str, Any]:
                return on_broker(network, device, servers, folder / f"{network.name}-{device}-broker", quick=self._quick)

            self.report["broker"] += self._each("broker", device, large, measure_network)

    def faults(self, device: str, folder: Path) -> None:
        place = folder / f"faults-{device}"
        place.mkdir()
        with EmbeddedBroker() as broker:
            for finding in faults(device, broker.bootstrap_servers, place):
                self._fault(finding)

    def _each(
        self, part: str, device: str, chosen: Sequence[Network], measure_one: Callable[[Network, float], dict[str, Any]]
    ) -> Iterator[dict[str, Any]]:
        until = time.monotonic() + SECONDS
        for network in chosen:
            console.print(f"{part}: {network.name} on {device} ...", markup=False)
            try:
                if time.monotonic() > until:
                    raise TimeoutError("out of time")
                yield measure_one(network, until)
            except REFUSED as error:
                self._not_run(network.name, device, str(error))
            except Exception as error:  # noqa: BLE001 - reported as a fault; the other networks still run
                traceback.print_exc()
                self._fault(Finding(f"{part}: {network.name} on {device}", f"{type(error).__name__}: {error}", ok=False))

    def _fault(self, finding: Finding) -> None:
        console.print(f"{'ok  ' if finding.ok else 'FAIL'} {finding.claim}: {finding.observed}", markup=False)
        self.report["faults"].append(finding._asdict())

    def _not_run(self, network: str, device: str, reason: str) -> None:
        self.report["not_run"].append({"network": network, "device": device, "reason": reason})

    def show(self) -> None:
        """Print the tables, and the measurements that were not run."""
        shown = Table("network", "device", *BUCKET_COLUMNS, title="through the loop")
        drained = Table("network", "device", *DRAIN_COLUMNS, "of directly", title="on a broker, a full topic")
        paced = Table("network", "device", *PACED_COLUMNS, title="on a broker, at half of that, and a swap")
        for result in self.report["figures"]:
            for row in result["buckets"]:
                shown.add_row(result["network"], result["device"], *_cells(row, BUCKET_COLUMNS))
        for result in self.report["broker"]:
            for row in result["drained"]:
                share = row["events_per_second"] / result["directly_events_per_second"]
                drained.add_row(result["network"], result["device"], *_cells(row, DRAIN_COLUMNS), f"{share:.3g}")
            paced.add_row(result["network"], result["device"], *_cells(result["paced"], PACED_COLUMNS))
        for each in (shown, drained, paced):
            if each.row_count:
                console.print(each)
        for result in self.report["not_run"]:
            console.print(f"NOT RUN {result['network']} on {result['device']}: {result['reason']}", markup=False)


def _cells(row: dict[str, Any], names: Sequence[str]) -> list[str]:
    return ["-" if row.get(name) is None else f"{row[name]:,.4g}" for name in names]


def _machine(devices: Sequence[str]) -> str:
    if "cpu" not in devices:
        command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        try:
            output = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]
        except (OSError, subprocess.CalledProcessError, IndexError):
            return "no NVIDIA card"
        return ", driver ".join(part.strip() for part in output.split(","))
    return platform.processor() or platform.machine()


def _commit() -> str:
    completed = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return completed.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
