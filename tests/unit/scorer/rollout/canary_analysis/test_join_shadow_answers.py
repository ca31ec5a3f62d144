"""The merge join compared with a plain join: bounded memory, and a count for every dropped record."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from publisher.kafka.partitions import Partition
from scorer.rollout.canary_analysis.join_shadow_answers import JoinSide, MergeJoin
from scorer.rollout.canary_analysis.paired_metrics import (
    Contest,
    PairComparer,
    PairDifference,
    PairedSums,
    VersionAnswer,
    compare_answers,
)

PLACE = ("events", 0)
OLD, NEW, OTHER = "sha256:old", "sha256:new", "sha256:other"
CONTEST = Contest(OLD, NEW)


def add(
    join: MergeJoin, side: JoinSide, partition: Partition, offsets: Sequence[int], tickets: Sequence[int]
) -> list[list[int]]:
    """Add records, and return the offsets of the pairs and the tickets of both sides."""
    return [column.tolist() for column in join.add(side, partition, np.array(offsets, np.int64), np.array(tickets, np.int64))]


@examples(max_examples=100)
@given(st.sets(st.integers(0, 200)), st.sets(st.integers(0, 200)), st.data())
def test_the_pairs_are_those_of_a_plain_join_for_any_lag(scores: set[int], shadow: set[int], data: st.DataObject) -> None:
    join = MergeJoin(1_000, 10)
    remaining = {JoinSide.ANSWERED: sorted(scores), JoinSide.SHADOW: sorted(shadow)}
    pairs: list[tuple[int, int, int]] = []
    while any(remaining.values()):
        side = data.draw(st.sampled_from([side for side, offsets in remaining.items() if offsets]))
        count = data.draw(st.integers(1, 20))
        chunk, remaining[side] = remaining[side][:count], remaining[side][count:]
        pairs += zip(*add(join, side, PLACE, chunk, [1_000 * (side + 1) + offset for offset in chunk]), strict=True)
        assert len(join.waiting_tickets()) == join.waiting
    assert sorted(pairs) == [(o, 1_000 + o, 2_000 + o) for o in sorted(scores & shadow)]
    for side in (*JoinSide, *JoinSide):
        join.drop_unmatched(side)
    behind = [offset for offset in scores - shadow if offset > max(shadow, default=-1)]
    ahead = [offset for offset in shadow - scores if offset > max(scores, default=-1)]
    assert sorted(join.waiting_tickets().tolist()) == sorted([*(1_000 + o for o in behind), *(2_000 + o for o in ahead)])
    assert join.dropped == (len(scores - shadow) - len(behind), len(shadow - scores) - len(ahead), 0)


def test_partitions_are_joined_separately() -> None:
    join = MergeJoin(100, 10)
    assert add(join, JoinSide.ANSWERED, PLACE, [1], [10]) == [[], [], []]
    assert add(join, JoinSide.SHADOW, ("events", 1), [1], [11]) == [[], [], []]
    assert (
        join.count_waiting(JoinSide.ANSWERED, PLACE),
        join.count_waiting(JoinSide.SHADOW, PLACE),
        join.count_waiting(JoinSide.ANSWERED, ("x", 0)),
    ) == (
        1,
        0,
        0,
    )
    assert add(join, JoinSide.SHADOW, PLACE, [1], [12]) == [[1], [10], [12]]


def test_failures_may_follow_slightly_later_scores() -> None:
    join = MergeJoin(1_000, 50)
    add(join, JoinSide.ANSWERED, PLACE, range(100), range(100))
    shadow = [offset for offset in range(100) if offset != 60]
    assert len(add(join, JoinSide.SHADOW, PLACE, shadow, shadow)[0]) == 99
    assert add(join, JoinSide.SHADOW, PLACE, [60], [7]) == [[60], [60], [7]]
    add(join, JoinSide.SHADOW, PLACE, [100, 101, 103], [8, 8, 8])
    assert len(add(join, JoinSide.ANSWERED, PLACE, [101, 102, 103], [9, 9, 9])[0]) == 2
    for side in JoinSide:
        join.drop_unmatched(side)
    assert add(join, JoinSide.ANSWERED, PLACE, [100], [5]) == [[100], [5], [8]]


def test_the_number_of_waiting_records_is_limited() -> None:
    join = MergeJoin(100, 10)
    for start in range(0, 1_000, 30):
        add(join, JoinSide.ANSWERED, PLACE, range(start, start + 30), range(30))
        assert join.waiting <= 100
    assert join.dropped.crowded == 1_020 - join.waiting
    assert len(add(join, JoinSide.SHADOW, PLACE, range(1_020), range(1_020))[0]) > 40  # the newest are still waiting


def answer_of(digest: str, decision: str | None = "yes", score: float = 0.5) -> VersionAnswer:
    return VersionAnswer(digest, "scored", decision=decision, score=score)


def failed(digest: str, reason: str | None = None) -> VersionAnswer:
    return VersionAnswer(digest, "dead_lettered", fallback=reason)


def by_fallback(answer: VersionAnswer, reason: str = "inference-failed") -> VersionAnswer:
    return msgspec.structs.replace(answer, fallback=reason)


@pytest.mark.parametrize(
    ("answered", "shadow", "error", "flip"),
    [
        (answer_of(OLD), answer_of(NEW), 0, 0),
        (answer_of(NEW), answer_of(OLD), 0, 0),
        (answer_of(OLD), answer_of(NEW, "no"), 0, 1),
        (answer_of(NEW), answer_of(OLD, None), 0, 1),
        (answer_of(NEW, None), answer_of(OLD, None), 0, None),
        (answer_of(OLD), failed(NEW, "missing-field"), 1, None),
        (answer_of(OLD), failed(NEW, "refused"), 1, None),
        (failed(NEW), answer_of(OLD), 1, None),
        (answer_of(NEW), failed(OLD, "missing-field"), -1, None),
        (failed(OLD), answer_of(NEW), -1, None),
        (failed(OLD), failed(NEW), 0, None),
        (by_fallback(answer_of(OLD)), answer_of(NEW), 1, None),
        (by_fallback(answer_of(OLD)), failed(NEW), 1, None),
        (by_fallback(failed(OLD)), answer_of(NEW), 0, None),
        (by_fallback(answer_of(NEW)), answer_of(OLD), -1, None),
    ],
)
def test_differences_are_the_candidates_less_the_champions(
    answered: VersionAnswer, shadow: VersionAnswer, error: int, flip: int | None
) -> None:
    difference = compare_answers(CONTEST, answered, shadow)
    assert difference is not None
    assert (difference.error, difference.flip) == (error, flip)
    if flip is not None:
        by_digest = {answered.digest: answered, shadow.digest: shadow}
        assert difference.decisions == (by_digest[OLD].decision, by_digest[NEW].decision)
    compared = PairComparer(CONTEST).differences([answered, answer_of(NEW)], [shadow, answer_of(OLD)])
    assert [compared.kinds[at] for at in compared.which] == [difference, PairDifference(0, 0, ("yes", "yes"), swapped=True)]
    scored = answered.status == shadow.status == "scored" and answered.fallback is None
    by_side = [answer.score for answer in (answered, shadow)][:: -1 if difference.swapped else 1]
    assert compared.scores[:, 0].tolist() == by_side if scored else np.isnan(compared.scores[:, 0]).all()


SCORES: list[Any] = [0.25, 1, True, [0.5], {"a": 1.0}, None]


@examples(max_examples=200)
@given(st.data())
def test_differences_of_many_pairs_are_those_of_each_pair(data: st.DataObject) -> None:
    """The result depends neither on the other pairs nor on earlier calls."""
    answers = st.builds(
        VersionAnswer,
        st.sampled_from([OLD, NEW, OTHER]),
        st.sampled_from(["scored", "scored", "dead_lettered", "expired"]),
        score=st.sampled_from(SCORES),
        decision=st.sampled_from([None, "yes", "no"]),
        fallback=st.sampled_from([None, None, "crash", "refused", "away"]),
    )
    comparer = PairComparer(CONTEST)
    for pairs in data.draw(st.lists(st.lists(st.tuples(answers, answers), min_size=1, max_size=8), max_size=3)):
        answered, shadow = (list(side) for side in zip(*pairs, strict=True))
        differences = comparer.differences(answered, shadow)
        assert [differences.kinds[at] for at in differences.which] == [compare_answers(CONTEST, *pair) for pair in pairs]
        for pair, kind, scores in zip(pairs, differences.which, differences.scores.T, strict=True):
            numbers = [answers.score for answers in pair if isinstance(answers.score, int | float)]
            if (kind_difference := differences.kinds[kind]) is not None and kind_difference.scored and len(numbers) == 2:
                assert scores.tolist() == numbers[:: -1 if kind_difference.swapped else 1]
            else:
                assert np.isnan(scores).all()


@pytest.mark.parametrize(
    ("answered", "shadow"),
    [
        (answer_of(OLD), answer_of(OLD)),
        (answer_of(OLD), answer_of(OTHER)),
        (answer_of(OTHER), answer_of(NEW)),
        (VersionAnswer(OLD, "expired"), answer_of(NEW)),
        (answer_of(OLD), VersionAnswer(NEW, "expired")),
        (answer_of(NEW), failed(OLD, "crash")),
        (answer_of(OLD), failed(NEW, "crash")),
        (by_fallback(answer_of(OLD), "crash"), answer_of(NEW)),
    ],
)
def test_pairs_of_other_versions_are_dropped_and_counted(answered: VersionAnswer, shadow: VersionAnswer) -> None:
    tally = PairedSums()
    tally.add(np.array([5, 6]), PairComparer(CONTEST).differences([answered, answer_of(OLD)], [shadow, answer_of(NEW, "no")]))
    assert tally.foreign == 1
    assert (tally.cells["errors"].pairs, tally.cells["flips"].sums[6]) == (1, 1.0)
