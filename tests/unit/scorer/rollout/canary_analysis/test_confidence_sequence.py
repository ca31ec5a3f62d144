"""Confidence sequences compared with their definition, and the share of streams that leave them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from scipy import stats

from scorer.rollout.canary_analysis.confidence_sequence import TUNED, UNSEEN, ConfidenceInterval, boundary, interval, variance
from scorer.rollout.canary_analysis.key_strata import CELLS, Cells


@examples(max_examples=50)
@given(st.floats(0.1, 1e6), st.floats(1e-6, 0.3))
def test_at_the_boundary_the_mixture_of_likelihoods_is_one_in_alpha(total: float, alpha: float) -> None:
    """The boundary follows from Ville's inequality.

    A sum S of variance V has, under means drawn from a normal of variance 1/r, the mixed likelihood ratio
    N(S; 0, V + V^2/r) / N(S; 0, V). The inequality bounds it by 1/alpha.
    """
    twice = -2 * math.log(alpha)
    mixed = TUNED / (twice + math.log1p(twice))
    edge = boundary(total, alpha)
    spread = math.sqrt(total + total**2 / mixed)
    ratio = stats.norm.logpdf(edge, 0, spread) - stats.norm.logpdf(edge, 0, math.sqrt(total))
    assert ratio == pytest.approx(-math.log(alpha), rel=1e-6)


def test_a_walk_leaves_the_boundary_in_fewer_streams_than_alpha() -> None:
    walks = np.random.default_rng(5).normal(size=(2_000, 2_000)).cumsum(axis=1)
    edges = np.array([boundary(float(n), 0.05) for n in range(1, walks.shape[1] + 1)])
    assert (np.abs(walks) > edges).any(axis=1).mean() < 0.05


def test_pairs_of_one_key_count_as_their_cell() -> None:
    chance = np.random.default_rng(2)
    failing = np.flatnonzero(chance.random(CELLS) < 0.5)
    dependent = Cells().added(np.repeat(np.arange(CELLS), 10), np.repeat(np.isin(np.arange(CELLS), failing), 10).astype(float))
    assert variance(dependent) == pytest.approx(10**2 * CELLS / 4, rel=0.05)
    independent = Cells().added(np.repeat(np.arange(CELLS), 10), (chance.random(10 * CELLS) < 0.5).astype(float))
    assert variance(independent) == pytest.approx(10 * CELLS / 4, rel=0.1)
    assert interval(dependent, 0.05).high - interval(dependent, 0.05).low > 2.5 * (
        interval(independent, 0.05).high - interval(independent, 0.05).low
    )


def test_without_pairs_the_interval_is_infinite() -> None:
    assert interval(Cells(), 0.05) == ConfidenceInterval(None, -math.inf, math.inf, 0, 0)
    lone = interval(Cells().added([7] * 50, [1.0] * 50), 0.05)
    assert lone == ConfidenceInterval(1.0, -math.inf, math.inf, 50, 1)


def test_without_any_difference_the_interval_has_a_width() -> None:
    of_few_pairs = interval(Cells().added(range(50), [0.0] * 50), 0.05)
    assert of_few_pairs.estimate == 0.0
    assert of_few_pairs.high > 0.05
    assert variance(Cells().added(range(50), [0.0] * 50)) == UNSEEN
    of_many_pairs = interval(Cells().added(np.arange(10_000) % CELLS, np.zeros(10_000)), 0.05)
    assert of_many_pairs.high < 0.001
