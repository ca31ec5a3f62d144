"""Encoding of numbers for feature records, by the native library."""

import json
import tracemalloc

import numpy as np
import pytest

from scorer.native.feature_rows import LONGEST_VARINT, NUMBERS, avro_integers, json_members
from scorer.native.load import native_library
from scorer.scores.avro_values import long


@pytest.mark.parametrize("columns", [1, 3, NUMBERS - 1, NUMBERS + 1])
def test_integers_of_several_chunks_are_encoded_row_by_row(columns: int) -> None:
    count = 2 * (NUMBERS // columns) + 3
    matrix = np.arange(count * columns).reshape(count, columns) * np.array([-1], np.int64)
    column = avro_integers(matrix)
    for row in {0, 1, NUMBERS // columns, count // 2, count - 1}:
        text = column.text[column.starts[row] : column.ends[row]].tobytes()
        assert text == b"".join(map(long, matrix[row].tolist()))


@pytest.mark.debian("cc")
def test_small_integers_are_not_converted_to_int64_all_at_once() -> None:
    assert native_library().library is not None
    matrix = np.zeros((200, 50_000), np.uint8)
    avro_integers(matrix[:1])
    tracemalloc.start()
    column = avro_integers(matrix)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert column.lengths().tolist() == [50_000] * 200
    assert column.text.nbytes == matrix.nbytes
    assert peak < (LONGEST_VARINT + 2) * matrix.nbytes


def test_the_longest_numbers_fit_into_the_buffer() -> None:
    matrix = np.array([[-2.2250738585072014e-308, -1.7976931348623157e308], [np.nan, -0.0]])
    column = json_members(matrix, [b'"a":', b',"b":'])
    assert column.text.nbytes == column.lengths().sum()
    first, second = (b"{%b}" % (text or b"") for text in column)
    assert json.loads(first) == {"a": matrix[0, 0], "b": matrix[0, 1]}
    assert second == b'{"a":null,"b":-0.0}'
