"""The newest row of each id, in any order of the rows, compared with a plain recomputation."""

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scorer.evaluation.latest_by_id import NewestRows, RowsById, hash_ids

RECORDS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), st.integers(0, 9)), max_size=40)
"""(id, partition, time); the offset and the value are the index in the list."""
Record = tuple[int, int, int]


def rows_of(records: Sequence[Record], order: Sequence[int]) -> RowsById:
    rows = RowsById()
    for at in order:
        id_, partition, time = records[at]
        rows.add(hash_ids([f"e{id_}"]), partition, np.array([at]), np.array([time]), value=np.array([at]))
    return rows


def expected(records: Sequence[Record]) -> dict[int, int]:
    last_offsets: dict[tuple[int, int], int] = {(id_, partition): at for at, (id_, partition, _) in enumerate(records)}
    newest: dict[int, int] = {}
    for (id_, _), at in sorted(last_offsets.items(), key=lambda item: (records[item[1]][2], item[0][1])):
        newest[id_] = at
    return newest


def values_by_id(newest: NewestRows) -> dict[tuple[int, ...], int]:
    values = newest.columns["value"].tolist() if len(newest) else []
    return {tuple(map(int, id_)): value for id_, value in zip(newest.ids, values, strict=True)}


@given(RECORDS, st.randoms())
def test_the_newest_row_counts_in_any_order_of_the_rows(records: list[Record], random: "object") -> None:
    order = list(range(len(records)))
    random.shuffle(order)  # type: ignore[attr-defined]
    newest = rows_of(records, order).newest()
    expected_values = {tuple(map(int, hash_ids([f"e{id_}"])[0])): at for id_, at in expected(records).items()}
    assert values_by_id(newest) == expected_values
    assert newest.replaced == len(records) - len(expected_values)


@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)))
def test_rows_with_one_id_are_joined(first_ids: set[int], second_ids: set[int]) -> None:
    tables = [rows_of([(id_, 0, 0) for id_ in sorted(ids)], range(len(ids))).newest() for ids in (first_ids, second_ids)]
    left, right = tables[0].joined(tables[1])
    assert (tables[0].ids[left] == tables[1].ids[right]).all()
    assert len(left) == len(first_ids & second_ids)
    ids = hash_ids([f"e{id_}" for id_ in range(31)]) if first_ids else hash_ids([])
    assert [bool(is_contained) for is_contained in tables[0].contains(ids)] == [id_ in first_ids for id_ in range(31)][
        : len(ids)
    ]


def test_rows_of_several_widths_are_in_one_column() -> None:
    rows = RowsById()
    for width in (0, 2, 1):
        rows.add(hash_ids([f"{width}"]), 0, np.array([width]), np.array([0]), row=np.ones((1, width)))
    column = rows.newest().columns["row"]
    assert sorted(np.isfinite(column).sum(axis=1).tolist()) == [0, 1, 2]
