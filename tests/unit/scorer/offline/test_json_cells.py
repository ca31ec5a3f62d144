from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from model_registry.package.signature import InputField
from publisher.errors import Fatal
from scorer.offline.json_cells import NULL, cell_json, column_json

MOMENT = datetime(2025, 3, 1, 12, 30, 1, 500, UTC)
COLUMNS: dict[str, tuple[Any, list[str]]] = {
    "float32": (pa.array([0.1, None, 1e10], pa.float32()), ["0.1", "null", "10000000000.0"]),
    "float64": (pa.array([0.1, -0.0, None]), ["0.1", "-0.0", "null"]),
    "not finite": (pa.array([float("nan"), float("inf"), float("-inf")]), ["NaN", "Infinity", "-Infinity"]),
    "int64": (pa.array([2**63 - 1, None]), ["9223372036854775807", "null"]),
    "uint64": (pa.array([2**64 - 1], pa.uint64()), ["18446744073709551615"]),
    "decimal": (pa.array([Decimal("12.50"), None, Decimal("-0.01")]), ["12.50", "null", "-0.01"]),
    "wide decimal": (pa.array([Decimal("1e30")], pa.decimal128(38, 0)), ["1" + "0" * 30]),
    "string": (pa.array(['a"b', None, "é"]), [r'"a\"b"', "null", '"é"']),
    "dictionary": (pa.array(["x", None, "x"]).dictionary_encode(), ['"x"', "null", '"x"']),
    "bool": (pa.array([True, None, False]), ["true", "null", "false"]),
    "binary": (pa.array([b"\x00\xff", None]), ['"AP8="', "null"]),
    "timestamp": (pa.array([MOMENT, None], pa.timestamp("us", "Europe/Berlin")), ['"2025-03-01T12:30:01.000500Z"', "null"]),
    "local time": (pa.array([MOMENT.replace(tzinfo=None)], pa.timestamp("s")), ['"2025-03-01T12:30:01"']),
    "date": (pa.array([date(2025, 3, 1), None]), ['"2025-03-01"', "null"]),
    "list": (pa.array([[1.5, None], None, [], [2.0]]), ["[1.5,null]", "null", "[]", "[2.0]"]),
    "fixed list": (pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int32(), 2)), ["[1,2]", "null", "[3,4]"]),
    "struct": (
        pa.array([{"a": 1, "b": [1]}, None, {"a": None, "b": None}]),
        ['{"a":1,"b":[1]}', "null", '{"a":null,"b":null}'],
    ),
    "map": (pa.array([[("k", 1), ("l", None)], None, []], pa.map_(pa.string(), pa.int8())), ['{"k":1,"l":null}', "null", "{}"]),
    "null": (pa.nulls(2), ["null", "null"]),
    "empty": (pa.array([], pa.float64()), []),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_values_of_each_type_keep_their_exact_text(kind: str) -> None:
    array, texts = COLUMNS[kind]
    assert [text.decode() for text in column_json("c", array)] == texts
    assert column_json("c", array.slice(1)) == column_json("c", array)[1:]


def test_each_float32_is_read_back_from_its_text() -> None:
    numbers = np.random.default_rng(0).integers(0, 2**31 - 2**24, 10_000, np.int32).view(np.float32)
    numbers = numbers[np.isfinite(numbers)]
    texts = column_json("c", pa.array(numbers))
    assert (np.array([float(text) for text in texts]).astype(np.float32) == numbers).all()


def test_valid_json_has_null_in_place_of_numbers_that_are_not_finite() -> None:
    assert column_json("c", COLUMNS["not finite"][0], nan=NULL) == [NULL] * 3


def test_a_type_without_a_json_form_is_named() -> None:
    with pytest.raises(Fatal, match=r"the column 'waited\.for' has the type duration\[s\]"):
        column_json("waited", pa.array([{"for": 1}], pa.struct([("for", pa.duration("s"))])))


NUMBER, TEXT, FLAG = (InputField("f", dtype) for dtype in ("float32", "string", "bool"))


@pytest.mark.parametrize(
    ("cell", "field", "text"),
    [
        ("12.50", NUMBER, "12.50"),
        ("-1e-3", NUMBER, "-1e-3"),
        ("", NUMBER, "null"),
        ("NaN", NUMBER, "NaN"),
        ("-inf", NUMBER, "-Infinity"),
        ("007", NUMBER, '"007"'),
        ("1,2", NUMBER, '"1,2"'),
        ('1,"b":2', NUMBER, r'"1,\"b\":2"'),
        ("1", TEXT, '"1"'),
        ("", TEXT, "null"),
        ("True", FLAG, "true"),
        ("1", FLAG, "1"),
        ("yes", FLAG, '"yes"'),
        ("[1, 2]", InputField("f", "float32", array=2), "[1, 2]"),
        ("[1, 2", InputField("f", "float32", array=2), '"[1, 2"'),
        ("AP8=", InputField("f", "uint8", array=2, raw=True), '"AP8="'),
        ('{"c": 1}', None, '{"c": 1}'),
        ("17", None, '"17"'),
    ],
)
def test_a_cell_is_the_json_that_its_field_needs(cell: str, field: InputField | None, text: str) -> None:
    assert cell_json(cell, field).decode() == text


def test_bytes_that_are_not_utf8_reach_the_decoder() -> None:
    assert cell_json(b"\xff".decode("utf-8", "surrogateescape"), TEXT) == b'"\xff"'
