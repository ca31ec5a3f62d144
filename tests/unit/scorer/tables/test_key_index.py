"""The index of keys: one suite for every implementation, against a model that consists of dicts."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scorer.native.byte_columns import ByteColumn
from scorer.native.key_index import NativeKeyIndex
from scorer.native.load import native_library
from scorer.tables.key_index import NO_ROW, KeyIndex, PythonKeyIndex
from tests.unit.scorer.decoding.formats import scattered

needs_library = pytest.mark.skipif(native_library().library is None, reason="the native library is not built")
for_each_index = pytest.mark.parametrize("create", [PythonKeyIndex, pytest.param(NativeKeyIndex, marks=needs_library)])

keys = st.one_of(st.none(), st.binary(max_size=3), st.binary(min_size=30, max_size=40).map(lambda key: key[:2] * 20))
operations = st.lists(st.tuples(keys, st.booleans(), st.integers(0, 2)), max_size=60)
steps = st.lists(st.one_of(operations, st.integers(0, 2)), max_size=8)


def column(texts: Sequence[bytes | None]) -> ByteColumn:
    lengths = np.array([len(text or b"") for text in texts], np.int64)
    ends = np.cumsum(lengths)
    text = np.frombuffer(b"".join(text or b"" for text in texts) + bytes(32), np.uint8)
    return ByteColumn(text, ends - lengths, ends, np.array([text is None for text in texts], np.uint8))


def put(index: KeyIndex, texts: Sequence[bytes | None], space: int = 0) -> list[int]:
    rows: list[int] = index.apply(texts, np.zeros(len(texts), np.bool_), space).tolist()
    return rows


def remove(index: KeyIndex, texts: Sequence[bytes | None], space: int = 0) -> list[int]:
    rows: list[int] = index.apply(texts, np.ones(len(texts), np.bool_), space).tolist()
    return rows


@for_each_index
@given(texts=st.lists(keys, max_size=8))
def test_keys_may_lie_in_any_order_and_with_gaps(create: Callable[[], KeyIndex], texts: list[bytes | None]) -> None:
    index, plain_index = create(), create()
    present = [text for text in texts if text is not None]
    assert put(index, scattered(present)) == put(plain_index, present)
    assert index.rows(scattered(texts), 0).tolist() == plain_index.rows(texts, 0).tolist()


@for_each_index
@settings(max_examples=100, deadline=None)
@given(steps=steps, as_column=st.booleans())
def test_an_index_has_the_keys_of_a_model_and_a_row_for_each_key(
    create: Callable[[], KeyIndex], steps: list[list[tuple[bytes | None, bool, int]] | int], as_column: bool
) -> None:
    index = create()
    model: dict[tuple[int, bytes], int] = {}
    for step in steps:
        if isinstance(step, int):
            index.remove_rows(np.array([row for (space, _), row in model.items() if space == step], np.int64))
            model = {key: row for key, row in model.items() if key[0] != step}
            continue
        texts = [key for key, _, _ in step]
        removed = np.array([is_removed for _, is_removed, _ in step], np.bool_)
        spaces = np.array([space for _, _, space in step], np.int32)
        rows = index.apply(column(texts) if as_column else texts, removed, spaces).tolist()
        for (key, is_removed, space), row in zip(step, rows, strict=True):
            if key is None:
                assert row == NO_ROW
            elif is_removed:
                assert row == model.pop((space, key), NO_ROW)
            else:
                assert model.setdefault((space, key), row) == row
        assert len(set(model.values())) == len(model) == len(index)
        assert all(0 <= row < index.capacity for row in model.values())
        rows_of_keys = index.rows(column(texts) if as_column else texts, spaces).tolist()
        assert rows_of_keys == [model.get((space, key or b""), NO_ROW) if key is not None else NO_ROW for key, _, space in step]


@for_each_index
def test_a_key_keeps_its_row_and_the_row_of_a_removed_key_is_used_again(create: Callable[[], KeyIndex]) -> None:
    index = create()
    first, second = put(index, [b"a", b"b"])
    assert put(index, [b"b", b"a", b"b"]) == [second, first, second]
    assert remove(index, [b"a", b"a"]) == [first, NO_ROW]
    assert put(index, [b"c"]) == [first]
    assert index.capacity == 2


@for_each_index
def test_one_space_for_all_keys_and_a_space_for_each_key_give_the_same_rows(create: Callable[[], KeyIndex]) -> None:
    index = create()
    put(index, [b"a", b"b"], 5)
    texts = [b"b", b"a", b"c", None]
    assert index.rows(texts, 5).tolist() == index.rows(texts, np.full(4, 5, np.int32)).tolist()
    assert index.rows(texts, 4).tolist() == [NO_ROW] * 4


@for_each_index
def test_many_keys_are_found_after_the_index_has_grown_and_shrunk(create: Callable[[], KeyIndex]) -> None:
    index = create()
    texts = [b"key-%d" % number for number in range(20_000)]
    rows = put(index, texts)
    remove(index, texts[::2])
    for _ in range(3):
        other_rows = put(index, [b"other-%d" % number for number in range(5_000)], 1)
        index.remove_rows(np.array(other_rows))
    assert index.rows(texts[1::2], 0).tolist() == rows[1::2]
    assert set(index.rows(texts[::2], 0).tolist()) == {NO_ROW}
    assert len(index) == 10_000


@for_each_index
def test_keys_of_growing_and_shrinking_lengths_do_not_waste_the_memory_of_removed_keys(create: Callable[[], KeyIndex]) -> None:
    index = create()
    for length in (10, 2_000, 30, 3_000, 100, 4_000):
        texts = [b"%d" % number + b"x" * length for number in range(1_000)]
        put(index, texts)
        assert NO_ROW not in index.rows(texts, 0).tolist()
        remove(index, texts)
    put(index, [b"last"])
    assert index.rows([b"last"], 0).tolist() != [NO_ROW]
    assert index.nbytes < 10_000_000


@for_each_index
def test_a_look_up_of_no_keys_returns_no_rows(create: Callable[[], KeyIndex]) -> None:
    index = create()
    assert index.rows([], 0).tolist() == []
    assert put(index, []) == []


@for_each_index
def test_the_memory_grows_with_the_keys(create: Callable[[], KeyIndex]) -> None:
    index = create()
    before = index.nbytes
    put(index, [b"key-%d" % number for number in range(10_000)])
    assert 10_000 * 10 < index.nbytes - before < 10_000 * 250
