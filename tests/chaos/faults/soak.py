"""The soak: one long round with a fault every half minute, and what each process holds, sampled all the time.

The first scorer is never killed or stopped by the plan, so that one process lives through everything. What grows is told as a
slope, fitted by least squares over the samples after the warm-up of each process that lived long enough, and over the second
half of them: the heap takes up to the largest backlog, which comes early or late, and then stays.
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
LIVED_SECONDS = 600.0  # a slope says nothing of a process that lived shorter after its warm-up
SCORERS = 2


def plan(seed: int, seconds: float) -> ScorerRound:
    """The round of this seed. Pure. Faults of scorers befall all but the first."""
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
        """Growth in an hour after the warm-up; None where the process did not live long enough."""
        began = self.samples[0][0]
        kept = [sample for sample in self.samples if sample[0] - began >= WARM_UP_SECONDS]
        if not kept or kept[-1][0] - kept[0][0] < LIVED_SECONDS:
            return None
        later = [sample for sample in kept if sample[0] >= (kept[0][0] + kept[-1][0]) / 2]
        return {
            "role": self.role,
            "minutes": round((kept[-1][0] - kept[0][0]) / 60, 1),
            "rss_mib": [round(kept[0][1], 1), round(kept[-1][1], 1)],
            "rss_mib_per_hour": _per_hour(kept, 1),
            "rss_mib_per_hour_later": _per_hour(later, 1),
            "handles": [kept[0][2], kept[-1][2]],
            "handles_per_hour": _per_hour(kept, 2),
            "threads": [kept[0][3], kept[-1][3]],
        }


def _per_hour(samples: list[tuple[float, float, int, int]], which: int) -> float:
    return round(linear_regression([at[0] / 3_600 for at in samples], [at[which] for at in samples]).slope, 2)


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
                    self._look(slot.replica, process.process.pid, time.monotonic() - began)

    def _look(self, role: str, pid: int, at: float) -> None:
        try:
            seen = psutil.Process(pid).children()[0]
            sample = (at, seen.memory_info().rss / 2**20, seen.num_fds(), seen.num_threads())
        except (psutil.Error, IndexError):  # it has just ended
            return
        self.lives.setdefault(seen.pid, Life(role)).samples.append(sample)

    def close(self) -> None:
        self._closing.set()
        self.join()


def run(ground: Ground, seed: int, seconds: float, rate: float, told: Callable[[ScorerResult], None]) -> list[dict[str, Any]]:
    samplers: list[Sampler] = []

    def watch(fleet: Fleet) -> None:
        samplers.append(Sampler(fleet))
        samplers[0].start()

    result = play(ground, plan(seed, seconds), rate, watching=watch)
    samplers[0].close()
    told(result)
    return [found for life in samplers[0].lives.values() if (found := life.slopes())]
