"""Rung-synchronous halving: all trials are trained to the first rung, the best of them to the next, and so on. Pure.

A rung is judged when all of its trials have a score. So the answer does not depend on which trial ends first, and any number
of workers finds the same one. Jamieson and Talwalkar (2016), "Non-stochastic best arm identification".
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec

from training.recipes import Params


class Scored(msgspec.Struct, frozen=True):
    """The AUC of a trial on the validation part."""

    trial: int
    score: float


class Rung(msgspec.Struct, frozen=True):
    """The trials that were trained up to `budget` trees or epochs, and those of them that go on, the best first."""

    budget: int
    trials: tuple[Scored, ...]
    kept: tuple[int, ...]


class Tried(msgspec.Struct, frozen=True):
    """What a trial is."""

    trial: int
    parameters: Params


class Best(msgspec.Struct, frozen=True):
    """The trial and the budget with the highest score. A model that got worse by more trees is taken as it was before them."""

    trial: int
    parameters: Params
    budget: int
    score: float


class Searched(msgspec.Struct, frozen=True):
    """What a search found. `spent`: trees or epochs trained in all; `unstopped`: those of a search that stops no trial."""

    metric: str
    rungs: tuple[Rung, ...]
    trials: tuple[Tried, ...]
    best: Best
    spent: int
    unstopped: int

    @property
    def curve(self) -> list[tuple[int, float]]:
        """The learning curve of the best trial: budget and score at each rung."""
        return [(rung.budget, one.score) for rung in self.rungs for one in rung.trials if one.trial == self.best.trial]


def rung(budget: int, scores: Mapping[int, float], keep: int) -> Rung:
    """The rung of these scores by trial, of which so many go on. Of equal scores the lower number goes on."""
    order = sorted(scores, key=lambda trial: (-scores[trial], trial))
    return Rung(budget, tuple(Scored(trial, scores[trial]) for trial in sorted(scores)), tuple(order[:keep]))


def best(rungs: Sequence[Rung]) -> tuple[int, int, float]:
    """Trial, budget and score of the best. Of equal ones the smaller budget, then the lower number."""
    found = [(one.trial, rung.budget, one.score) for rung in rungs for one in rung.trials]
    return min(found, key=lambda one: (-one[2], one[1], one[0]))


def sizes(trials: int, rungs: int, reduction: int) -> list[int]:
    """How many trials each rung has: of those before one in `reduction` goes on, rounded up."""
    found = [trials]
    while len(found) < rungs:
        found.append(-(-found[-1] // reduction))
    return found


def units(budgets: Sequence[int], counts: Sequence[int]) -> int:
    """Trees or epochs that rungs of so many trials cost: a trial goes on from where it stood."""
    steps = [budgets[0], *(later - earlier for earlier, later in pairwise(budgets))]
    return sum(count * step for count, step in zip(counts, steps, strict=True))
