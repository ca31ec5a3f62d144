"""Synchronous successive halving: all trials are trained to the first rung, the best of them to the next, and so on. Pure.

A rung is decided when all of its trials have a score. The result therefore does not depend on the order in which trials end or
on the number of workers. Jamieson and Talwalkar (2016), "Non-stochastic best arm identification".
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec

from training.recipes import Params


class ScoredTrial(msgspec.Struct, frozen=True):
    """The AUC of a trial on the validation part."""

    trial: int
    score: float


class Rung(msgspec.Struct, frozen=True):
    """The trials that were trained up to `budget` trees or epochs, and those that continue, best first."""

    budget: int
    trials: tuple[ScoredTrial, ...]
    kept: tuple[int, ...]


class Tried(msgspec.Struct, frozen=True):
    """The parameters of a trial."""

    trial: int
    parameters: Params


class Best(msgspec.Struct, frozen=True):
    """The trial and budget with the highest score. If more trees made a model worse, the smaller budget counts."""

    trial: int
    parameters: Params
    budget: int
    score: float


class Searched(msgspec.Struct, frozen=True):
    """The result of a search. `spent`: trees or epochs trained; `unstopped`: those of a search without early stopping."""

    metric: str
    rungs: tuple[Rung, ...]
    trials: tuple[Tried, ...]
    best: Best
    spent: int
    unstopped: int

    @property
    def curve(self) -> list[tuple[int, float]]:
        """Return the learning curve of the best trial: budget and score at each rung."""
        return [(rung.budget, scored.score) for rung in self.rungs for scored in rung.trials if scored.trial == self.best.trial]


def rung(budget: int, scores: Mapping[int, float], keep: int) -> Rung:
    """Return the rung of these scores by trial, of which `keep` continue. Of equal scores the lower number continues."""
    order = sorted(scores, key=lambda trial: (-scores[trial], trial))
    return Rung(budget, tuple(ScoredTrial(trial, scores[trial]) for trial in sorted(scores)), tuple(order[:keep]))


def best(rungs: Sequence[Rung]) -> tuple[int, int, float]:
    """Return trial, budget and score of the best; of equal ones the smaller budget, then the lower number."""
    scored_budgets = [(scored.trial, rung.budget, scored.score) for rung in rungs for scored in rung.trials]
    return min(scored_budgets, key=lambda entry: (-entry[2], entry[1], entry[0]))


def sizes(trials: int, rungs: int, reduction: int) -> list[int]:
    """Return the number of trials per rung: one in `reduction` of the previous, rounded up."""
    counts = [trials]
    while len(counts) < rungs:
        counts.append(-(-counts[-1] // reduction))
    return counts


def units(budgets: Sequence[int], counts: Sequence[int]) -> int:
    """Return the trees or epochs that the rungs cost: a trial continues from its checkpoint."""
    steps = [budgets[0], *(later - earlier for earlier, later in pairwise(budgets))]
    return sum(count * step for count, step in zip(counts, steps, strict=True))
