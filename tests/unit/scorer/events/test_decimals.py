"""Decimals as Debezium writes them, in JSON: numbers, or a message that names its setting."""

import base64
import json
import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scorer.events import decimals
from scorer.events.decoder import Reason
from scorer.events.json.objects import IdField, JsonDecoder
from tests.unit.scorer.events.formats import signature_of

SIGNATURE = signature_of(("x", "float64", ["a"]), ("n", "int64", [{"name": "n", "default": 0}]))


def unscaled(number: int) -> bytes:
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


@given(st.integers(-(10**40), 10**40), st.integers(-30, 60))
def test_a_decimal_is_the_nearest_number(whole: int, scale: int) -> None:
    exact = Decimal(whole).scaleb(-scale) if scale < 0 else Decimal(f"{whole}e{-scale}")
    found = decimals.number(unscaled(whole), scale)
    assert float(found) == float(exact)
    assert isinstance(found, int) == (exact == exact.to_integral_value())


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
    assert [IdField("id").of(text) for text in texts] == ["e", 41, "f"]


@pytest.mark.parametrize("value", ["12.50", "-3", "1e3", "BNI=", "AQ=="])
def test_a_decimal_as_text_names_debeziums_setting(value: str) -> None:
    decoded = JsonDecoder(SIGNATURE, "id", 1_000).decode([json.dumps({"a": value}).encode()])
    assert decoded.rejected[0].reason is Reason.WRONG_TYPE
    assert str(decoded.rejected[0]) == (
        "field 'a': Expected `float`, got `str`; write a number, not text "
        "(Debezium writes decimals as numbers with decimal.handling.mode=double)"
    )


@pytest.mark.parametrize("value", ["n/a", "", {"scale": 2, "value": "?"}, {"scale": True, "value": "AQ=="}, {"scale": 2}])
def test_other_texts_and_objects_do_not(value: Any) -> None:
    decoded = JsonDecoder(SIGNATURE, "id", 1_000).decode([json.dumps({"a": value}).encode()])
    assert decoded.rejected[0].reason is Reason.WRONG_TYPE
    assert "Debezium" not in str(decoded.rejected[0])
