"""Synchronous successive halving: train all trials to the first rung, the best of them to the next rung, and so on. Pure.

A trial is one choice of parameters; a rung is a budget of trees or epochs. The result does not depend on the order in which
trials end or on the number of workers.
"""

# The trials that continue from a rung are chosen when all its trials have a score. Jamieson and Talwalkar (2016),
# "Non-stochastic best arm identification".

from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType

import msgspec

from training.recipes import Params
from training.recipes.contract import Goal

NO_STOPS: Mapping[int, int] = MappingProxyType({})


class ScoredTrial(msgspec.Struct, frozen=True, omit_defaults=True):
    """The number of a trial, and the value of the metric.

    `reached` is the budget at which the recipe stopped by itself; None if it trained up to the budget of the rung.
    """

    trial: int
    score: float
    reached: int | None = None


class FailedTrial(msgspec.Struct, frozen=True):
    """The number of a trial that failed at a budget, the reason, and the end of its log."""

    trial: int
    budget: int
    reason: str
    log: str = ""


class Rung(msgspec.Struct, frozen=True):
    """The trials that were trained up to one budget of trees or epochs, with their scores.

    `kept` are the numbers of the trials that continue to the next budget, best first.
    """

    budget: int
    trials: tuple[ScoredTrial, ...]
    kept: tuple[int, ...]


class Tried(msgspec.Struct, frozen=True):
    """The number of a trial, and its parameters."""

    trial: int
    parameters: Params


class Best(msgspec.Struct, frozen=True):
    """The trial and the budget with the best score.

    The budget is smaller than that of the last rung if further trees or epochs made the score worse, or if the
    recipe stopped earlier.
    """

    trial: int
    parameters: Params
    budget: int
    score: float


class Searched(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of a search for parameters: its rungs, its trials and the best trial.

    Attributes:
        spent: The number of trees or epochs that all trials trained together.
        unstopped: The number that they would have trained if every trial had been trained up to the last rung.
        goal: Whether a larger or a smaller metric is better.
        failures: The trials that failed. They have no score, and do not continue.
    """

    metric: str
    rungs: tuple[Rung, ...]
    trials: tuple[Tried, ...]
    best: Best
    spent: int
    unstopped: int
    goal: Goal = "max"
    failures: tuple[FailedTrial, ...] = ()

    @property
    def curve(self) -> list[tuple[int, float]]:
        """Return the learning curve of the best trial: its budget and score at each rung."""
        return [(rung.budget, scored.score) for rung in self.rungs for scored in rung.trials if scored.trial == self.best.trial]


def rung(
    budget: int, scores: Mapping[int, float], keep: int, goal: Goal = "max", reached: Mapping[int, int] = NO_STOPS
) -> Rung:
    """Return the rung with these scores by trial number. The `keep` trials with the best scores continue.

    Of trials with equal scores, the one with the lower number continues. `reached` has the budgets at which trials stopped.
    """
    order = sorted(scores, key=lambda trial: (_loss(scores[trial], goal), trial))
    scored = [
        ScoredTrial(trial, scores[trial], None if reached.get(trial, budget) == budget else reached[trial])
        for trial in sorted(scores)
    ]
    return Rung(budget, tuple(scored), tuple(order[:keep]))


def best(rungs: Sequence[Rung], goal: Goal = "max") -> tuple[int, int, float]:
    """Return the trial number, the budget and the value of the best score.

    Of equal scores, the one with the smallest budget is chosen, then the one with the lowest trial number.
    """
    scored_budgets = [(scored.trial, scored.reached or rung.budget, scored.score) for rung in rungs for scored in rung.trials]
    return min(scored_budgets, key=lambda entry: (_loss(entry[2], goal), entry[1], entry[0]))


def _loss(score: float, goal: Goal) -> float:
    return -score if goal == "max" else score


def sizes(trials: int, rungs: int, reduction: int) -> list[int]:
    """Return the number of trials of each rung: `trials` in the first, then each time divided by `reduction`, rounded up."""
    counts = [trials]
    while len(counts) < rungs:
        counts.append(-(-counts[-1] // reduction))
    return counts


def units(budgets: Sequence[int], counts: Sequence[int]) -> int:
    """Return the total number of trees or epochs that all rungs train."""
    # A trial continues from its checkpoint, so it trains only the difference from the previous budget.
    steps = [budgets[0], *(later - earlier for earlier, later in pairwise(budgets))]
    return sum(count * step for count, step in zip(counts, steps, strict=True))
