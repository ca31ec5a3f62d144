"""Sampled answers and labels are joined in any order, in bounded memory."""

import numpy as np
import pytest
from sklearn import metrics

from scorer.console.label_quality_fold import REFRESH_SECONDS, LabelQualityFold
from scorer.evaluation.label_record import Label
from tests.unit.scorer.console import console_records


def test_answers_and_labels_are_joined_in_any_order() -> None:
    fold, source = LabelQualityFold(), np.random.default_rng(1)
    scores = source.random(200).tolist()
    true = [bool(source.random() < score) for score in scores]
    assert fold.assessed(console_records.NOW) is None
    for number, score in enumerate(scores):
        record = console_records.score(score, id=f"e{number}", decision="late" if score >= 0.5 else "on time")
        label = Label(f"e{number}", float(true[number]))
        if number % 2:
            fold.add(record)
            fold.add_label(label)
        else:
            fold.add_label(Label(f"e{number}", float(not true[number])))
            fold.add_label(label)
            fold.add(record)
    assessment = fold.assessed(console_records.NOW)
    assert assessment
    (version,) = assessment.versions
    assert version.labels == 200
    assert version.auc == pytest.approx(metrics.roc_auc_score(true, scores), abs=1e-12)
    fold.add_label(Label("e0", None))
    assert fold.assessed(console_records.NOW + REFRESH_SECONDS / 2) is assessment
    refreshed = fold.assessed(console_records.NOW + REFRESH_SECONDS)
    assert refreshed
    assert (refreshed.labelled, refreshed.withdrawn) == (199, 1)


def test_sample_is_bounded_and_still_joins() -> None:
    fold, count = LabelQualityFold(most=100), 5_000
    for number in range(count):
        fold.add(console_records.score(number / count, id=f"e{number}"))
    for number in reversed(range(count)):
        fold.add_label(Label(f"e{number}", 1.0))
    assert 25 <= len(fold.answers) <= 100
    assert fold.answers.keys() == fold.labels.keys()
    assessment = fold.assessed(console_records.NOW)
    assert assessment
    assert assessment.labelled == len(fold.answers)


def test_expired_answers_and_answers_without_id_are_not_kept() -> None:
    fold = LabelQualityFold()
    fold.add(console_records.score(None, id="e1", status="expired"))
    fold.add(console_records.score(0.5))
    assert not fold.answers
