"""Precision, recall and cost by threshold, against scikit-learn and against every possible threshold."""

import xml.etree.ElementTree as ElementTree
from typing import Any

import numpy as np
import pytest
from sklearn import metrics as reference

from training.validation_gate.threshold_plot import plot
from training.validation_gate.thresholds import by_threshold, cost_matrix, decision_costs

COSTS = np.array([[0.0, 1.0], [5.0, 0.0]])


def drawn(count: int = 400) -> tuple[Any, Any]:
    random = np.random.default_rng(2)
    scores = random.integers(0, 41, count) / 40
    return scores, random.random(count) < 0.7 * scores


def test_each_threshold_has_the_figures_of_scikit_learn() -> None:
    scores, positive = drawn()
    figures = by_threshold("late", scores, positive, COSTS)
    assert (figures.rows, figures.positives) == (400, int(positive.sum()))
    assert figures.auc == pytest.approx(reference.roc_auc_score(positive, scores))
    assert figures.pr_auc == pytest.approx(reference.average_precision_score(positive, scores))
    assert [row.threshold for row in figures.thresholds] == pytest.approx(np.arange(1, 20) / 20)
    for row in figures.thresholds:
        decided = scores >= row.threshold
        assert row.decided == decided.mean()
        assert row.precision == pytest.approx(reference.precision_score(positive, decided))
        assert row.recall == pytest.approx(reference.recall_score(positive, decided))
        assert row.cost == pytest.approx(COSTS[positive.astype(int), decided.astype(int)].mean())


def test_no_threshold_is_cheaper_than_the_cheapest() -> None:
    scores, positive = drawn()
    cheapest = by_threshold("late", scores, positive, COSTS).cheapest
    costs = {at: COSTS[positive.astype(int), (scores >= at).astype(int)].mean() for at in np.unique(scores).tolist()}
    assert cheapest is not None
    assert cheapest.cost == pytest.approx(min(costs.values()))
    assert costs[cheapest.threshold] == pytest.approx(cheapest.cost)


def test_scores_that_are_no_probabilities_have_thresholds_among_their_quantiles() -> None:
    scores, positive = drawn()
    figures = by_threshold("late", 100 * scores - 20, positive)
    assert figures.thresholds[0].threshold == pytest.approx(np.quantile(100 * scores - 20, 0.05))
    assert (figures.cheapest, figures.thresholds[0].cost) == (None, None)


def test_a_threshold_above_all_scores_has_no_precision() -> None:
    figures = by_threshold("late", np.array([0.1, 0.2]), np.array([False, True]))
    assert (figures.thresholds[-1].precision, figures.thresholds[-1].recall) == (None, 0.0)


def test_the_lowest_expected_cost_is_not_dearer_on_calibrated_scores() -> None:
    random = np.random.default_rng(1)
    scores = random.dirichlet([1, 1, 1], 5_000)
    outcomes = (random.random((5_000, 1)) > scores.cumsum(axis=1)).sum(axis=1)
    costs = np.array([[0.0, 1, 1], [1, 0, 1], [20, 10, 0]])
    figures = decision_costs(scores, scores.argmax(axis=1), outcomes, costs)
    assert figures.decided == pytest.approx(costs[outcomes, scores.argmax(axis=1)].mean())
    assert figures.cheapest is not None
    assert figures.cheapest < 0.8 * figures.decided
    assert decision_costs(scores * 2, scores.argmax(axis=1), outcomes, costs).cheapest is None
    unsure = decision_costs(scores, np.full(5_000, 3), outcomes, costs)
    assert unsure.decided == pytest.approx(costs.max(axis=1)[outcomes].mean())


def test_a_cost_matrix_has_rows_or_names() -> None:
    assert cost_matrix([[0, 1], [5, 0]], ("a", "b")).tolist() == [[0, 1], [5, 0]]
    assert cost_matrix({"b": {"a": 5}}, ("a", "b")).tolist() == [[0, 0], [5, 0]]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([[0, 1]], "it must have 2 rows of 2 costs: a row for each of a, b"),
        ({"c": {"a": 1}}, "there is no class 'c'; the classes: a, b"),
        ({"a": {"c": 1}}, "there is no class 'c'; the classes: a, b"),
        ({"a": 3}, "each label must have a mapping"),
        ([[0, 1], [True, 0]], "True is not a cost"),
        ([[0, 1], [float("nan"), 0]], "nan is not a cost"),
        ("0", "it must have 2 rows"),
    ],
)
def test_other_documents_are_no_cost_matrix(document: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cost_matrix(document, ("a", "b"))


def test_the_plot_has_a_curve_for_each_figure() -> None:
    scores, positive = drawn()
    for costs, curves in ((COSTS, 3), (None, 2)):
        root = ElementTree.fromstring(plot(by_threshold("late & <early>", scores, positive, costs)))
        assert len(root.findall("{http://www.w3.org/2000/svg}polyline")) == curves
        assert any("late & <early>" in (text.text or "") for text in root.iter("{http://www.w3.org/2000/svg}text"))
