"""Quality figures compared with those of scikit-learn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics
from sklearn.calibration import calibration_curve

from scorer.evaluation import quality_metrics as quality_metrics

PAIRS = st.lists(
    st.tuples(st.sampled_from([0.0, 0.1, 0.1 + 1e-12, 0.3, 0.5, 0.9, 1.0]) | st.floats(0, 1), st.booleans()), min_size=1
)


@given(PAIRS)
def test_figures_are_those_of_scikit_learn(pairs: list[tuple[float, bool]]) -> None:
    scores, true = np.array([score for score, _ in pairs]), np.array([outcome for _, outcome in pairs])
    if true.any() and not true.all():
        assert quality_metrics.auc(scores, true) == pytest.approx(metrics.roc_auc_score(true, scores), abs=1e-12)
    else:
        assert quality_metrics.auc(scores, true) is None
    assert quality_metrics.brier(scores, true) == pytest.approx(
        metrics.brier_score_loss(true, scores, pos_label=True), abs=1e-12
    )
    bins = quality_metrics.calibration(scores, true)
    shares, means = calibration_curve(true, scores, n_bins=10)
    assert [bin_.true for bin_ in bins] == pytest.approx(shares, abs=1e-12)
    assert [bin_.score for bin_ in bins] == pytest.approx(means, abs=1e-12)
    assert sum(bin_.count for bin_ in bins) == len(pairs)
    expected = sum(bin_.count * abs(bin_.true - bin_.score) for bin_ in bins) / len(pairs)
    assert quality_metrics.calibration_error(bins) == pytest.approx(expected)


@given(st.integers(2, 6), st.integers(0, 2**32 - 1))
def test_brier_of_several_classes_is_that_of_scikit_learn(classes: int, seed: int) -> None:
    source = np.random.default_rng(seed)
    scores, outcomes = source.dirichlet(np.ones(classes), 50), source.integers(0, classes, 50)
    expected = metrics.brier_score_loss(outcomes, scores, labels=list(range(classes)), scale_by_half=False)
    assert quality_metrics.brier_of_classes(scores, outcomes) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("scores", [[], [-0.1, 0.5], [0.5, 1.5]])
def test_scores_that_are_no_probabilities_have_neither_brier_nor_calibration(scores: list[float]) -> None:
    column, true = np.array(scores), np.ones(len(scores), np.bool_)
    assert quality_metrics.brier(column, true) is None
    assert quality_metrics.calibration(column, true) == []
    assert quality_metrics.calibration_error([]) is None
