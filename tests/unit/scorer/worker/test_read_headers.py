"""Ids in headers, as lists and as the native part's columns: the same ids, and the same events without one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scorer.dead_letters.reasons import Reason
from scorer.decoding.batch import Batch, Headers
from scorer.decoding.columnar_batch import ColumnarBatch
from scorer.native.fetch import HeaderColumns, MessageColumns
from scorer.worker.read_headers import is_plain, parse_numbers, read_headers
from tests.unit.scorer.decoding.formats import scattered, texts

IDS = [b"a", b"b", b"c d", b"0"]


def listed(headers: list[Headers]) -> Batch:
    count = len(headers)
    rows = list(range(count))
    return Batch(["in"] * count, [0] * count, rows, [None] * count, [b"{}"] * count, [1] * count, headers)


def packed(headers: list[Headers]) -> ColumnarBatch:
    count = len(headers)
    counts = np.array([len(record_headers or ()) for record_headers in headers], np.int64)
    all_headers = [header for record_headers in headers for header in record_headers or ()]
    values = [value.encode() if isinstance(value, str) else value for _, value in all_headers]
    columns = HeaderColumns(counts, texts([name.encode() for name, _ in all_headers]), texts(values))
    offsets, zeros, null_texts = np.arange(count), np.zeros(count, np.int32), texts([None] * count)
    return ColumnarBatch(
        MessageColumns([("in", 0)], zeros, offsets, offsets, zeros, zeros, texts([b"{}"] * count), null_texts, columns), "empty"
    )


@pytest.mark.parametrize("value", [b"x", b"", None, b" ", b" x", b"\t", b"\xc3\xa9", b"\xff", b'"'])
@pytest.mark.parametrize("field", ["f", "", None])
def test_ids_are_the_same_from_lists_and_columns(value: bytes | None, field: str | None) -> None:
    headers: list[Headers] = [[("ce_id", header)] for header in (*IDS, value)]
    results = []
    for batch in (listed(headers), packed(headers)):
        rows = list(range(len(headers)))
        result = read_headers(batch, rows, 1)
        assert not result.expired
        assert {row: poison.reason for row, poison in result.rejected.items()} == (
            {4: Reason.NOT_UTF8} if value == b"\xff" else {}
        )
        readable = [row for row in rows if row not in result.rejected]
        results.append(result.ids(batch, readable, [field] * len(readable), "eu"))
    assert results[0] == results[1]
    assert all(results[0])
    assert len(set(results[0])) == len(results[0])


def test_plain_ids_stay_columns() -> None:
    result = read_headers(packed([[("ce_id", header)] for header in IDS]), list(range(len(IDS))), 1)
    assert result.values is None
    assert result.names is not None


def test_a_null_deadline_is_none_in_lists_and_columns() -> None:
    headers: list[Headers] = [[("deadline", b"2000")], [("deadline", None)], [("deadline", b"5")], [("deadline", b"soon")]]
    for batch in (listed(headers), packed(headers)):
        result = read_headers(batch, list(range(len(headers))), 1_500)
        assert (list(result.expired), list(result.rejected)) == ([2], [3])
        assert result.split([0, 1, 2]) == ([0, 1], [2])


@given(numbers=st.lists(st.integers(10**12, 10**13 - 1), min_size=1, max_size=6))
def test_numbers_may_lie_in_any_order_and_with_gaps(numbers: list[int]) -> None:
    parsed = parse_numbers(scattered([b"%d" % number for number in numbers]))
    assert parsed is not None
    assert parsed.tolist() == numbers


@pytest.mark.parametrize("text", [b'"', b"\\", b"\x7f", b"\n", b"\xff"])
@pytest.mark.parametrize("at", range(3))
def test_a_text_that_needs_an_escape_is_found_at_any_place(text: bytes, at: int) -> None:
    column = [b"a", b"b", b"c"]
    column[at] = text
    assert not is_plain(texts(column))
    assert not is_plain(scattered(column))
