"""The arena of raw rows: strings are read back, and the memory of released strings is found and freed."""

import numpy as np
import pytest

from scorer.native.byte_columns import ByteColumn
from scorer.tables.row_arena import WASTE_BYTES, RowArena

VALUES = [b"abc", b"", b"de", None, b"x" * 40, b"f"]


def column(values: list[bytes | None]) -> ByteColumn:
    text = b"".join(value or b"" for value in values)
    ends = np.cumsum([len(value or b"") for value in values])
    starts = ends - [len(value or b"") for value in values]
    return ByteColumn(np.frombuffer(text, np.uint8), starts, ends, np.array([value is None for value in values]))


@pytest.mark.parametrize("segment_bytes", [1, 4, 7, 1000])
@pytest.mark.parametrize("as_column", [False, True])
def test_strings_are_read_back_for_any_size_of_a_segment(segment_bytes: int, as_column: bool) -> None:
    arena = RowArena(segment_bytes)
    stored = [arena.append(column(part) if as_column else part) for part in (VALUES, VALUES[::-1], [])]
    assert [value for bounds in stored for value in arena.read(*bounds)] == [value or b"" for value in VALUES + VALUES[::-1]]
    assert arena.live == 2 * sum(len(value or b"") for value in VALUES)


def test_strings_of_a_part_of_a_column_are_read_back() -> None:
    arena = RowArena(16)
    part = column(VALUES).part(np.array([5, 3, 0, 2]))
    assert arena.read(*arena.append(part)) == [b"f", b"", b"abc", b"de"]


def test_a_segment_is_sparse_once_less_than_two_thirds_are_in_use() -> None:
    arena = RowArena(10)
    positions, lengths = arena.append([b"12345"] * 5)
    assert arena.sparse_segments(positions, lengths) == []
    arena.release(5)
    (sparse,) = arena.sparse_segments(positions[1:], lengths[1:])
    assert arena.in_segments(positions, [sparse]).tolist() == [True, True, False, False, False]


def test_freed_segments_no_longer_take_memory_and_others_are_still_read() -> None:
    arena = RowArena(10)
    positions, lengths = arena.append([b"12345", b"67890", b"abcde"])
    arena.free(arena.sparse_segments(positions[2:], lengths[2:]))
    assert (arena.nbytes, arena.read(positions[2:], lengths[2:])) == (10, [b"abcde"])
    assert arena.read(*arena.append([b"later"])) == [b"later"]


def test_an_empty_string_of_a_freed_segment_lies_in_the_text_of_its_column() -> None:
    arena = RowArena(10)
    positions, lengths = arena.append([b"1234567", b"", b"1234567", b"1234567", b"", b"1234567"])
    live_rows = [3]
    arena.free(arena.sparse_segments(positions[live_rows], lengths[live_rows]))
    columns = [column for _, column in arena.columns(positions[[1, 3, 4]], lengths[[1, 3, 4]])]
    assert sum(len(column) for column in columns) == 3
    assert all((column.starts >= 0).all() and (column.ends <= len(column.text)).all() for column in columns)


def test_an_arena_wastes_memory_only_if_much_is_released() -> None:
    arena = RowArena()
    arena.append([bytes(WASTE_BYTES)] * 4)
    assert not arena.wastes
    arena.release(2 * WASTE_BYTES)
    assert arena.wastes
