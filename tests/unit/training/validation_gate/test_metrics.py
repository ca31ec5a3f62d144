"""Figures of one model, against scikit-learn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from sklearn import metrics as reference

from training.validation_gate.metrics import ModelAnswers, figures, matrix

CLASSES = ("on time", "late")


@examples(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), min_size=1, max_size=80), st.integers(1, 19))
def test_figures_are_those_of_scikit_learn(events: list[tuple[int, bool]], threshold: int) -> None:
    scores, true = (np.array(column) for column in zip(*events, strict=True))
    scores = scores / 20
    scored = ModelAnswers(scores, scores >= threshold / 20)
    measured = figures(scored, true, CLASSES)
    expected = {"accuracy": reference.accuracy_score(true, scored.positive), "brier": np.square(scores - true).mean()}
    if len(set(true.tolist())) == 2:
        expected["auc"] = reference.roc_auc_score(true, scores)
        expected["brier"] = reference.brier_score_loss(true, scores)
    for at, name in enumerate(CLASSES):
        if (scored.positive == at).any():
            expected[f"precision.{name}"] = reference.precision_score(true, scored.positive, pos_label=at, zero_division=0.0)
        if (true == at).any():
            expected[f"recall.{name}"] = reference.recall_score(true, scored.positive, pos_label=at, zero_division=0.0)
    assert measured == pytest.approx(expected)
    counts = reference.confusion_matrix(true, scored.positive, labels=[False, True])
    assert matrix(scored, true).tolist() == counts.tolist()


def test_scores_that_are_no_probabilities_have_no_brier_score() -> None:
    scores = np.array([-1.0, 3.0])
    measured = figures(ModelAnswers(scores, scores > 0), np.array([False, True]), CLASSES)
    assert ("brier" in measured, measured["auc"], measured["accuracy"]) == (False, 1.0, 1.0)
