"""Errors by label compared with scikit-learn's Brier score, in bounded memory."""

import numpy as np
import pytest
from sklearn import metrics

from scorer.evaluation.class_names import BINARY, Classes
from scorer.evaluation.label_columns import Labels
from scorer.evaluation.label_record import Label, Unusable
from scorer.evaluation.latest_by_id import hash_ids
from scorer.rollout.canary_analysis.key_strata import CELLS, GRAIN
from scorer.rollout.canary_analysis.labelled_pairs import LabelledPairs, loss_differences, missing_reason
from scorer.rollout.canary_analysis.paired_metrics import VersionAnswer

COUNT = 500
PLACE = ("events", 0)


def scored(digest: str, n: int, score: object) -> VersionAnswer:
    return VersionAnswer(digest, "scored", 1_000 + n, f"e{n}", score)


def labelled_pairs(
    scores: np.ndarray, max_pairs: int = 10_000, *, wide: bool = False, backwards: bool = False
) -> LabelledPairs:
    """Return pairs with these scores (n, 2), each pair in a cell of its own."""
    filled = LabelledPairs(max_pairs)
    pairs = []
    for n, row in enumerate(scores.tolist()):
        answers = [scored(name, n, [1 - score, score] if wide else score) for name, score in zip("ab", row, strict=True)]
        pairs.append((n, n % CELLS, answers[0], answers[1]))
    for start in range(0, len(pairs), 100):
        filled.add(PLACE, pairs[start : start + 100][:: -1 if backwards else 1])
    filled.add(PLACE, [])
    return filled


def labels_of(pairs: LabelledPairs, truth: np.ndarray, classes: Classes | None = BINARY) -> Labels:
    labels = Labels("labels", classes)
    ids = hash_ids(f"e{n}" for n in range(len(truth)))
    records = [Label(f"e{n}", float(value)) for n, value in enumerate(truth)]
    labels.add(pairs.newest(), 0, list(range(len(truth))), [1] * len(truth), ids, records)
    return labels


@pytest.mark.parametrize("wide", [False, True])
def test_the_mean_is_the_difference_of_the_brier_scores(wide: bool) -> None:
    chance = np.random.default_rng(4)
    scores, truth = chance.random((COUNT, 2)), chance.integers(0, 2, COUNT)
    pairs = labelled_pairs(scores, wide=wide)
    cells = loss_differences(pairs.newest(), labels_of(pairs, truth[:400]))
    expected = [metrics.brier_score_loss(truth[:400], scores[:400, side]) for side in (0, 1)]
    assert cells.pairs == 400
    assert cells.sums.sum() / 400 == pytest.approx(expected[1] - expected[0], abs=GRAIN)
    expected_difference = (scores[7, 1] - truth[7]) ** 2 - (scores[7, 0] - truth[7]) ** 2
    assert cells.sums[7] == pytest.approx(expected_difference, abs=GRAIN)


def test_scores_that_are_no_probabilities_and_outcomes_that_are_no_classes_do_not_count() -> None:
    scores = np.full((4, 2), 0.5)
    scores[1, 0], scores[2, 1] = 1.5, np.nan
    pairs = labelled_pairs(scores)
    assert loss_differences(pairs.newest(), labels_of(pairs, np.ones(4))).pairs == 2
    assert loss_differences(pairs.newest(), labels_of(pairs, np.array([0.0, 1.0, 1.0, 0.3]), None)).pairs == 1
    three_classes = Classes(("a", "b", "c"))
    assert loss_differences(pairs.newest(), labels_of(pairs, np.ones(4), three_classes)).pairs == 0
    assert loss_differences(LabelledPairs(10).newest(), labels_of(pairs, np.ones(4))).pairs == 0


def test_the_kept_events_do_not_depend_on_their_order() -> None:
    scores = np.random.default_rng(5).random((2_000, 2))
    first, second = labelled_pairs(scores, 300), labelled_pairs(scores, 300, backwards=True)
    assert 100 < len(first) <= 300
    assert np.array_equal(first.newest().ids, second.newest().ids)


def test_an_id_in_two_partitions_counts_the_same_in_any_order_of_the_partitions() -> None:
    places = [("events", 0), ("events", 1)]
    sides = {
        place: [(0, 5, scored("a", 0, score), scored("b", 0, score / 2))]
        for place, score in zip(places, (0.4, 0.8), strict=True)
    }
    champions = []
    for order in (places, places[::-1]):
        pairs = LabelledPairs(10)
        for place in order:
            pairs.add(place, sides[place])
        champions.append(pairs.newest().columns["champion"].tolist())
    assert champions == [[0.8], [0.8]]


def test_the_reason_for_no_pair_is_named() -> None:
    scores = np.full((4, 2), 0.5)
    pairs = labelled_pairs(scores)
    assert missing_reason(pairs.newest(), labels_of(pairs, np.ones(4), Classes(("a", "b", "c")))).endswith("and there are 3")
    refused = labels_of(pairs, np.full(4, 7.0), Classes(("low", "high")))
    assert missing_reason(pairs.newest(), refused) == (
        "none of 4 events that both scored has a label that counts; 0 labels are of other events; 4 are unknown-class, "
        "the first labels[0]@0: 7 is not the number of one of the 2 classes low, high"
    )
    no_numbers = labelled_pairs(np.full((4, 2), 7.0))
    assert "none of their scores is a probability" in missing_reason(no_numbers.newest(), labels_of(no_numbers, np.ones(4)))
    assert "none has the outcome 0 or 1" in missing_reason(pairs.newest(), labels_of(pairs, np.full(4, 0.3), None))


def test_the_reason_for_no_pair_is_the_same_in_any_order_of_the_partitions() -> None:
    pairs, reasons = labelled_pairs(np.full((2, 2), 0.5)), set()
    for order in ((0, 1), (1, 0)):
        labels = Labels("labels", Classes(("low", "high")))
        for partition in order:
            ids = hash_ids([f"e{partition}"])
            labels.add(pairs.newest(), partition, [5 - partition], [1], ids, [Label(f"e{partition}", 7.0 + partition)])
            labels.add(pairs.newest(), partition, [9], [1], ids, [(Unusable.NO_VALUE, Unusable.NOT_JSON)[partition]])
        reasons.add(missing_reason(pairs.newest(), labels))
    (reason,) = reasons
    assert "2 are unknown-class, the first labels[0]@5: 7 is" in reason
