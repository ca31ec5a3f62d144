"""Distances of distributions compared with scipy, and their values by chance alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from scipy import stats

from scorer.evaluation.drift import BINS, ks, psi, psi_of_names, psi_without_bias

numbers = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60)


@examples(max_examples=50)
@given(numbers, numbers)
def test_ks_is_that_of_scipy(first: list[float], second: list[float]) -> None:
    assert ks(first, second) == pytest.approx(stats.ks_2samp(first, second, method="asymp").statistic, abs=1e-12)


def test_chance_is_no_drift_after_the_subtraction_of_its_bias() -> None:
    generator = np.random.default_rng(7)
    pairs = [(generator.normal(size=200), generator.normal(size=200)) for _ in range(400)]
    plain = np.mean([psi(*pair) for pair in pairs])
    expected = (BINS - 1) * (1 / 200 + 1 / 200)
    assert plain == pytest.approx(expected, rel=0.2)
    signed = [psi(*pair) - expected for pair in pairs]
    assert abs(np.mean(signed)) < expected / 5
    assert psi_without_bias(*pairs[0]) == max(0.0, psi(*pairs[0]) - expected)


def test_drift_of_decisions() -> None:
    assert psi_of_names({"yes": 500, "no": 500}, {"yes": 500, "no": 500}) == 0.0
    assert psi_of_names({"yes": 500, "no": 500}, {"yes": 900, "no": 100}) > 0.25
    assert psi_of_names({"yes": 1_000}, {None: 1_000}) > 1.0
