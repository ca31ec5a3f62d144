"""Answers joined with labels: the figures for two classes, for several classes, and for numeric outcomes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from sklearn import metrics

from scorer.evaluation.assessment import Assessment, assess
from scorer.evaluation.class_names import known
from scorer.evaluation.label_columns import AnswerColumns, Labels
from scorer.evaluation.label_record import Label, Unusable
from scorer.evaluation.latest_by_id import hash_ids

PLACE = ("scores", 0)
NAMES = ("on time", "late")


def assessed(
    scores: Sequence[Any],
    decisions: Sequence[str | None],
    labels: Sequence[Label | Unusable],
    classes: Sequence[str] = (),
    versions: Sequence[str] | None = None,
    *,
    numbers: bool = False,
) -> Assessment:
    """Return the assessment of these answers. Event k has the id `k` and was answered at k ms."""
    answers, count = AnswerColumns(), len(scores)
    ids = [str(number) for number in range(count)]
    answers.add(PLACE, range(count), range(count), hash_ids(ids), scores, decisions, versions or ["1.0.0@sha256:a"] * count)
    newest_rows = answers.rows.newest()
    joined_labels = Labels("labels", known(classes, newest_rows.columns, answers.decisions, numeric=numbers), numbers=numbers)
    label_ids = hash_ids(label.id if isinstance(label, Label) else "" for label in labels)
    joined_labels.add(newest_rows, 0, range(len(labels)), range(len(labels)), label_ids, labels)
    return assess(answers, newest_rows, joined_labels)


def decided(scores: Sequence[float]) -> list[str]:
    return [NAMES[score >= 0.5] for score in scores]


def test_two_classes_by_name_and_by_number_are_the_same() -> None:
    source = np.random.default_rng(1)
    scores, true = source.random(500).round(2).tolist(), (source.random(500) < 0.4).tolist()
    name_labels = [Label(str(k), NAMES[outcome]) for k, outcome in enumerate(true)]
    number_labels = [Label(str(k), float(outcome)) for k, outcome in enumerate(true)]
    versions = ["1.0.0@a" if k % 2 else "2.0.0@b" for k in range(500)]
    assessment = assessed(scores, decided(scores), name_labels, versions=versions)
    assert assessment.versions == assessed(scores, decided(scores), number_labels, versions=versions).versions
    assert (assessment.classes, assessment.answered, assessment.labelled) == (NAMES, 500, 500)
    for quality, start in zip(
        assessment.versions, (1, 0) if assessment.versions[0].version == "1.0.0@a" else (0, 1), strict=True
    ):
        version_scores, outcomes = np.array(scores[start::2]), np.array(true[start::2])
        assert quality.labels == 250
        assert quality.auc == pytest.approx(metrics.roc_auc_score(outcomes, version_scores), abs=1e-12)
        assert quality.pr_auc == pytest.approx(metrics.average_precision_score(outcomes, version_scores), abs=1e-12)
        assert quality.brier == pytest.approx(metrics.brier_score_loss(outcomes, version_scores), abs=1e-12)
        assert quality.accuracy == pytest.approx(metrics.accuracy_score(outcomes, version_scores >= 0.5), abs=1e-12)
        assert np.array(quality.matrix).tolist() == metrics.confusion_matrix(outcomes, version_scores >= 0.5).tolist()


def test_several_classes_in_the_order_of_the_row() -> None:
    source = np.random.default_rng(2)
    names, rows = ("ant", "bee", "cow"), source.dirichlet(np.ones(3), 300)
    outcomes = source.integers(0, 3, 300)
    decisions = [names[k] if row[k] > 0.4 else "unsure" for row, k in zip(rows, rows.argmax(axis=1), strict=True)]
    assessment = assessed(rows.tolist(), decisions, [Label(str(k), names[outcome]) for k, outcome in enumerate(outcomes)])
    assert assessment.classes == names
    (quality,) = assessment.versions
    assert quality.columns == (*names, "unsure")
    assert quality.brier == pytest.approx(metrics.brier_score_loss(outcomes, rows, scale_by_half=False), abs=1e-12)
    assert quality.accuracy == pytest.approx(
        np.mean([names[outcome] == d for outcome, d in zip(outcomes, decisions, strict=True)])
    )
    assert quality.auc is None
    by_number = assessed(rows.tolist(), decisions, [Label(str(k), float(outcome)) for k, outcome in enumerate(outcomes)])
    assert by_number.versions == assessment.versions


def test_a_row_of_two_is_two_classes() -> None:
    rows = [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]
    assessment = assessed(rows, ["on time", "late", "on time"], [Label("0", "on time"), Label("1", "late"), Label("2", "late")])
    assert assessment.versions[0].auc == 1.0
    assert assessment.versions[0].brier == pytest.approx((0.01 + 0.04 + 0.36) / 3)


def test_outcomes_that_are_configured_as_numbers_are_no_classes() -> None:
    labels = [Label("0", 0.0), Label("1", 1.0)]
    assert assessed([0.25, 0.75], [None] * 2, labels).classes == ("0", "1")
    assessment = assessed([0.25, 0.75], ["low", "high"], labels, numbers=True)
    (quality,) = assessment.versions
    assert (assessment.classes, quality.mean_absolute_error, quality.accuracy) == (None, 0.25, None)


def test_numbers_have_errors() -> None:
    assessment = assessed([1.0, 2.0, 30.0], [None] * 3, [Label("0", 1.5), Label("1", 4.0), Label("2", "many")])
    (quality,) = assessment.versions
    assert assessment.classes is None
    assert (quality.labels, quality.mean_absolute_error) == (2, 1.25)
    assert quality.root_mean_square_error == pytest.approx(np.sqrt((0.25 + 4.0) / 2))
    assert assessment.refused.counts == {Unusable.NO_NUMBER: 1}


def test_probabilities_without_decisions_have_no_matrix() -> None:
    assessment = assessed([0.1, 0.9], [None] * 2, [Label("0", 0.0), Label("1", 1.0)])
    assert (assessment.versions[0].auc, assessment.versions[0].matrix) == (1.0, ())


def test_every_label_is_counted_somewhere() -> None:
    scores = [0.1, 0.9, 0.2, 0.8, 0.7]
    labels: list[Label | Unusable] = [
        Label("0", "late"),
        Label("0", "on time"),
        Label("1", "late"),
        Label("1", "purple"),
        Label("3", "late"),
        Label("3", None),
        Label("9", "late"),
        Unusable.NOT_JSON,
        Unusable.NOT_JSON,
    ]
    assessment = assessed(scores, decided(scores), labels)
    assert (assessment.answered, assessment.labelled, assessment.replaced, assessment.unmatched, assessment.withdrawn) == (
        5,
        2,
        2,
        1,
        1,
    )
    assert assessment.refused.counts == {Unusable.NOT_JSON: 2, Unusable.UNKNOWN_CLASS: 1}
    assert {reason: str(place) for reason, place in assessment.refused.examples.items()} == {
        Unusable.NOT_JSON: "labels[0]@7",
        Unusable.UNKNOWN_CLASS: "labels[0]@3",
    }
    assert assessment.versions[0].matrix == ((1, 0), (0, 1))
    assert (
        assessment.labelled
        + assessment.replaced
        + assessment.unmatched
        + assessment.withdrawn
        + assessment.refused.counts.total()
        == len(labels)
    )


def test_a_version_with_a_single_decision_needs_configured_classes() -> None:
    scores, labels = [0.1, 0.2], [Label("0", "on time"), Label("1", "late")]
    assert assessed(scores, decided(scores), labels).refused.counts == {Unusable.UNKNOWN_CLASS: 2}
    assert assessed(scores, decided(scores), labels, NAMES).versions[0].matrix == ((1, 0), (1, 0))


def test_without_answers_or_labels_there_are_no_figures() -> None:
    assert assessed([], [], []).versions == ()
    assert assessed([0.5], ["late"], []).labelled == 0
    assert assessed([], [], [Label("0", "late")]).unmatched == 1


def test_classes_of_equal_mean_have_the_same_order_for_any_order_of_answers() -> None:
    assessment = [assessed([0.5, 0.5], decisions, [Label("0", 0.0)]).classes for decisions in (["a", "b"], ["b", "a"])]
    assert assessment == [("a", "b"), ("a", "b")]


@pytest.mark.parametrize(
    ("classes", "value", "expected"),
    [
        (("a", "b"), "c", "'c' is none of the classes a, b; check labels.value and labels.classes"),
        (("a", "b"), 2.0, "2 is not the number of one of the 2 classes a, b"),
        ((), "c", "'c' is neither 0 nor 1, and the scores' decisions do not name two classes; set labels.classes"),
    ],
)
def test_a_label_of_no_class_is_explained(classes: tuple[str, ...], value: str | float, expected: str) -> None:
    assessment = assessed([0.5], ["a"], [Label("0", value)], classes=classes)
    assert assessment.refused.lines() == [f"1 are unknown-class, the first labels[0]@0: {expected}"]


def test_a_number_is_explained_where_classes_have_no_order() -> None:
    assessment = assessed([0.5, 0.4, 0.3], ["a", "b", "c"], [Label("0", 1.0)])
    (line,) = assessment.refused.lines()
    assert "the order of the classes a, b, c is unknown; set labels.classes" in line
