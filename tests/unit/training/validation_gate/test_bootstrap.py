"""Intervals: the AUC of every resample is that of its rows drawn again, and an interval has its stated coverage."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from sklearn import metrics as reference
from sklearn.metrics import roc_auc_score

from training.validation_gate.bootstrap import Blocks, Figure

HOUR = 3_600_000


@examples(max_examples=50)
@given(
    st.lists(st.tuples(st.integers(0, 6), st.booleans(), st.integers(0, 9)), min_size=2, max_size=60),
    st.integers(0, 2**31 - 1),
)
def test_the_auc_of_a_resample_is_that_of_its_rows_drawn_again(events: list[tuple[int, bool, int]], seed: int) -> None:
    times, true, scores = (np.array(column) for column in zip(*events, strict=True))
    blocks = Blocks.drawn(times.astype(np.int64) * HOUR, HOUR, 6, seed)
    assert blocks.count == len(set(times.tolist()))
    figure = blocks.auc(scores / 10, true)
    row_weights = [np.ones(len(times)), *(draw[blocks.of] for draw in blocks.draws)]
    for weights, value in zip(row_weights, (figure.value, *figure.resampled), strict=True):
        drawn = np.repeat(np.arange(len(times)), weights.astype(int))
        if len(set(true[drawn].tolist())) < 2:
            assert np.isnan(value)
        else:
            assert value == pytest.approx(roc_auc_score(true[drawn], scores[drawn]), abs=1e-12)


def test_ratios_are_of_the_sums_of_the_rows_drawn_again() -> None:
    random = np.random.default_rng(1)
    times, above, below = random.integers(0, 9, 500), random.random(500), random.random(500)
    blocks = Blocks.drawn(times, 1, 50, 2)
    share, mean = blocks.ratio(above, below), blocks.ratio(above)
    assert share.value == pytest.approx(above.sum() / below.sum())
    assert mean.value == pytest.approx(above.mean())
    for draw, ratio, other in zip(blocks.draws, share.resampled, mean.resampled, strict=True):
        weights = draw[blocks.of]
        assert ratio == pytest.approx((weights * above).sum() / (weights * below).sum())
        assert other == pytest.approx(np.average(above, weights=weights))


def test_blocks_are_time_ranges_and_each_resample_has_as_many() -> None:
    blocks = Blocks.drawn(np.array([0, HOUR - 1, HOUR, 5 * HOUR]), HOUR, 30, 1)
    assert blocks.of.tolist() == [0, 0, 1, 2]
    assert set(blocks.draws.sum(axis=1)) == {3.0}
    assert np.array_equal(blocks.draws, Blocks.drawn(np.array([0, HOUR, 9 * HOUR]), HOUR, 30, 1).draws)
    assert not np.array_equal(blocks.draws, Blocks.drawn(np.array([0, HOUR, 9 * HOUR]), HOUR, 30, 2).draws)
    assert blocks.select(np.array([True, False, False, True])).of.tolist() == [0, 2]


@pytest.mark.parametrize("count", [6, 14, 60])
def test_an_interval_covers_the_true_value_as_often_as_stated(count: int) -> None:
    """By simulation: days that differ from each other."""
    random, covered, tried = np.random.default_rng(count), 0, 400
    times = np.repeat(np.arange(count), 3)
    blocks = Blocks.drawn(times, 1, 1_000, 3)
    for _ in range(tried):
        days = np.repeat(random.normal(size=count), 3)
        figure = blocks.interval(blocks.ratio(days + random.normal(size=len(days))), 0.95)
        assert figure is not None
        covered += figure.low <= 0 <= figure.high
    assert 0.925 <= covered / tried <= 0.975


def test_one_block_and_a_figure_that_is_rarely_defined_have_no_interval() -> None:
    assert Blocks.drawn(np.zeros(9, np.int64), HOUR, 100, 1).interval(Figure(0.5, np.full(100, 0.5)), 0.95) is None
    blocks = Blocks.drawn(np.arange(5) * HOUR, HOUR, 100, 1)
    assert blocks.interval(Figure(float("nan"), np.zeros(100)), 0.95) is None
    seldom = np.where(np.arange(100) < 2, np.nan, 0.5)
    assert blocks.interval(Figure(0.5, seldom), 0.95) is None
    assert blocks.interval(Figure(0.5, np.where(np.arange(100) < 1, np.nan, 0.5)), 0.95) == (0.5, 0.5, 0.5)


def test_no_rows_have_no_blocks() -> None:
    blocks = Blocks.drawn(np.zeros(0, np.int64), HOUR, 100, 1)
    assert (blocks.count, np.isnan(blocks.auc(np.zeros(0), np.zeros(0, np.bool_)).value)) == (0, True)


def test_differences_are_paired() -> None:
    blocks = Blocks.drawn(np.arange(20), 1, 200, 1)
    column = np.random.default_rng(1).random(20)
    figure = blocks.interval(blocks.ratio(column + 0.25).minus(blocks.ratio(column)), 0.95)
    assert figure == pytest.approx((0.25, 0.25, 0.25))


def test_average_precision_and_macro_f1_of_resamples_are_those_of_repeated_rows() -> None:
    drawn = np.random.default_rng(4)
    count = 600
    times = drawn.integers(0, 12, count)
    scores = drawn.integers(0, 30, count) / 30
    positive = drawn.random(count) < 0.2 + 0.6 * scores
    labels = drawn.integers(0, 3, count)
    decisions = np.where(drawn.random(count) < 0.7, labels, drawn.integers(0, 4, count))
    blocks = Blocks.drawn(times, 1, 20, 5)
    precision = blocks.average_precision(scores, positive)
    f1 = blocks.macro_f1(labels, decisions, 3)
    assert precision.value == pytest.approx(reference.average_precision_score(positive, scores))
    assert f1.value == pytest.approx(reference.f1_score(labels, decisions, labels=[0, 1, 2], average="macro"))
    for row, draw in enumerate(blocks.draws):
        repeated = np.repeat(np.arange(count), draw[blocks.of].astype(int))
        expected = reference.average_precision_score(positive[repeated], scores[repeated])
        assert precision.resampled[row] == pytest.approx(expected)
        expected = reference.f1_score(labels[repeated], decisions[repeated], labels=[0, 1, 2], average="macro")
        assert f1.resampled[row] == pytest.approx(expected)
