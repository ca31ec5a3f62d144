"""Metrics of one model, against scikit-learn, for two classes, more classes and numbers."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from sklearn import metrics as reference

from scorer.console.training.runs import ERRORS
from training.snapshot.target import Target
from training.validation_gate import gate_defaults
from training.validation_gate.metrics import DEFAULT_METRICS, GOALS, constant, decide, evaluate, goal, matrix

TWO = Target("binary", ("on time", "late"))
THREE = Target("classes", ("on time", "late", "very late"))
NUMBER = Target("regression")


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


def test_scores_that_are_no_probabilities_have_no_brier_score_and_no_log_loss() -> None:
    measured = evaluate(TWO, np.array([-1.0, 3.0]), np.array([0, 1], np.int8))
    assert ({"brier", "log_loss"} & set(measured), measured["auc"], measured["accuracy"]) == (set(), 1.0, 1.0)
    logits = evaluate(THREE, np.array([[1.0, 2.0, 3.0]]), np.array([2], np.int16))
    assert ({"brier", "log_loss"} & set(logits), logits["accuracy"]) == (set(), 1.0)


def test_a_decision_that_is_no_class_is_wrong_and_has_a_column_of_its_own() -> None:
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
