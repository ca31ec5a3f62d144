"""The bitmap is held against Python's own set."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from publisher.audit.bitmap import Bitmap

CONTAINER = 1 << 16  # offsets that pyroaring keeps together


near_edges = st.sampled_from([0, CONTAINER, 5 * CONTAINER, 2**40]).flatmap(lambda base: st.integers(max(0, base - 9), base + 9))
batches = st.lists(st.lists(near_edges, max_size=20), max_size=6)


def filled(lists: list[list[int]]) -> Bitmap:
    bitmap = Bitmap()
    for offsets in lists:
        bitmap.add(np.array(offsets, np.int64))
    return bitmap


@given(batches)
def test_add_tells_what_is_new_once(lists: list[list[int]]) -> None:
    bitmap, model = Bitmap(), set[int]()
    for offsets in lists:
        expected = []
        for offset in offsets:
            expected.append(offset not in model)
            model.add(offset)
        assert bitmap.add(np.array(offsets, np.int64)).tolist() == expected


@given(batches, near_edges, near_edges, st.integers(0, 30))
def test_count_and_first_over_a_range(lists: list[list[int]], start: int, stop: int, limit: int) -> None:
    bitmap = filled(lists)
    inside = sorted({offset for offsets in lists for offset in offsets if start <= offset < stop})
    assert bitmap.count(start, stop) == len(inside)
    assert bitmap.first(limit, start, stop) == inside[:limit]
    assert bitmap.count() == len({offset for offsets in lists for offset in offsets})


@given(st.lists(near_edges), st.lists(near_edges))
def test_minus_is_set_difference(mine: list[int], theirs: list[int]) -> None:
    left, right = filled([mine]), filled([theirs])
    assert left.minus(right).first(1_000) == sorted(set(mine) - set(theirs))
    assert (left.count(), right.count()) == (len(set(mine)), len(set(theirs)))
