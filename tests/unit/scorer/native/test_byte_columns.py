"""Columns of byte strings: packing."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scorer.native.byte_columns import PADDING, ByteColumn
from tests.unit.scorer.decoding.formats import texts as texts_column


@given(texts=st.lists(st.binary(max_size=5), max_size=6), data=st.data())
def test_packing_keeps_the_entries_and_removes_the_gaps(texts: list[bytes], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(texts) - 1), max_size=8)) if texts else []
    column = texts_column(texts).part(np.array(rows, np.int64))
    packed = column.packed()
    assert list(packed) == [texts[row] for row in rows]
    assert packed.is_packed


def test_a_packed_column_is_not_copied() -> None:
    column = texts_column([b"a", b"", b"bc"])
    assert column.packed() is column


def test_padding_follows_a_packed_copy() -> None:
    packed = texts_column([b"ab", b"c", b"d"]).part(np.array([2, 0])).packed()
    assert packed.text.tobytes() == b"dab" + PADDING


def test_packing_keeps_null_entries() -> None:
    column = texts_column([b"ab", b"c", b"d"])
    nulls = ByteColumn(column.text, column.starts, column.ends, np.array([0, 1, 0], np.uint8))
    assert list(nulls.part(np.array([2, 1, 0])).packed()) == [b"d", None, b"ab"]
