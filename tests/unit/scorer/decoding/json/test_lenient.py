"""Values that msgspec does not accept as JSON, in fields that the model does not read, affect neither the event nor its id."""

import json
from typing import Any

import pytest

from model_registry.package.json_path import parse
from model_registry.package.signature_schema import parse_signature
from scorer.dead_letters.reasons import Reason
from scorer.decoding.json.arrays import JsonEnvelopeDecoder
from scorer.decoding.json.decoder import JsonDecoder, JsonIdReader
from scorer.decoding.json.passthrough import JsonPassthrough
from scorer.decoding.types import Decoded
from scorer.settings.carry import CarriedField
from tests.unit.scorer.decoding.formats import signature_of, texts

WORDS = signature_of(("x", "float32", ["a"]), ("s", "string", [{"name": "word", "default": "-"}]))
HALF = '"\\ud800"'
CONTAINS_HALF = (
    r"field {} contains '\ud800': '\ud800' is half of a surrogate pair and not valid Unicode; "
    "write both halves, and cut text only between characters"
)
ODD = [HALF, '"a\\udc00b"', "NaN", "[" * 1_000 + "]" * 1_000, f'{{"deep": [{HALF}]}}', f"{{{HALF}: 1}}"]


def decode(text: str) -> Decoded:
    valid_event = '{"id": "good", "a": 1}'
    return JsonDecoder(WORDS, "id", 5_000).decode([valid_event.encode(), text.encode()])


@pytest.mark.parametrize("odd", ODD)
def test_a_field_that_is_not_read_does_not_affect_the_event(odd: str) -> None:
    value = f'{{"id": "odd", "a": 2, "note": {odd}}}'
    decoded = decode(value)
    assert list(decoded.ids) == ["good", "odd"]
    assert decoded.tensors["x"].tolist() == [[1], [2]]
    assert JsonIdReader("id").read_id(value.encode()) == "odd"
    envelope = f'{{"id": "odd", "features": [2], "note": {odd}}}'
    numbers = signature_of(("x", "float32", ["a"]))
    assert JsonEnvelopeDecoder(numbers, "id", 5_000).decode([envelope.encode()]).ids == ["odd"]


@pytest.mark.parametrize(
    ("fields", "name"), [({"id": "odd", "a": 2, "word": "?"}, "'word'"), ({"id": "?", "a": 2, "word": "w"}, "'id'")]
)
def test_half_of_a_surrogate_pair_in_a_field_that_is_read_is_named(fields: dict[str, Any], name: str) -> None:
    decoded = decode(json.dumps(fields).replace('"?"', HALF))
    assert list(decoded.ids) == ["good"]
    assert decoded.rejected[1].reason is Reason.NOT_UTF8
    assert str(decoded.rejected[1]) == CONTAINS_HALF.format(name)


def test_half_of_a_surrogate_pair_is_not_carried() -> None:
    [value] = JsonPassthrough([parse("note")]).values(f'{{"note": {HALF}}}'.encode())
    assert CarriedField(("note",), "note").fitted(value) is None


@pytest.mark.parametrize("depth", [300, 400, 900, 1_100, 200_000])
def test_the_depth_of_a_field_that_is_not_read_does_not_affect_the_event(depth: int) -> None:
    for opening, closing in (("[", "]"), ('{"k": ', "}"), ('[{"\\"]": ', "}, 1]")):
        value = f'{{"z": {opening * depth}"]"{closing * depth}, "a": 1, "word": "w", "id": "e"}}'.encode()
        decoded = JsonDecoder(WORDS, "id", 10_000_000).decode([value])
        assert decoded.ids == ["e"]
        assert decoded.tensors["s"].tolist() == [["w"]]


@pytest.mark.parametrize("broken", ["[" * 1_000 + "]" * 999, "[" * 1_000 + "]" * 1_001, "[" * 1_000, "]" * 1_000])
def test_deep_arrays_that_do_not_end_are_malformed(broken: str) -> None:
    assert decode(f'{{"a": 1, "z": {broken}}}').rejected[1].reason is Reason.MALFORMED


DEEP = "[" * 1_000 + "]" * 1_000
LONG = "9" * 5_000


@pytest.mark.parametrize(
    ("fields", "reason", "error"),
    [
        ('"a": 1e999', Reason.OUT_OF_RANGE, "field 'a': the number is beyond the range of a float"),
        (f'"a": -{LONG}', Reason.OUT_OF_RANGE, "field 'a': the number is beyond the range of a float"),
        ('"a": NaN', Reason.NOT_FINITE, "field 'a' is nan"),
        (f'"a": 1, "word": {HALF}', Reason.NOT_UTF8, CONTAINS_HALF.format("'word'")),
    ],
)
def test_errors_beside_deep_arrays_are_named_as_without_them(fields: str, reason: Reason, error: str) -> None:
    for other_value in ("0", DEEP):
        poison = JsonDecoder(WORDS, "id", 20_000).decode([f'{{"z": {other_value}, {fields}}}'.encode()]).rejected[0]
        assert (poison.reason, str(poison).partition("; JSON")[0]) == (reason, error)


@pytest.mark.parametrize("odd", ["1e999", LONG, "NaN", HALF])
def test_two_odd_fields_that_are_not_read_do_not_affect_the_event(odd: str) -> None:
    value = f'{{"id": 123456789012345678901234, "a": 2, "y": {odd}, "z": {DEEP}}}'.encode()
    decoded = JsonDecoder(WORDS, "id", 20_000).decode([value])
    assert decoded.tensors["x"].tolist() == [[2]]
    assert decoded.ids == [123456789012345678901234] == [JsonIdReader("id").read_id(value)]


@pytest.mark.parametrize("count", [1, 20])
def test_a_byte_order_mark_is_ignored_and_other_encodings_are_not_utf8_or_malformed(count: int) -> None:
    text = '{"id": "e", "a": 2}'
    decoder = JsonDecoder(signature_of(("x", "float32", ["a"])), "id", 5_000)
    for values in (batch := [text.encode("utf-8-sig")] * count, texts(batch)):
        assert list(decoder.decode(values).ids) == ["e"] * count
    assert JsonIdReader("id").read_id(text.encode("utf-8-sig")) == "e"
    for encoding in ("utf-16", "utf-16-le", "utf-16-be", "utf-32"):
        decoded = decoder.decode([text.encode(encoding)] * count)
        assert {poison.reason for poison in decoded.rejected.values()} <= {Reason.MALFORMED, Reason.NOT_UTF8}
        assert decoded.rows == []


@pytest.mark.parametrize("dtype", ["string", "float32", "int64"])
@pytest.mark.parametrize("depth", [200, 900, 1_000, 1_020, 5_000])
@pytest.mark.parametrize("inside", ["", "NaN", HALF])
def test_no_depth_of_a_field_that_is_read_is_fatal(dtype: str, depth: int, inside: str) -> None:
    tensor = {"tensor": "x", "dtype": dtype, "shape": [2, 2], "fields": [{"name": "a", "array": True}]}
    signature = parse_signature(json.dumps({"inputs": [tensor], "output": {"tensor": "y"}}))
    value = f'{{"a": {"[" * depth}{inside}{"]" * depth}}}'.encode()
    poison = JsonDecoder(signature, None, 100_000).decode([value]).rejected[0]
    assert poison.reason in (Reason.WRONG_TYPE, Reason.NOT_UTF8)
