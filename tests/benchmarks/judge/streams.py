"""Simulated streams of pairs: keys of uneven activity, and versions with given rates of failures, flips and errors."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scorer.rollout.canary_analysis.key_strata import CELLS
from scorer.rollout.canary_analysis.rules import MetricRule

KEYS = 20_000
Draw = Callable[[np.random.Generator, NDArray[np.intp]], NDArray[np.float64]]
"""Differences of pairs, by their keys."""


@dataclass(frozen=True)
class Kind:
    """A rule and its source of differences: `make` draws the constants of one stream, and returns the source."""

    rule: MetricRule
    make: Callable[[np.random.Generator, NDArray[np.float64]], Draw]


@dataclass(frozen=True)
class Stream:
    """`looks` batches of `every` pairs: the cells of the pairs, and the differences by the name of the rule."""

    kinds: tuple[Kind, ...]
    looks: int
    every: int

    def play(self, chance: np.random.Generator) -> Iterator[tuple[NDArray[np.intp], dict[str, NDArray[np.float64]]]]:
        activity = chance.lognormal(0.0, 1.0, KEYS)
        activity /= activity.sum()
        edges, cells = np.cumsum(activity), chance.integers(0, CELLS, KEYS)
        draws = {kind.rule.name: kind.make(chance, activity) for kind in self.kinds}
        for _ in range(self.looks):
            keys = np.minimum(np.searchsorted(edges, chance.random(self.every)), KEYS - 1)
            yield cells[keys], {name: draw(chance, keys) for name, draw in draws.items()}


def by_chance(rule: MetricRule, before: float, after: float) -> Kind:
    """Independent failures of both versions, without an effect of the key."""
    return Kind(rule, lambda *_: lambda chance, keys: _failed(chance, keys, after) - _failed(chance, keys, before))


def by_key(rule: MetricRule, before: float, after: float, shape: float = 0.3) -> Kind:
    """Failures by key: each version fails often for its own keys. Rates have a gamma distribution."""

    def make(chance: np.random.Generator, _: NDArray[np.float64]) -> Draw:
        rates = [
            np.minimum(chance.gamma(shape, mean / shape, KEYS), 1.0) if mean else np.zeros(KEYS) for mean in (before, after)
        ]
        return lambda chance, keys: _failed(chance, keys, rates[1][keys]) - _failed(chance, keys, rates[0][keys])

    return Kind(rule, make)


def by_score(rule: MetricRule, worse: float, noise: float = 0.05) -> Kind:
    """Squared errors of two probabilities: the candidate's mean is larger by `worse`, with noise per key and per pair."""

    def make(chance: np.random.Generator, _: NDArray[np.float64]) -> Draw:
        of_key = chance.normal(0.0, noise, KEYS)
        return lambda chance, keys: np.clip(worse + of_key[keys] + chance.normal(0.0, noise, len(keys)), -1.0, 1.0)

    return Kind(rule, make)


def _failed(chance: np.random.Generator, keys: NDArray[np.intp], rate: float | NDArray[np.float64]) -> NDArray[np.float64]:
    return (chance.random(len(keys)) < rate).astype(np.float64)
