"""Sums by cell are exact in any order and merged without a loss."""

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from xxhash import xxh64_intdigest

from scorer.rollout.canary_analysis.key_strata import CELLS, GRAIN, Cells, cell_of

pair_strategy = st.tuples(st.integers(0, CELLS - 1), st.floats(-1.0, 1.0))
pair_lists = st.lists(pair_strategy, max_size=40)


def cells_of(pairs: list[tuple[int, float]]) -> Cells:
    return Cells().added([place for place, _ in pairs], [difference for _, difference in pairs])


def are_equal(first: Cells, second: Cells) -> bool:
    return all(np.array_equal(getattr(first, name), getattr(second, name)) for name in ("sums", "squares", "counts"))


@examples(max_examples=50)
@given(pair_lists, pair_lists, st.randoms(use_true_random=False))
def test_the_order_and_the_batches_change_no_bit(
    first: list[tuple[int, float]], second: list[tuple[int, float]], chance: Random
) -> None:
    all_pairs = [*first, *second]
    chance.shuffle(all_pairs)
    assert are_equal(cells_of(first).merged(cells_of(second)), cells_of(all_pairs))
    single = Cells()
    for pair in all_pairs:
        single = single.added([pair[0]], [pair[1]])
    assert are_equal(single, cells_of(all_pairs))


@examples(max_examples=50)
@given(pair_lists)
def test_sums_are_those_of_a_plain_count(pairs: list[tuple[int, float]]) -> None:
    cells = cells_of(pairs)
    assert cells.pairs == len(pairs)
    assert cells.active == len({place for place, _ in pairs})
    for place in {place for place, _ in pairs}:
        members = [round(difference / GRAIN) * GRAIN for at, difference in pairs if at == place]
        assert (cells.sums[place], cells.counts[place]) == (sum(members), len(members))
        assert cells.squares[place] == sum(difference**2 for difference in members)


def test_all_events_of_a_key_are_in_one_cell_and_events_without_a_key_in_many() -> None:
    hashed = xxh64_intdigest(b"k")
    assert {cell_of(hashed, ("events", p), offset) for p in range(3) for offset in range(50)} == {
        cell_of(hashed, ("other", 9), 7)
    }
    cells_without_key = {cell_of(None, ("events", p), offset) for p in range(3) for offset in range(200)}
    assert len(cells_without_key) > 400
    counts = np.bincount(
        [cell_of(xxh64_intdigest(b"key %d" % n), ("events", 0), 0) for n in range(100 * CELLS)], minlength=CELLS
    )
    assert abs(counts - 100).max() < 6 * 10  # six sigma
