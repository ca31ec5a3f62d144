"""Answers joined by source position, beside a plain join; memory is bounded, and nothing goes uncounted."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from scorer.rollout.judgement.differences import Answer, Contest, Tally, difference
from scorer.rollout.judgement.pairing import MergeJoin, Pairs, Side

PLACE = ("events", 0)
OLD, NEW, OTHER = "sha256:old", "sha256:new", "sha256:other"
CONTEST = Contest(OLD, NEW)


@examples(max_examples=100)
@given(st.sets(st.integers(0, 200)), st.sets(st.integers(0, 200)), st.data())
def test_whatever_the_lag_the_pairs_are_those_of_a_plain_join(scores: set[int], shadow: set[int], data: st.DataObject) -> None:
    join: MergeJoin[str] = MergeJoin(1_000, 10)
    left = {Side.ANSWERED: sorted(scores), Side.SHADOW: sorted(shadow)}
    pairs: list[tuple[int, str, str]] = []
    while any(left.values()):
        side = data.draw(st.sampled_from([side for side, offsets in left.items() if offsets]))
        count = data.draw(st.integers(1, 20))
        some, left[side] = left[side][:count], left[side][count:]
        pairs += zip(*join.add(side, PLACE, some, [f"{side.name} {offset}" for offset in some]), strict=True)
    assert sorted(pairs) == [(o, f"ANSWERED {o}", f"SHADOW {o}") for o in sorted(scores & shadow)]
    join.settle()
    join.settle()
    behind = [offset for offset in scores - shadow if offset > max(shadow, default=-1)]
    ahead = [offset for offset in shadow - scores if offset > max(scores, default=-1)]
    assert join.waiting == len(behind) + len(ahead)
    assert join.dropped == (len(scores - shadow) - len(behind), len(shadow - scores) - len(ahead), 0)


def test_partitions_are_apart() -> None:
    join: MergeJoin[str] = MergeJoin(100, 10)
    assert not join.add(Side.ANSWERED, PLACE, [1], ["a"]).offsets
    assert not join.add(Side.SHADOW, ("events", 1), [1], ["b"]).offsets
    assert (join.held(Side.ANSWERED, PLACE), join.held(Side.SHADOW, PLACE), join.held(Side.ANSWERED, ("x", 0))) == (1, 0, 0)
    assert join.add(Side.SHADOW, PLACE, [1], ["c"]) == Pairs([1], ["a"], ["c"])


def test_what_failed_may_stand_a_little_behind() -> None:
    join: MergeJoin[str] = MergeJoin(1_000, 50)
    join.add(Side.ANSWERED, PLACE, list(range(100)), ["s"] * 100)
    assert len(join.add(Side.SHADOW, PLACE, [o for o in range(100) if o != 60], ["h"] * 99).offsets) == 99
    assert join.add(Side.SHADOW, PLACE, [60], ["failed"]) == Pairs([60], ["s"], ["failed"])
    join.add(Side.SHADOW, PLACE, [100, 101, 103], ["h"] * 3)
    assert len(join.add(Side.ANSWERED, PLACE, [101, 102, 103], ["s"] * 3).offsets) == 2
    join.settle()
    assert join.add(Side.ANSWERED, PLACE, [100], ["a dead letter"]) == Pairs([100], ["a dead letter"], ["h"])


def test_no_more_wait_than_are_allowed() -> None:
    join: MergeJoin[int] = MergeJoin(100, 10)
    for start in range(0, 1_000, 30):
        join.add(Side.ANSWERED, PLACE, list(range(start, start + 30)), list(range(30)))
        assert join.waiting <= 100
    assert join.dropped.crowded == 1_020 - join.waiting
    assert len(join.add(Side.SHADOW, PLACE, list(range(1_020)), [0] * 1_020).offsets) > 40  # the newest are there still


def of(digest: str, decision: str | None = "yes", score: float = 0.5) -> Answer:
    return Answer(digest, "scored", decision=decision, score=score)


def failed(digest: str, why: str | None = None) -> Answer:
    return Answer(digest, "dead_lettered", fallback=why)


def instead(answer: Answer, why: str = "inference-failed") -> Answer:
    return msgspec.structs.replace(answer, fallback=why)


@pytest.mark.parametrize(
    ("answered", "shadow", "error", "flip"),
    [
        (of(OLD), of(NEW), 0, 0),
        (of(NEW), of(OLD), 0, 0),
        (of(OLD), of(NEW, "no"), 0, 1),
        (of(NEW), of(OLD, None), 0, 1),
        (of(NEW, None), of(OLD, None), 0, None),
        (of(OLD), failed(NEW, "missing-field"), 1, None),
        (of(OLD), failed(NEW, "refused"), 1, None),
        (failed(NEW), of(OLD), 1, None),
        (of(NEW), failed(OLD, "missing-field"), -1, None),
        (failed(OLD), of(NEW), -1, None),
        (failed(OLD), failed(NEW), 0, None),
        (instead(of(OLD)), of(NEW), 1, None),
        (instead(of(OLD)), failed(NEW), 1, None),
        (instead(failed(OLD)), of(NEW), 0, None),
        (instead(of(NEW)), of(OLD), -1, None),
    ],
)
def test_differences_are_the_candidates_less_the_champions(
    answered: Answer, shadow: Answer, error: int, flip: int | None
) -> None:
    found = difference(CONTEST, answered, shadow)
    assert found is not None
    assert (found.error, found.flip) == (error, flip)
    if flip is not None:
        by_digest = {answered.digest: answered, shadow.digest: shadow}
        assert found.decisions == (by_digest[OLD].decision, by_digest[NEW].decision)
    scored = answered.status == shadow.status == "scored" and answered.fallback is None
    assert math.isfinite(found.scores[0]) is scored


@pytest.mark.parametrize(
    ("answered", "shadow"),
    [
        (of(OLD), of(OLD)),
        (of(OLD), of(OTHER)),
        (of(OTHER), of(NEW)),
        (Answer(OLD, "expired"), of(NEW)),
        (of(OLD), Answer(NEW, "expired")),
        (of(NEW), failed(OLD, "crash")),
        (of(OLD), failed(NEW, "crash")),
        (instead(of(OLD), "crash"), of(NEW)),
    ],
)
def test_pairs_of_other_versions_are_dropped_and_counted(answered: Answer, shadow: Answer) -> None:
    tally = Tally()
    tally.add([5, 6], [difference(CONTEST, answered, shadow), difference(CONTEST, of(OLD), of(NEW, "no"))])
    assert tally.foreign == 1
    assert (tally.cells["errors"].pairs, tally.cells["flips"].sums[6]) == (1, 1.0)
