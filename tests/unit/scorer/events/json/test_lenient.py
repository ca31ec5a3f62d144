"""What is no JSON for msgspec, in a field that the model does not read: it spoils neither the event nor its id."""

import json
from typing import Any

import pytest

from model_registry.package.paths import parse
from model_registry.package.signature import Signature
from scorer.events.decoder import Decoded, Reason
from scorer.events.json.arrays import JsonEnvelopeDecoder
from scorer.events.json.carried import JsonCarried
from scorer.events.json.objects import IdField, JsonDecoder
from scorer.settings.carry import CarriedField
from tests.unit.scorer.events.formats import signature_of

WORDS = signature_of(("x", "float32", ["a"]), ("s", "string", [{"name": "word", "default": "-"}]))
HALF = '"\\ud800"'
ODD = [HALF, '"a\\udc00b"', "NaN", "[" * 1_000 + "]" * 1_000, f'{{"deep": [{HALF}]}}', f"{{{HALF}: 1}}"]


def decode(text: str) -> Decoded:
    good = '{"id": "good", "a": 1}'
    return JsonDecoder(WORDS, "id", 5_000).decode([good.encode(), text.encode()])


@pytest.mark.parametrize("odd", ODD)
def test_a_field_that_is_not_read_does_not_spoil_the_event(odd: str) -> None:
    value = f'{{"id": "odd", "a": 2, "note": {odd}}}'
    decoded = decode(value)
    assert list(decoded.ids) == ["good", "odd"]
    assert decoded.tensors["x"].tolist() == [[1], [2]]
    assert IdField("id").of(value.encode()) == "odd"
    envelope = f'{{"id": "odd", "features": [2], "note": {odd}}}'
    numbers = signature_of(("x", "float32", ["a"]))
    assert JsonEnvelopeDecoder(numbers, "id", 5_000).decode([envelope.encode()]).ids == ["odd"]


@pytest.mark.parametrize(
    ("fields", "name"), [({"id": "odd", "a": 2, "word": "?"}, "'word'"), ({"id": "?", "a": 2, "word": "w"}, "'id'")]
)
def test_half_of_a_surrogate_pair_in_a_field_that_is_read_is_named(fields: dict[str, Any], name: str) -> None:
    decoded = decode(json.dumps(fields).replace('"?"', HALF))
    assert list(decoded.ids) == ["good"]
    assert decoded.rejected[1].reason is Reason.MALFORMED
    assert str(decoded.rejected[1]) == f"field {name}: half of a surrogate pair is no text"


def test_half_of_a_surrogate_pair_is_not_carried() -> None:
    [value] = JsonCarried([parse("note")]).values(f'{{"note": {HALF}}}'.encode())
    assert CarriedField(("note",), "note").fitted(value) is None


def test_no_depth_of_arrays_is_fatal() -> None:
    for depth in (900, 1_100, 200_000):
        decoded = JsonDecoder(WORDS, "id", 1_000_000).decode([f'{{"a": 1, "z": {"[" * depth}{"]" * depth}}}'.encode()])
        assert decoded.rows or decoded.rejected[0].reason is Reason.MALFORMED


@pytest.mark.parametrize("dtype", ["string", "float32", "int64"])
@pytest.mark.parametrize("depth", [200, 900, 1_000, 1_020, 5_000])
@pytest.mark.parametrize("inside", ["", "NaN", HALF])
def test_no_depth_of_a_field_that_is_read_is_fatal(dtype: str, depth: int, inside: str) -> None:
    stated = {"tensor": "x", "dtype": dtype, "shape": [2, 2], "fields": [{"name": "a", "array": True}]}
    signature = Signature.parse(json.dumps({"inputs": [stated], "output": {"tensor": "y"}}))
    value = f'{{"a": {"[" * depth}{inside}{"]" * depth}}}'.encode()
    poison = JsonDecoder(signature, None, 100_000).decode([value]).rejected[0]
    assert poison.reason in (Reason.WRONG_TYPE, Reason.MALFORMED)
