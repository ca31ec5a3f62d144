"""Encoding of numbers for feature records, by the native library."""

import json
import tracemalloc

import numpy as np
import orjson
import pytest
from numpy.typing import NDArray

from scorer.features.float_text import as_floats
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
    finite_row, nan_row = (b"{%b}" % (text or b"") for text in column)
    assert json.loads(finite_row) == {"a": matrix[0, 0], "b": matrix[0, 1]}
    assert nan_row == b'{"a":null,"b":-0.0}'


def _float32_of_all_magnitudes() -> NDArray[np.float32]:
    """Return float32 numbers of all kinds, (n,): random bits, usual numbers, and the neighbours of powers of two and of ten."""
    random = np.random.default_rng(5)
    bits = random.integers(0, 1 << 32, 100_000, np.uint32).view(np.float32)
    usual = random.normal(size=20_000).astype(np.float32)
    twos = (np.arange(255, dtype=np.uint32) << 23)[:, None] + np.arange(-20, 21).astype(np.uint32)
    with np.errstate(over="ignore"):
        tens = np.array([f"1e{power}" for power in range(-46, 39)], np.float64).astype(np.float32)
    limits = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e8, 16777216.0, 7.038531e-26, -1.1754944e-38], np.float32)
    return np.concatenate([bits, usual, usual.round(3), twos.ravel().view(np.float32), tens, -tens, limits])


@pytest.mark.debian("cc")
def test_float32_numbers_have_the_text_that_orjson_writes() -> None:
    assert native_library().library is not None
    numbers = _float32_of_all_magnitudes()
    column = json_members(numbers.reshape(-1, 1), [b","])
    assert column.text.tobytes() == b"," + orjson.dumps(numbers, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1]


def test_every_finite_float32_reads_back_to_the_same_bits() -> None:
    numbers = _float32_of_all_magnitudes()
    numbers = numbers[np.isfinite(numbers)]
    column = json_members(numbers.reshape(-1, 1), [b","])
    parsed, ties = as_floats([float(text) for text in column.text.tobytes()[1:].split(b",")], np.dtype(np.float32))
    halfway = np.isin(np.arange(len(numbers)), ties)
    assert np.array_equal(parsed[~halfway].view(np.uint32), numbers[~halfway].view(np.uint32))


@pytest.mark.parametrize("columns", [1, 3, 7])
def test_float32_rows_of_several_chunks_have_their_names_and_numbers(columns: int) -> None:
    matrix = np.arange(700 * columns, dtype=np.float32).reshape(700, columns)[:, ::-1]
    names = [b'%b"column %d":' % (b"," if column else b"", column) for column in range(columns)]
    rows = [list(json.loads(b"{%b}" % (text or b"")).values()) for text in json_members(matrix, names)]
    assert rows == matrix.tolist()
