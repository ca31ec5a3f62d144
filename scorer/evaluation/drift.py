"""The distance between the score distributions of two versions. Pure."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

BINS = 10
FLOOR = 1e-4  # the share that replaces the share 0 of an empty bin, so that the index stays finite

Numbers = Sequence[float] | NDArray[np.float64]


def psi(expected: Numbers, actual: Numbers) -> float:
    """Return the population stability index over ten quantile bins of `expected`; equal values share a bin.

    Below 0.1 the populations are alike, above 0.25 they differ (Siddiqi, Credit Risk Scorecards, 2006, chapter 9).
    """
    return _index(*_binned(expected, actual))


def psi_without_bias(expected: Numbers, actual: Numbers) -> float:
    """Return the PSI minus its expectation for two samples of one population, (bins - 1)(1/n + 1/m); at least 0.

    Yurdakul and Naranjo, Statistical properties of the population stability index (2020).
    """
    return _without_bias(*_binned(expected, actual))


def psi_of_names(expected: Mapping[str | None, int], actual: Mapping[str | None, int]) -> float:
    """Return the PSI of counts by name (for example decisions), minus its expectation. Each name is a bin."""
    names = sorted(expected.keys() | actual.keys(), key=repr)  # None and the name 'None' are different bins
    counts = [np.array([counted.get(name, 0) for name in names]) for counted in (expected, actual)]
    return _without_bias(*counts)


def ks(expected: Numbers, actual: Numbers) -> float:
    """Return the two-sample Kolmogorov-Smirnov statistic: the largest distance between the two distribution functions."""
    columns = [np.sort(np.asarray(numbers)) for numbers in (expected, actual)]
    every = np.concatenate(columns)
    below = [np.searchsorted(column, every, side="right") / len(column) for column in columns]
    return float(np.abs(below[0] - below[1]).max())


def _binned(expected: Numbers, actual: Numbers) -> list[NDArray[np.int64]]:
    reference = np.asarray(expected)
    other = np.asarray(actual)
    inner = np.unique(np.quantile(reference, np.linspace(0, 1, BINS + 1)[1:-1]))
    places = [np.searchsorted(inner, column, side="right") for column in (reference, other)]
    return [np.bincount(each, minlength=len(inner) + 1) for each in places]


def _index(*counts: NDArray[np.int64]) -> float:
    before, after = (np.maximum(column / column.sum(), FLOOR) for column in counts)
    return float(((after - before) * np.log(after / before)).sum())


def _without_bias(*counts: NDArray[np.int64]) -> float:
    bias = (len(counts[0]) - 1) * sum(1 / column.sum() for column in counts)
    return max(0.0, _index(*counts) - float(bias))
