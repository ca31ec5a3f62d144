"""`python -m tests judge`: how often the rollout analysis wrongly rolls back or promotes a simulated candidate.

The exit code is 1 if a limit is exceeded.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console

from scorer.rollout.canary_analysis.bake_time import BakeClock, BakeConditions
from scorer.rollout.canary_analysis.key_strata import Cells
from scorer.rollout.canary_analysis.rules import BRIER, ERRORS, FLIPS, MetricRule
from scorer.rollout.canary_analysis.verdict import CanaryDecision, decide
from tests.benchmarks.judge.streams import Kind, Stream, by_chance, by_key, by_score

FEW = 100  # streams of cases whose result is not random
STEPS = 3  # of a rollout: 5, 25 and 100 %
LOOKS, EVERY = 120, 250
BAKE_SECONDS = 20.0
ERROR, FLIP, LOSS, TIMEOUT = (
    MetricRule(ERRORS, 0.005),
    MetricRule(FLIPS, 0.05, signed=False),
    MetricRule(BRIER, 0.005),
    MetricRule("timeouts", 0.005),
)
HEALTHY = BakeConditions(cut_over=6, partitions=6, pair_age=0.1, behind=0.5)
console = Console(stderr=True, highlight=False, soft_wrap=True)


@dataclass(frozen=True)
class Ending:
    decision: CanaryDecision
    pairs: int


@dataclass(frozen=True)
class Case:
    """Streams, and the limit of the share that ends with `decision`: at most `bar`, or at least with `at_least`."""

    name: str
    stream: Stream
    decision: CanaryDecision
    bar: float
    at_least: bool = False
    conditions: BakeConditions = HEALTHY
    silent: tuple[str, ...] = ()
    streams: int | None = None

    def met(self, share: float) -> bool:
        return share >= self.bar if self.at_least else share <= self.bar


def cases() -> list[Case]:
    even = (by_chance(ERROR, 0.01, 0.01), by_chance(FLIP, 0.0, 0.01))
    uneven = (by_key(ERROR, 0.02, 0.02), by_key(FLIP, 0.0, 0.01), by_score(LOSS, 0.0), by_key(TIMEOUT, 0.005, 0.005))
    good = (by_chance(ERROR, 0.0005, 0.0005), by_chance(FLIP, 0.0, 0.01))
    listed = [
        Case("A/A: one binary, two digests", Stream(even, LOOKS, EVERY), CanaryDecision.ROLL_BACK, 0.0),
        Case("A/A that never differs", Stream((by_chance(ERROR, 0.0, 0.0),), LOOKS, EVERY), CanaryDecision.ROLL_BACK, 0.0),
        Case("equal, uneven keys, 4 rules", Stream(uneven, LOOKS, EVERY), CanaryDecision.ROLL_BACK, 0.05),
        Case("good: promoted", Stream(good, LOOKS, EVERY), CanaryDecision.PROMOTE, 0.9, at_least=True),
        *_margins(),
    ]
    for more in (0.01, 0.02, 0.03, 0.04, 0.05):
        worse = Stream((by_chance(ERROR, 0.005, 0.005 + more), *good[1:]), 5_000 // EVERY, EVERY)
        listed.append(Case(f"errors +{more:.0%}, by 5,000 pairs", worse, CanaryDecision.ROLL_BACK, 0.9, at_least=True))
    labelled, unlabelled = Stream(good, LOOKS, EVERY), Stream((*good, by_score(LOSS, 0.0)), LOOKS, EVERY)
    return [
        *listed,
        Case("no traffic", Stream(good, LOOKS, 0), CanaryDecision.PROMOTE, 0.0, streams=FEW),
        Case("labels absent", unlabelled, CanaryDecision.PROMOTE, 0.0, silent=(BRIER,), streams=FEW),
        Case("judge behind", labelled, CanaryDecision.PROMOTE, 0.0, conditions=BakeConditions(6, 6, 0.1, 45.0), streams=FEW),
        Case(
            "a partition not cut over",
            labelled,
            CanaryDecision.PROMOTE,
            0.0,
            conditions=BakeConditions(5, 6, 0.1, 0.5),
            streams=FEW,
        ),
    ]


def _margins() -> list[Case]:
    kinds: dict[str, Kind] = {
        "errors by chance": by_chance(ERROR, 0.0, ERROR.margin),
        "errors of both by chance": by_chance(ERROR, 0.01, 0.01 + ERROR.margin),
        "errors by key": by_key(ERROR, 0.0, ERROR.margin),
        "flips by key": by_key(FLIP, 0.0, FLIP.margin),
        "Brier by key": by_score(LOSS, LOSS.margin),
    }
    return [
        Case(f"at the margin: {name}", Stream((kind,), LOOKS, EVERY), CanaryDecision.PROMOTE, 0.05)
        for name, kind in kinds.items()
    ]


def ending(case: Case, chance: np.random.Generator, steps: int) -> Ending:
    """Judge the stream second by second until there is a verdict."""
    rules = [kind.rule for kind in case.stream.kinds]
    cells = {rule.name: Cells() for rule in rules}
    bake, pairs = BakeClock(), 0
    for second, (places, differences) in enumerate(case.stream.play(chance)):
        for name in cells.keys() - set(case.silent):
            cells[name] = cells[name].added(places, differences[name])
        pairs += len(places)
        bake = bake.advance(float(second), case.conditions)
        wanted = 0.0 if case.decision is CanaryDecision.ROLL_BACK else min(BAKE_SECONDS, case.stream.looks)
        obstacles = list(bake.obstacles(wanted, case.conditions))
        decision = decide(rules, cells, steps=steps, obstacles=obstacles).decision
        if decision is not CanaryDecision.HOLD:
            return Ending(decision, pairs)
    return Ending(CanaryDecision.HOLD, pairs)


def tried(case: Case, streams: int, seed: int, steps: int) -> dict[str, object]:
    """Judge the streams of a case; return the figures."""
    began = time.monotonic()
    endings = [ending(case, np.random.default_rng([seed, number]), steps) for number in range(case.streams or streams)]
    counts = Counter(each.decision for each in endings)
    share = counts[case.decision] / len(endings)
    decided = [each.pairs for each in endings if each.decision is case.decision]
    return {
        "case": case.name,
        "streams": len(endings),
        **{decision.value: counts[decision] for decision in CanaryDecision},
        "median_pairs": int(np.median(decided)) if decided else None,
        "bar": f"{case.decision.value} in at {'least' if case.at_least else 'most'} {case.bar:.0%}",
        "met": case.met(share),
        "seconds": round(time.monotonic() - began, 1),
    }


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests judge", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--streams", type=int, default=1_000, help="of each case")
    parser.add_argument("--steps", type=int, default=STEPS, help="of the rollout that is judged")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="cases whose name contains this text")
    parser.add_argument("--json", action="store_true", help="figures as JSON on stdout")
    options = parser.parse_args(arguments)
    rows = []
    for case in cases():
        if options.only in case.name:
            rows.append(tried(case, options.streams, options.seed, options.steps))
            console.print(*(f"{value}" for value in rows[-1].values()), sep=" | ", markup=False)
    if options.json:
        print(json.dumps(rows, indent=1))
    return int(not all(row["met"] for row in rows) or not rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
