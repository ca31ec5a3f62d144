"""Score distributions: a common range for all versions, and the population stability index."""

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from scorer.console.records import largest
from scorer.console.score_distribution_fold import BINS, MIN_SCORES, VERSIONS, ScoreDistributionFold, quantiles
from scorer.evaluation.drift import psi
from tests.unit.scorer.console import console_records

numbers = st.lists(st.floats(-1e9, 1e9), min_size=20, max_size=60)


@examples(max_examples=30)
@given(numbers, numbers)
def test_the_index_is_never_negative_and_zero_for_the_same(first: list[float], second: list[float]) -> None:
    assert psi(first, second) >= -1e-12
    assert psi(first, first) == pytest.approx(0.0)


def test_index_distinguishes_a_shift_from_noise() -> None:
    reference = [n / 1_000 for n in range(1_000)]
    assert psi(reference, [x + 0.01 for x in reference]) < 0.1
    assert psi(reference, [min(1.0, x + 0.4) for x in reference]) > 0.25
    assert psi([0.5] * 300, [0.5] * 300) == pytest.approx(0.0)


@examples(max_examples=30)
@given(numbers)
def test_shares_sum_to_one_over_edges_that_hold_every_score(numbers: list[float]) -> None:
    fold = ScoreDistributionFold()
    for number in numbers:
        fold.add(console_records.score(number))
    histogram = fold.histogram()
    assert len(histogram.edges) == BINS + 1
    assert sum(histogram.shares["1.0.0"]) == pytest.approx(1.0, abs=1e-3)


def test_probabilities_are_shown_from_zero_to_one_and_versions_share_the_range() -> None:
    fold = ScoreDistributionFold()
    assert fold.histogram().edges == []
    fold.add(console_records.score(0.3))
    fold.add(console_records.score(0.6, "2.0.0"))
    fold.add(console_records.score(None, "2.0.0", status="expired", decision=None))
    assert (fold.histogram().edges[0], fold.histogram().edges[-1]) == (0.0, 1.0)
    assert list(fold.histogram().shares) == ["1.0.0", "2.0.0"]
    assert (fold.windows["2.0.0"].expired, fold.windows["2.0.0"].seen) == (1, 2)
    assert fold.stability("1.0.0", "2.0.0") is None
    for _ in range(MIN_SCORES):
        fold.add(console_records.score(0.3))
        fold.add(console_records.score(0.31, "2.0.0"))
    assert fold.stability("1.0.0", "2.0.0") is not None
    assert fold.stability("1.0.0", "9.9.9") is None


def test_newest_versions_are_kept() -> None:
    fold = ScoreDistributionFold()
    for number in range(VERSIONS + 2):
        fold.add(console_records.score(0.5, f"{number}.0.0", scored_ms=1_000 + number))
    assert list(fold.windows) == [f"{number}.0.0" for number in range(2, VERSIONS + 2)]


def test_largest_number_of_a_score_counts() -> None:
    assert largest([0.1, 0.7, 0.2]) == 0.7
    assert largest({"a": 0.1, "b": [0.3, 0.9]}) == 0.9
    assert largest([{"label": "cat", "score": 0.7}, {"label": "dog", "score": 0.2}]) == 0.7
    assert largest({"boxes": [[0.1, 0.8], [0.3, 0.4]], "word": "cat"}) == 0.8
    assert largest(3) == 3.0
    assert largest([]) is None
    assert largest("x") is None
    assert quantiles([]) is None
    assert quantiles([1.0]) == (1.0, 1.0, 1.0)
