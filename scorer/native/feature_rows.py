"""Encoding of the rows of numeric matrices for feature records, by feature_rows.c or, without the native library, in Python."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from model_registry.untrusted_input.varint import encode_varint
from scorer.native.byte_columns import PADDING, ByteColumn, address
from scorer.native.load import native_library

LONGEST_NUMBER = 24  # characters of a float64 in JSON
OVERWRITTEN = 32  # bytes behind the text that feature_rows.c may overwrite
LONGEST_VARINT = 10  # bytes of an int64 as a varint
ROWS = 256
"""The number of rows that are encoded at once, so that their text fits into the CPU's cache and reuses memory pages."""
NUMBERS = 1 << 16
"""The number of integers that are converted to int64 at once. As int64, uint8 images need eight times their size."""


def json_members(matrix: NDArray[Any], names: Sequence[bytes]) -> ByteColumn:
    """Encode each row of a (B, n) matrix as members of a JSON object, with the numbers in the shortest form for their dtype.

    Args:
        matrix: Numbers or booleans; NaN is encoded as null.
        names: The text before each of the n numbers, such as `,"a":`.

    Returns:
        One text per row.
    """
    count, columns = matrix.shape
    library = native_library().library
    if library is None:
        text = orjson.dumps(np.ascontiguousarray(matrix), option=orjson.OPT_SERIALIZE_NUMPY)
        return column_of([_join_members(row, names) for row in text[2:-2].split(b"],[")] if count else [])
    joined_names = np.frombuffer(b"".join(names) + PADDING, np.uint8)
    name_ends = np.cumsum([len(name) for name in names], dtype=np.int64)
    longest = int(name_ends[-1]) + columns * LONGEST_NUMBER
    out = np.empty(count * longest + OVERWRITTEN, np.uint8)
    bounds = np.zeros(count + 1, np.int64)
    used = 0
    for first in range(0, count, ROWS):
        rows = np.ascontiguousarray(matrix[first : first + ROWS])
        places = address(joined_names), address(name_ends), address(out), used, address(bounds[first + 1 :])
        if matrix.dtype == np.float32:
            used = library.json_float_members(address(rows), len(rows), columns, *places)
        else:
            text = orjson.dumps(rows, option=orjson.OPT_SERIALIZE_NUMPY)
            source = np.frombuffer(text, np.uint8)
            used = library.json_members(address(source), len(text), len(rows), columns, *places)
    return ByteColumn(out[: bounds[-1]], bounds[:-1], bounds[1:])


def _join_members(row: bytes, names: Sequence[bytes]) -> bytes:
    return b"".join(name + number for name, number in zip(names, row.split(b","), strict=True))


def avro_integers(matrix: NDArray[Any]) -> ByteColumn:
    """Encode each row of a (B, n) matrix of integers that fit into an int64 as n Avro integers. Return one text per row."""
    count, columns = matrix.shape
    library = native_library().library
    if library is None:
        return column_of([b"".join(encode_varint(_zigzag(number)) for number in row) for row in matrix.tolist()])
    out = np.empty(LONGEST_VARINT * matrix.size + 1, np.uint8)
    bounds = np.zeros(count + 1, np.int64)
    rows = max(1, NUMBERS // max(1, columns))
    for first in range(0, count, rows):
        numbers = np.ascontiguousarray(matrix[first : first + rows], np.int64)
        used = int(bounds[first])
        ends = bounds[first + 1 : first + 1 + len(numbers)]
        library.avro_integers(address(numbers), len(numbers), columns, address(out) + used, address(ends))
        ends += used
    return ByteColumn(out[: bounds[-1]], bounds[:-1], bounds[1:])


def _zigzag(number: int) -> int:
    return number << 1 if number >= 0 else (-number << 1) - 1


def column_of(texts: Sequence[bytes]) -> ByteColumn:
    """Return a column with these texts."""
    bounds = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(text) for text in texts], out=bounds[1:])
    return ByteColumn(np.frombuffer(b"".join(texts) or b"\0", np.uint8), bounds[:-1], bounds[1:])
