"""Decimals as Debezium writes them, in JSON: numbers, or a message that names its setting."""

import base64
import json
import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_registry.package.signature_schema import parse_signature
from scorer.dead_letters.reasons import Reason
from scorer.decoding import decimals
from scorer.decoding.json.decoder import JsonDecoder, JsonIdReader
from tests.unit.scorer.decoding.formats import signature_of

SIGNATURE = signature_of(("x", "float64", ["a"]), ("n", "int64", [{"name": "n", "default": 0}]))


def unscaled(number: int) -> bytes:
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


@given(st.integers(-(10**40), 10**40), st.integers(-30, 60))
def test_a_decimal_is_the_nearest_number(integer: int, scale: int) -> None:
    exact = Decimal(integer).scaleb(-scale) if scale < 0 else Decimal(f"{integer}e{-scale}")
    converted = decimals.number(unscaled(integer), scale)
    assert float(converted) == float(exact)
    assert isinstance(converted, int) == (exact == exact.to_integral_value())


@pytest.mark.parametrize(
    ("data", "scale"), [(b"\1", -400), (b"\x7f" * 200, 0), (b"\x7f" * 9_000, 3), (b"\1", 2**31 - 1), (b"\1", -(2**31))]
)
def test_a_decimal_beyond_all_floats_is_infinite(data: bytes, scale: int) -> None:
    assert decimals.number(data, scale) == math.inf


def test_a_decimal_of_no_bytes_is_zero() -> None:
    assert decimals.number(b"", 2) == 0


def variable(number: int, scale: int) -> dict[str, Any]:
    return {"scale": scale, "value": base64.b64encode(unscaled(number)).decode()}


def test_a_decimal_with_its_scale_is_a_number_in_json() -> None:
    values = [
        {"id": "e", "a": variable(1250, 2), "n": variable(-7, 0)},
        {"id": variable(41, 0), "a": 1},
        {"id": "f", "a": variable(5, 1), "n": variable(5, 1)},
    ]
    texts = [json.dumps(value).encode() for value in values]
    decoded = JsonDecoder(SIGNATURE, "id", 1_000).decode(texts)
    assert decoded.tensors["x"].tolist() == [[12.5], [1]]
    assert decoded.tensors["n"].tolist() == [[-7], [0]]
    assert list(decoded.ids) == ["e", 41]
    assert [poison.reason for poison in decoded.rejected.values()] == [Reason.WRONG_TYPE]
    assert [JsonIdReader("id").read_id(text) for text in texts] == ["e", 41, "f"]


VECTORS = [
    {"name": "v", "array": True, "length": 4},
    {"name": "v", "array": True, "shape": [4]},
    {"name": "v", "array": True, "shape": [2, 2]},
    {"name": "v", "array": True, "shape": [-1], "max_length": 4},
    {"name": "v", "array": True, "shape": [-1, 2], "max_length": 2},
]


def vector_decoder(dtype: str, field: dict[str, Any]) -> JsonDecoder:
    shape = field.get("shape")
    tensor = {"tensor": "v", "dtype": dtype, "fields": [{key: element for key, element in field.items() if key != "shape"}]}
    document = {"inputs": [tensor | ({"shape": shape} if shape else {})], "output": {"tensor": "y"}}
    return JsonDecoder(parse_signature(json.dumps(document)), None, 1_000)


@pytest.mark.parametrize("field", VECTORS, ids=lambda field: str(field.get("shape")))
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_decimals_with_their_scale_are_numbers_in_arrays(dtype: str, field: dict[str, Any]) -> None:
    numbers = [variable(3000, 3), 2, variable(-1, 0), variable(4, 0)]
    nested = [numbers] if len(field.get("shape", [1])) == 1 else [numbers, [numbers[:2], numbers[2:]]]
    decoder = vector_decoder(dtype, field)
    for value in nested:
        decoded = decoder.decode([json.dumps({"v": value}).encode()])
        assert [element for row in decoded.tensors["v"] for element in row.reshape(-1).tolist()] == [3, 2, -1, 4]


@pytest.mark.parametrize("field", VECTORS, ids=lambda field: str(field.get("shape")))
@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize("element", ["12.50", "BNI="])
def test_decimals_as_text_in_arrays_name_debeziums_setting(dtype: str, field: dict[str, Any], element: str) -> None:
    poison = vector_decoder(dtype, field).decode([json.dumps({"v": [1, element, 1, 1]}).encode()]).rejected[0]
    assert poison.reason is Reason.WRONG_TYPE
    assert "[1]" in str(poison)
    assert "decimal.handling.mode=double" in str(poison)


@pytest.mark.parametrize("value", ["12.50", "-3", "1e3", "BNI=", "AQ=="])
def test_a_decimal_as_text_names_debeziums_setting(value: str) -> None:
    decoded = JsonDecoder(SIGNATURE, "id", 1_000).decode([json.dumps({"a": value}).encode()])
    assert decoded.rejected[0].reason is Reason.WRONG_TYPE
    assert str(decoded.rejected[0]) == (
        "field 'a': Expected `float`, got `str`; write a number, not text "
        "(Debezium writes decimals as numbers with decimal.handling.mode=double, Kafka Connect's JSON converter with "
        "decimal.format=NUMERIC)"
    )


@pytest.mark.parametrize("value", ["n/a", "", {"scale": 2, "value": "?"}, {"scale": True, "value": "AQ=="}, {"scale": 2}])
def test_other_texts_and_objects_do_not_name_debeziums_setting(value: Any) -> None:
    decoded = JsonDecoder(SIGNATURE, "id", 1_000).decode([json.dumps({"a": value}).encode()])
    assert decoded.rejected[0].reason is Reason.WRONG_TYPE
    assert "Debezium" not in str(decoded.rejected[0])
