"""The mean paired difference with a confidence interval that stays valid however often it is checked. Pure.

The interval is an asymptotic confidence sequence: Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, Time-uniform central limit
theory and asymptotic confidence sequences (2024), with the variance across groups of keys instead of events.
"""

import math
from dataclasses import dataclass

import numpy as np

from scorer.rollout.canary_analysis.key_strata import Cells

TUNED = 30.0
"""The variance of the sum for which the interval is optimized: 3,000 pairs, of which one in a hundred has a difference."""
UNSEEN = 1.0
"""The square of the largest possible difference, which is added to the variance of a sum.

Without UNSEEN, a rule whose first pairs have no difference would get an interval of width 0 after a few pairs.
"""


@dataclass(frozen=True, slots=True)
class ConfidenceInterval:
    """The confidence interval of the mean difference between candidate and champion, by one rule.

    A pair is the answers of both versions to one event. A cell is a group of event keys (see `key_strata`). The interval is
    infinite if fewer than two cells have pairs.

    Attributes:
        estimate: The mean difference of the pairs; None without pairs.
        low: The lower bound of the mean difference.
        high: The upper bound of the mean difference.
        pairs: The number of pairs.
        cells: The number of cells that have pairs.
    """

    estimate: float | None = None
    low: float = -math.inf
    high: float = math.inf
    pairs: int = 0
    cells: int = 0


def boundary(variance: float, alpha: float) -> float:
    """Return a bound on the distance of a random sum from its mean, given the variance of the sum.

    The probability that the distance exceeds the bound at any check is at most `alpha`.
    """
    # The two-sided normal mixture of Robbins (1970); see Howard and others, Time-uniform Chernoff bounds (2021).
    twice = -2.0 * math.log(alpha)
    mixed = TUNED / (twice + math.log1p(twice))
    return math.sqrt((variance + mixed) * (math.log1p(variance / mixed) + twice))


def variance(cells: Cells) -> float:
    """Return the variance of the sum of all pairs' differences, estimated from the sums of the cells."""
    # It is estimated from the cells and from the single pairs, and the larger estimate is used. UNSEEN gives the confidence
    # interval a width even if all pairs so far have the difference 0.
    pairs = cells.pairs
    active = cells.active
    mean = float(cells.sums.sum()) / pairs
    across = float(np.square(cells.sums - mean * cells.counts).sum()) * active / (active - 1)
    apart = float(cells.squares.sum()) - pairs * mean * mean
    return max(across, apart) + UNSEEN


def interval(cells: Cells, alpha: float) -> ConfidenceInterval:
    """Return the confidence interval of the pairs' mean difference. It is infinite if fewer than two cells have pairs."""
    # With one cell, the spread of the differences is unknown.
    pairs = cells.pairs
    active = cells.active
    if not pairs:
        return ConfidenceInterval()
    estimate = float(cells.sums.sum()) / pairs
    if active < 2:
        return ConfidenceInterval(estimate, pairs=pairs, cells=active)
    width = boundary(variance(cells), alpha) / pairs
    return ConfidenceInterval(estimate, estimate - width, estimate + width, pairs, active)
