"""`python -m tests pauses`: the longest pause of a partition during planned operations, for a reader of committed scores.

Each operation runs on a real broker with 2,000 events/s, and both auditors count afterwards. The exit code is 1 if a count is
not zero, a scorer ends unplanned, or the median of the pauses exceeds the limit. Pauses grow with the load of the
machine, so the load is printed too.
"""

import argparse
import contextlib
import json
import os
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from tests.chaos import rounds
from tests.chaos.command import exit_on_sigterm, talk
from tests.chaos.faults.plan import ScorerRound
from tests.chaos.faults.stage import READY_SECONDS, Ground, ScorerResult, Stage
from tests.chaos.plan import Step
from tests.support.waiting import within

RATE = 2_000.0
PROTOCOL = "classic"


@dataclass(frozen=True)
class Operation:
    """A planned operation.

    Attributes:
        running: the number of scorers at the start.
        most: the largest number of scorers.
        seconds: the duration of the load.
        steps: the steps of the operation.
        pause_limit: the largest median of the pauses in seconds; None if the pause is that of the broker.
    """

    running: int
    most: int
    seconds: float
    steps: tuple[Step, ...]
    pause_limit: float | None = None


OPERATIONS = {
    "rolling-restart": Operation(3, 3, 30.0, tuple(Step(6.0 + 7.0 * k, "restart-scorer", str(k)) for k in range(3)), 3.9),
    "sigterm": Operation(3, 3, 14.0, (Step(6.0, "stop-scorer", "0"),), 2.5),
    "scale-1-4-1": Operation(
        1,
        4,
        30.0,
        tuple(Step(at, verb, str(k)) for at, verb in ((6.0, "start-scorer"), (18.0, "stop-scorer")) for k in (1, 2, 3)),
        2.9,
    ),
    "broker-outage": Operation(3, 3, 25.0, (Step(6.0, "kill-broker", "0"), Step(16.0, "start-broker", "0"))),
}


class PauseStage(Stage):
    """A stage whose scorers do not all run at the start, and are not started again at the end."""

    def __init__(self, ground: Ground, played: ScorerRound, running: int) -> None:
        super().__init__(ground, played, RATE)
        self._running = running
        self.exits = 0

    def begin(self) -> None:
        started = self.fleet.slots[: self._running]
        for slot in started:
            slot.start()
        within(lambda: all("assigned: " in slot.log_text() for slot in started), READY_SECONDS, self.tend)
        self.load.start()

    def heal(self) -> None:
        self.exits = sum(len(slot.exits) for slot in self.fleet.slots)
        self.ground.cluster.heal()
        self.load.finish()


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    exit_on_sigterm()
    names = [options.only] if options.only else list(OPERATIONS)
    reports = {}
    with contextlib.closing(Ground(1)) as ground:
        ground.start()
        for name in names:
            reports[name] = _measure(ground, name, options.times)
    print(json.dumps(reports, indent=None if options.json else 2))
    return 0 if all(report["ok"] for report in reports.values()) else 1


def _measure(ground: Ground, name: str, times: int) -> dict[str, object]:
    operation = OPERATIONS[name]
    pauses = []
    loads = []
    unplanned_exits = 0
    clean = True
    for number in range(1, times + 1):
        played = ScorerRound(number, number, (name,), operation.seconds, operation.steps, PROTOCOL, operation.most)
        stage = PauseStage(ground, played, operation.running)
        result = rounds.play(stage, played, ScorerResult(number, number, (name,), protocol=PROTOCOL, scorers=operation.most))
        planned = sum(step.verb in ("restart-scorer", "stop-scorer") for step in operation.steps)
        unplanned_exits += stage.exits - planned
        clean = clean and result.clean
        pauses.append(result.stall_seconds)
        loads.append(os.getloadavg()[0])
        talk.print(
            f"{name}: pause {result.stall_seconds:.1f} s, {stage.exits - planned} unplanned exits, {result.inputs} events, "
            f"load {loads[-1]:.1f}: {result.trouble or 'ok'}",
            markup=False,
        )
    median = statistics.median(pauses)
    fits = operation.pause_limit is None or median <= operation.pause_limit
    return {
        "median_pause_seconds": median,
        "pauses_seconds": pauses,
        "limit_seconds": operation.pause_limit,
        "unplanned_exits": unplanned_exits,
        "clean": clean,
        "machine_load": [round(load, 1) for load in loads],
        "ok": clean and fits and unplanned_exits == 0,
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests pauses", description="Pauses of scores during planned operations.")
    parser.add_argument("--times", type=int, default=3, help="how often each operation runs")
    parser.add_argument("--only", choices=OPERATIONS)
    parser.add_argument("--json", action="store_true", help="the report as one line")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
