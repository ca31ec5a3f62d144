"""Metrics of one model, against scikit-learn, for two classes, more classes and numbers."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from sklearn import metrics as reference

from scorer.console.training.runs import ERRORS
from training.snapshot.target import PredictionInterval, Target
from training.validation_gate import gate_defaults
from training.validation_gate.metrics import DEFAULT_METRICS, GOALS, ModelAnswers, constant, decide, evaluate, goal, matrix
from training.validation_gate.version_figures import interval_coverage

TWO = Target("binary", ("on time", "late"))
THREE = Target("classes", ("on time", "late", "very late"))
NUMBER = Target("regression")
INTERVAL = Target("regression", interval=PredictionInterval("low", "high", 0.8))


@examples(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), min_size=1, max_size=80), st.integers(1, 19))
def test_metrics_of_two_classes_are_those_of_scikit_learn(events: list[tuple[int, bool]], threshold: int) -> None:
    scores, true = (np.array(column) for column in zip(*events, strict=True))
    scores = scores / 20
    decisions = (scores >= threshold / 20).astype(np.intp)
    outcomes = true.astype(np.int8)
    measured = evaluate(TWO, scores, outcomes, decisions)
    expected = {
        "accuracy": reference.accuracy_score(true, decisions),
        "brier": np.square(scores - true).mean(),
        "log_loss": -np.log(np.maximum(np.where(true, scores, 1 - scores), 1e-7)).mean(),
    }
    if true.any():
        expected["pr_auc"] = reference.average_precision_score(true, scores)
    if len(set(true.tolist())) == 2:
        expected["auc"] = reference.roc_auc_score(true, scores)
        expected["brier"] = reference.brier_score_loss(true, scores)
    for at, name in enumerate(TWO.classes):
        if (decisions == at).any():
            expected[f"precision.{name}"] = reference.precision_score(true, decisions, pos_label=at, zero_division=0.0)
        if (true == at).any():
            expected[f"recall.{name}"] = reference.recall_score(true, decisions, pos_label=at, zero_division=0.0)
    assert measured == pytest.approx(expected)
    counts = reference.confusion_matrix(true, decisions, labels=[0, 1])
    assert matrix(TWO, decisions, outcomes).tolist() == counts.tolist()


@examples(max_examples=60)
@given(st.lists(st.tuples(*[st.integers(1, 9)] * 3, st.integers(0, 2)), min_size=1, max_size=60))
def test_metrics_of_three_classes_are_those_of_scikit_learn(events: list[tuple[int, int, int, int]]) -> None:
    table = np.array(events)
    scores = table[:, :3] / table[:, :3].sum(axis=1, keepdims=True)
    outcomes = table[:, 3].astype(np.int16)
    decisions = scores.argmax(axis=1)
    present = sorted(set(outcomes.tolist()))
    several: dict[str, Any] = {"labels": present, "zero_division": 0.0}
    expected = {
        "accuracy": reference.accuracy_score(outcomes, decisions),
        "log_loss": reference.log_loss(outcomes, scores, labels=[0, 1, 2]),
        "brier": np.square(scores - np.eye(3)[outcomes]).sum(axis=1).mean(),
        "macro_precision": reference.precision_score(outcomes, decisions, average="macro", **several),
        "macro_recall": reference.recall_score(outcomes, decisions, average="macro", **several),
        "macro_f1": reference.f1_score(outcomes, decisions, average="macro", **several),
        "weighted_precision": reference.precision_score(outcomes, decisions, average="weighted", **several),
        "weighted_f1": reference.f1_score(outcomes, decisions, average="weighted", **several),
    }
    counts = reference.confusion_matrix(outcomes, decisions, labels=[0, 1, 2])
    for at, name in enumerate(THREE.classes):
        if counts[:, at].any():
            expected[f"precision.{name}"] = counts[at, at] / counts[:, at].sum()
        if counts[at].any():
            expected[f"recall.{name}"] = counts[at, at] / counts[at].sum()
    assert evaluate(THREE, scores, outcomes) == pytest.approx(expected)
    assert matrix(THREE, decisions, outcomes).tolist() == counts.tolist()


@examples(max_examples=40)
@given(st.lists(st.tuples(st.floats(-1e3, 1e3), st.integers(-50, 50)), min_size=2, max_size=50))
def test_metrics_of_numbers_are_those_of_scikit_learn(events: list[tuple[float, int]]) -> None:
    scores, outcomes = (np.array(column, np.float64) for column in zip(*events, strict=True))
    expected = {
        "rmse": reference.root_mean_squared_error(outcomes, scores),
        "mae": reference.mean_absolute_error(outcomes, scores),
    }
    if outcomes.var() > 0:
        expected["r2"] = reference.r2_score(outcomes, scores)
    assert evaluate(NUMBER, scores, outcomes) == pytest.approx(expected)


@examples(max_examples=40)
@given(
    st.lists(st.tuples(st.floats(-1e3, 1e3), st.integers(-50, 50)), min_size=1, max_size=50),
    st.floats(0.01, 0.99),
)
def test_quantile_loss_is_that_of_scikit_learn(events: list[tuple[float, int]], quantile: float) -> None:
    scores, outcomes = (np.array(column, np.float64) for column in zip(*events, strict=True))
    measured = evaluate(Target("regression", quantile=quantile), scores, outcomes)
    assert measured["quantile_loss"] == pytest.approx(reference.mean_pinball_loss(outcomes, scores, alpha=quantile))
    assert "quantile_loss" not in evaluate(NUMBER, scores, outcomes)


def test_interval_metrics_are_those_of_a_computation_by_hand() -> None:
    outcomes = np.array([5.0, 10.0, 12.0, -3.0, 4.0])
    intervals = np.array([[0.0, 10.0], [0.0, 10.0], [0.0, 10.0], [-1.0, 1.0], [5.0, 3.0]])
    # The level is 0.8, so a distance of 1 outside costs 2 / 0.2 = 10. Widths and costs by row: 10 + 0, 10 + 0 (the outcome is
    # the bound), 10 + 2 * 10, 2 + 2 * 10, and bounds in the wrong order -2 + 1 * 10 + 1 * 10.
    measured = evaluate(INTERVAL, np.zeros(5), outcomes, intervals=intervals)
    assert measured["interval_score"] == pytest.approx((10 + 10 + 30 + 22 + 18) / 5)
    assert measured["interval_coverage"] == pytest.approx(2 / 5)
    assert measured["interval_width"] == pytest.approx((10 + 10 + 10 + 2 - 2) / 5)
    for target, without in ((NUMBER, intervals), (INTERVAL, None)):
        assert not any(name.startswith("interval") for name in evaluate(target, np.zeros(5), outcomes, intervals=without))


@examples(max_examples=40)
@given(st.lists(st.tuples(*[st.floats(-1e3, 1e3)] * 3), min_size=1, max_size=30), st.floats(0.1, 0.95))
def test_interval_score_is_that_of_the_quantile_losses_of_both_bounds(
    events: list[tuple[float, float, float]], level: float
) -> None:
    table = np.array(events)
    target = Target("regression", interval=PredictionInterval("low", "high", level))
    measured = evaluate(target, table[:, 0], table[:, 2], intervals=table[:, :2])["interval_score"]
    tail = (1 - level) / 2
    losses = [
        reference.mean_pinball_loss(table[:, 2], table[:, at], alpha=quantile) for at, quantile in enumerate((tail, 1 - tail))
    ]
    assert measured == pytest.approx(sum(losses) / tail)


def test_coverage_has_the_wilson_interval_of_its_share() -> None:
    intervals = np.tile([0.0, 1.0], (10, 1))
    outcomes = np.array([0.5] * 8 + [2.0] * 2)
    coverage = interval_coverage(INTERVAL, ModelAnswers(np.zeros(10), np.zeros(10, np.intp), intervals), outcomes)
    # The Wilson score interval of 8 of 10 at 95 %, with z = 1.95996.
    z = 1.959964
    middle = (0.8 + z * z / 20) / (1 + z * z / 10)
    reach = z / (1 + z * z / 10) * np.sqrt(0.8 * 0.2 / 10 + z * z / 400)
    assert coverage is not None
    assert (coverage.level, coverage.value) == (0.8, 0.8)
    assert [coverage.low, coverage.high] == pytest.approx([middle - reach, middle + reach])


def test_scores_that_are_no_probabilities_have_no_brier_score_and_no_log_loss() -> None:
    measured = evaluate(TWO, np.array([-1.0, 3.0]), np.array([0, 1], np.int8))
    assert ({"brier", "log_loss"} & set(measured), measured["auc"], measured["accuracy"]) == (set(), 1.0, 1.0)
    logits = evaluate(THREE, np.array([[1.0, 2.0, 3.0]]), np.array([2], np.int16))
    assert ({"brier", "log_loss"} & set(logits), logits["accuracy"]) == (set(), 1.0)


def test_a_decision_that_is_no_class_is_wrong_and_has_a_separate_column() -> None:
    outcomes = np.array([0, 1, 2], np.int16)
    decisions = np.array([0, 3, 2])
    assert matrix(THREE, decisions, outcomes).tolist() == [[1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0], [0, 0, 0, 0]]
    assert evaluate(THREE, np.eye(3), outcomes, decisions)["accuracy"] == pytest.approx(2 / 3)


def test_decisions_by_scores_alone_are_the_probable_class() -> None:
    assert decide(TWO, np.array([0.4, 0.5])).tolist() == [0, 1]
    assert decide(THREE, np.array([[0.2, 0.5, 0.3], [np.nan, np.nan, np.nan]])).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("metric", "expected"), [("auc", "max"), ("log_loss", "min"), ("recall.very late", "max"), ("quantile_loss.0.9", "min")]
)
def test_the_goal_of_a_metric_follows_from_its_name(metric: str, expected: str) -> None:
    assert goal(metric) == expected


def test_no_constant_has_a_smaller_error_than_the_constant_prediction() -> None:
    drawn = np.random.default_rng(1)
    numbers = drawn.exponential(size=200)
    for metric in ("rmse", "mae"):
        best = evaluate(NUMBER, constant(NUMBER, numbers, metric).scores, numbers)[metric]
        others = [
            evaluate(NUMBER, np.full(200, value), numbers)[metric] for value in np.quantile(numbers, [0.1, 0.4, 0.6, 0.9])
        ]
        assert best < min(others)
    upper = Target("regression", quantile=0.9)
    best = evaluate(upper, constant(upper, numbers, "quantile_loss").scores, numbers)["quantile_loss"]
    for share in (0.5, 0.8, 0.95):
        assert best < evaluate(upper, np.full(200, np.quantile(numbers, share)), numbers)["quantile_loss"]
    intervals = constant(INTERVAL, numbers, "interval_score").intervals
    best = evaluate(INTERVAL, numbers, numbers, intervals=intervals)["interval_score"]
    for shares in ([0.05, 0.9], [0.1, 0.95], [0.2, 0.8]):
        other = np.tile(np.quantile(numbers, shares), (200, 1))
        assert best < evaluate(INTERVAL, numbers, numbers, intervals=other)["interval_score"]
    outcomes = drawn.choice(3, 200, p=[0.6, 0.3, 0.1]).astype(np.int16)
    answers = constant(THREE, outcomes, "log_loss")
    assert set(answers.decisions.tolist()) == {0}
    best = evaluate(THREE, answers.scores, outcomes)["log_loss"]
    assert best < evaluate(THREE, np.tile([0.5, 0.3, 0.2], (200, 1)), outcomes)["log_loss"]


def test_every_default_metric_has_a_goal() -> None:
    assert set(DEFAULT_METRICS.values()) <= set(GOALS)


def test_console_has_the_goal_of_each_metric_of_the_gate() -> None:
    names = {name for of_kind in gate_defaults.METRICS.values() for name in of_kind}
    assert {name for name in names if goal(name) == "min"} == ERRORS
