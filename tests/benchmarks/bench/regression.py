"""Compare the cost of scoring with a committed baseline: CPU time per event as a multiple of the yardstick in the same run.

Both are CPU times, never wall times, and the lowest of their rounds, so that a busy machine changes little. The exit code is 1
if a component costs more than the baseline allows.

    python -m tests.benchmarks.bench.regression [--json]
    python -m tests.benchmarks.bench.regression --write     # after an intended change of the cost
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.benchmarks.bench.components import Parts, yardstick
from tests.benchmarks.bench.workload import Workload

BASELINE = Path(__file__).with_name("baseline.json")
SIZES = (1, 64, 512)
ROUNDS = 7
TOLERANCE = 1.6  # times the baseline; differences between machines and their load are smaller


@dataclass(frozen=True, slots=True)
class Verdict:
    """A component at a batch size: its multiple of the yardstick, that of the baseline, and whether it costs too much."""

    name: str
    multiple: float
    baseline: float
    dearer: bool


def verdicts(multiples: Mapping[str, float], baseline: Mapping[str, float], tolerance: float = TOLERANCE) -> list[Verdict]:
    """Return a verdict for each measured component. Raises KeyError if the baseline has none for it."""
    return [Verdict(name, value, baseline[name], value > tolerance * baseline[name]) for name, value in multiples.items()]


def measure(rounds: int = ROUNDS) -> dict[str, float]:
    """Measure each component for an event of 30 features; return multiples of the yardstick."""
    with tempfile.TemporaryDirectory(prefix="scorestream-bench-") as folder:
        parts = Parts(Path(folder), Workload())
        unit = yardstick(rounds).lowest
        costs = {f"{name}@{size}": cost.lowest for size in SIZES for name, cost in parts.costs(size, rounds).items()}
        unit = min(unit, yardstick(rounds).lowest)
    return {name: round(cost / unit, 4) for name, cost in costs.items()}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.bench.regression")
    parser.add_argument("--write", action="store_true", help="make this run the baseline")
    parser.add_argument("--json", action="store_true", help="print JSON on stdout")
    options = parser.parse_args()
    multiples = measure()
    if options.write:
        BASELINE.write_text(json.dumps(multiples, indent=1) + "\n")
    results = verdicts(multiples, json.loads(BASELINE.read_text()))
    if options.json:
        print(json.dumps([asdict(verdict) for verdict in results]))
    else:
        for v in results:
            print(f"{'DEARER' if v.dearer else 'ok':6} {v.name:12} {v.multiple:8.4f}, baseline {v.baseline:.4f} (x{TOLERANCE})")
    return int(any(verdict.dearer for verdict in results))


if __name__ == "__main__":
    sys.exit(main())
