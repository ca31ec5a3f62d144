"""The soak: one long round with a fault every half minute, and samples of the resources of each process.

The plan never kills or stops the first scorer, so that one process runs during the whole soak. Growth is reported as a slope,
fitted by least squares over the samples after the warm-up of each process that ran long enough, and over the second half of
them: the heap grows up to the largest backlog, which occurs early or late, and then stays.
"""

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from statistics import linear_regression
from typing import Any

import psutil

from tests.chaos.faults.fleet import Fleet
from tests.chaos.faults.plan import PLANNERS, Dice, ScorerRound
from tests.chaos.faults.rounds import play
from tests.chaos.faults.stage import VERSIONS, Ground, ScorerResult
from tests.chaos.plan import Step

FAULTS = ("kill-scorer", "freeze-scorer", "churn", "cut", "slow", "half-open", "late-endtxn", "poison", "swap", "kill-broker")
EVERY_SECONDS = 30.0  # from one fault to the next
REST_SECONDS = 30.0  # without faults at the end
SAMPLE_SECONDS = 5.0
WARM_UP_SECONDS = 120.0
LIVED_SECONDS = 600.0  # a process that ran for less after its warm-up has no meaningful slope
SCORERS = 2


def plan(seed: int, seconds: float) -> ScorerRound:
    """Return the round of this seed. Pure. Faults of scorers affect all scorers except the first."""
    rng = random.Random(seed)
    steps: list[Step] = []
    swaps = 0
    at = EVERY_SECONDS
    while at < seconds - REST_SECONDS:
        fault = rng.choice([name for name in FAULTS if name != "swap" or swaps + 2 < len(VERSIONS)])
        swaps += 2 if fault == "swap" else 0
        steps += [_spare_the_first(step) for step in PLANNERS[fault](Dice(rng, at, SCORERS, 1))]
        at += EVERY_SECONDS
    return ScorerRound(1, seed, FAULTS, seconds, tuple(sorted(steps)), "consumer", SCORERS)


def _spare_the_first(step: Step) -> Step:
    victim, _, rest = step.argument.partition(" ")
    of_scorer = step.verb == "arm" or step.verb.endswith("-scorer") or step.verb == "restart-with-clock"
    return replace(step, argument=f"1 {rest}".strip()) if of_scorer and victim == "0" else step


@dataclass
class Life:
    """One process: seconds since the first sample, resident memory in MiB, handles, threads."""

    role: str
    samples: list[tuple[float, float, int, int]] = field(default_factory=list)

    def slopes(self) -> dict[str, Any] | None:
        """Return the growth per hour after the warm-up; None if the process did not run long enough."""
        began = self.samples[0][0]
        warm = [sample for sample in self.samples if sample[0] - began >= WARM_UP_SECONDS]
        if not warm or warm[-1][0] - warm[0][0] < LIVED_SECONDS:
            return None
        second_half = [sample for sample in warm if sample[0] >= (warm[0][0] + warm[-1][0]) / 2]
        return {
            "role": self.role,
            "minutes": round((warm[-1][0] - warm[0][0]) / 60, 1),
            "rss_mib": [round(warm[0][1], 1), round(warm[-1][1], 1)],
            "rss_mib_per_hour": _per_hour(warm, 1),
            "rss_mib_per_hour_later": _per_hour(second_half, 1),
            "handles": [warm[0][2], warm[-1][2]],
            "handles_per_hour": _per_hour(warm, 2),
            "threads": [warm[0][3], warm[-1][3]],
        }


def _per_hour(samples: list[tuple[float, float, int, int]], column: int) -> float:
    return round(linear_regression([sample[0] / 3_600 for sample in samples], [sample[column] for sample in samples]).slope, 2)


class Sampler(threading.Thread):
    def __init__(self, fleet: Fleet) -> None:
        super().__init__(name="sampler", daemon=True)
        self.lives: dict[int, Life] = {}
        self._fleet = fleet
        self._closing = threading.Event()

    def run(self) -> None:
        began = time.monotonic()
        while not self._closing.wait(SAMPLE_SECONDS):
            for slot in self._fleet.slots:
                if (process := slot.process) is not None:
                    self._sample(slot.replica, process.process.pid, time.monotonic() - began)

    def _sample(self, role: str, pid: int, at: float) -> None:
        try:
            process = psutil.Process(pid).children()[0]
            sample = (at, process.memory_info().rss / 2**20, process.num_fds(), process.num_threads())
        except (psutil.Error, IndexError):  # the process has just ended
            return
        self.lives.setdefault(process.pid, Life(role)).samples.append(sample)

    def close(self) -> None:
        self._closing.set()
        self.join()


def run(ground: Ground, seed: int, seconds: float, rate: float, report: Callable[[ScorerResult], None]) -> list[dict[str, Any]]:
    samplers: list[Sampler] = []

    def watch(fleet: Fleet) -> None:
        samplers.append(Sampler(fleet))
        samplers[0].start()

    result = play(ground, plan(seed, seconds), rate, watching=watch)
    samplers[0].close()
    report(result)
    return [slopes for life in samplers[0].lives.values() if (slopes := life.slopes())]
