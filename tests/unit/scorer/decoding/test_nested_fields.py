"""Arrays of a shape, flat and nested, in every format: valid arrays, and the errors of invalid ones."""

import io
import json
import warnings
from typing import Any

import fastavro
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_registry.package.signature import Signature
from model_registry.package.signature_schema import parse_signature
from scorer.dead_letters.reasons import Poison, Reason
from scorer.decoding.json.arrays import JsonArrayDecoder, JsonEnvelopeDecoder
from scorer.decoding.json.decoder import JsonDecoder
from scorer.decoding.schema_formats.decoder import SchemaDecoder
from scorer.decoding.schema_formats.schema_source import SchemaFileSource
from scorer.decoding.types import Decoded, Decoder
from scorer.schema_export import generate
from tests.unit.scorer.decoding.schema_events import settings_of

LARGEST = 1 << 20


def signature(dtype: str = "float32", shape: tuple[int, ...] = (2, 3), **field: Any) -> Signature:
    tensor = {"tensor": "x", "dtype": dtype, "shape": shape, "fields": [{"name": "v", "array": True} | field]}
    return parse_signature(json.dumps({"inputs": [tensor], "output": {"tensor": "y"}}))


def decoded(event: Any, input_signature: Signature) -> Decoded:
    text = event if isinstance(event, str) else json.dumps({"v": event})
    return JsonDecoder(input_signature, None, LARGEST).decode([text.encode()])


def poison(event: Any, input_signature: Signature) -> Poison:
    (error,) = decoded(event, input_signature).rejected.values()
    return error


EXPECTED_SHAPE = "(shape [2, 3], nested or flat)"


@pytest.mark.parametrize(
    ("value", "reason", "message"),
    [
        ([[1, 2, 3], [4, 5]], Reason.WRONG_TYPE, f"field 'v'[1]: an array of 3 was expected, not of 2 {EXPECTED_SHAPE}"),
        ([[1, 2, 3]], Reason.WRONG_TYPE, f"field 'v': an array of 2 was expected, not of 1 {EXPECTED_SHAPE}"),
        ([[1, 2, 3], [4, 5, 6], [7, 8, 9]], Reason.WRONG_TYPE, "field 'v': an array of 2 was expected, not of 3"),
        ([[1, 2, 3], [4, 5, [6]]], Reason.WRONG_TYPE, "field 'v'[1][2]: one value was expected, not an array"),
        ([[1, 2, 3], [4, {}, 6]], Reason.WRONG_TYPE, "field 'v'[1][1]: one value was expected, not an object"),
        ([[1, 2, 3], 4], Reason.WRONG_TYPE, "field 'v'[1]: an array of 3 was expected, not 4"),
        ([[1, 2, 3], [4, "5", 6]], Reason.WRONG_TYPE, "field 'v'[1][1]: '5' is not a finite float32"),
        ([[1, 2, 3], [4, True, 6]], Reason.WRONG_TYPE, "field 'v'[1][1]: True is not a finite float32"),
        ([[1, 2, 3], [4, None, 6]], Reason.WRONG_TYPE, "field 'v'[1][1]: None is not a finite float32"),
        ([1, 2, 3, 4, 5], Reason.WRONG_TYPE, f"field 'v': an array of 6 was expected, not of 5 {EXPECTED_SHAPE}"),
        ([1, 2, 3, 4, 5, 6, 7], Reason.WRONG_TYPE, "field 'v': an array of 6 was expected, not of 7"),
        ([1, 2, 3, 4, 5, [6]], Reason.WRONG_TYPE, "field 'v'[5]: one value was expected, not an array"),
        ([], Reason.WRONG_TYPE, "field 'v': an array of 6 was expected, not of 0"),
        ([[], []], Reason.WRONG_TYPE, "field 'v'[0]: an array of 3 was expected, not of 0"),
        ([[10**400, 2, 3], [4, 5, 6]], Reason.OUT_OF_RANGE, "field 'v'[0][0]: the whole number is beyond float32"),
        ([[1e39, 2, 3], [4, 5, 6]], Reason.NOT_FINITE, "field 'v'[0][0]: a number is not finite in float32"),
        ([[1, 2, 3], [4, float("nan"), 6]], Reason.NOT_FINITE, "field 'v'[1][1] is nan; JSON has no NaN and no Infinity"),
        ("words", Reason.WRONG_TYPE, "field 'v': Expected `array`, got `str`"),
        (3, Reason.WRONG_TYPE, "field 'v': Expected `array`, got `int`"),
        (None, Reason.MISSING_FIELD, "required field 'v' is missing or null"),
    ],
)
def test_an_invalid_array_is_named_with_its_place(value: Any, reason: Reason, message: str) -> None:
    error = poison(json.dumps({"v": value}), signature())
    assert error.reason == reason
    assert message in str(error)


@pytest.mark.parametrize(
    ("dtype", "value", "reason", "message"),
    [
        ("uint8", [[1, 2, 3], [4, 256, 6]], Reason.OUT_OF_RANGE, "field 'v'[1][1]: 256 is not a valid uint8 (0 to 255)"),
        ("uint8", [1, -2, 3, 4, 5, 6], Reason.OUT_OF_RANGE, "field 'v'[1]: -2 is not a valid uint8"),
        ("uint8", [[1, 2, 3], [4, 1.5, 6]], Reason.WRONG_TYPE, "field 'v'[1][1]: 1.5 is not a valid uint8"),
        (
            "int64",
            [[1, 2, 3], [4, 1 << 63, 6]],
            Reason.OUT_OF_RANGE,
            "field 'v'[1][1]: 9223372036854775808 is not a valid int64",
        ),
        ("bool", [[True, False, 1], [True, True, True]], Reason.WRONG_TYPE, "field 'v'[0][2]: 1 is not a bool"),
        ("string", [["a", "b", 3], ["d", "e", "f"]], Reason.WRONG_TYPE, "field 'v'[0][2]: 3 is not a string"),
    ],
)
def test_an_invalid_element_is_named_with_its_place(dtype: str, value: Any, reason: Reason, message: str) -> None:
    error = poison(value, signature(dtype))
    assert (error.reason, message in str(error)) == (reason, True), str(error)


def test_an_invalid_array_affects_no_other() -> None:
    valid_arrays = [[[1, 2, 3], [4, 5, 6]], [1, 2, 3, 4, 5, 6]]
    values = [
        json.dumps({"v": element}).encode() for element in (valid_arrays[0], [[1]], valid_arrays[1], [1], valid_arrays[0])
    ]
    decoded_batch = JsonDecoder(signature(), None, LARGEST).decode(values)
    assert decoded_batch.rows == [0, 2, 4]
    assert decoded_batch.tensors["x"].tolist() == [[1, 2, 3, 4, 5, 6]] * 3
    assert sorted(decoded_batch.rejected) == [1, 3]


def test_the_error_of_a_large_or_deep_array_is_short() -> None:
    for value in ([["x" * 100_000] * 3] * 2, [[[[[0] * 10_000] * 3]]], {"a": [0] * 10_000}):
        assert len(str(poison(value, signature()))) < 400
    for depth in (500, 20_000):
        text = '{"v": ' + "[" * depth + "]" * depth + "}"
        assert poison(text, signature()).reason in (Reason.WRONG_TYPE, Reason.MALFORMED)


@given(
    st.lists(
        st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=3, max_size=3), min_size=2, max_size=2
    )
)
def test_nested_and_flat_arrays_are_equal(value: list[list[float]]) -> None:
    flat = [element for row in value for element in row]
    tensors = [decoded(element, signature()).tensors["x"] for element in (value, flat)]
    assert tensors[0].tolist() == tensors[1].tolist() == [flat]


def test_a_default_fills_the_array() -> None:
    for default, filled in ((0.5, 0.5), ("nan", np.nan)):
        input_signature = signature(required=False, default=default)
        values = [b"{}", b'{"v": null}', b'{"v": [[1,2,3],[4,5,6]]}']
        decoded_batch = JsonDecoder(input_signature, None, LARGEST).decode(values)
        np.testing.assert_array_equal(decoded_batch.tensors["x"], [[filled] * 6, [filled] * 6, [1, 2, 3, 4, 5, 6]])


def test_an_array_may_be_flat_beside_nested_ones() -> None:
    input_signature = signature(shape=(8, 8))
    x = np.arange(64, dtype=np.float64)
    values = [json.dumps({"v": element}).encode() for element in (x.tolist(), x.reshape(8, 8).tolist())]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert JsonDecoder(input_signature, None, LARGEST).decode(values).tensors["x"].tolist() == [x.tolist()] * 2


ARRAYS: list[Decoder] = [JsonArrayDecoder(signature(), LARGEST), JsonEnvelopeDecoder(signature(), "id", LARGEST)]


@pytest.mark.parametrize("decoder", ARRAYS, ids=["json-array", "json-envelope"])
def test_invalid_arrays_without_names(decoder: Decoder) -> None:
    events: list[Any] = [[[1, 2, 3], [4, 5, 6]], [1, 2, 3, 4, 5, 6], [[1, 2, 3], [4, 5]]]
    wrapped = [{"id": "a", "features": element} for element in events] if isinstance(decoder, JsonEnvelopeDecoder) else events
    decoded_batch = decoder.decode([json.dumps(element).encode() for element in wrapped])
    assert decoded_batch.tensors["x"].tolist() == [[1, 2, 3, 4, 5, 6]] * 2
    assert {at: (element.reason, str(element)) for at, element in decoded_batch.rejected.items()} == {
        2: (Reason.WRONG_TYPE, f"field 'v'[1]: an array of 3 was expected, not of 2 {EXPECTED_SHAPE}")
    }


def test_an_array_of_a_shape_beside_other_fields() -> None:
    inputs = [
        {"tensor": "x", "dtype": "float32", "shape": [1, 2], "fields": [{"name": "v", "array": True}]},
        {"tensor": "n", "dtype": "int64", "shape": [], "fields": ["n"]},
        {"tensor": "k", "dtype": "int64", "value": 3},
    ]
    input_signature = parse_signature(json.dumps({"inputs": inputs, "output": {"tensor": "y"}}))
    decoded_batch = JsonArrayDecoder(input_signature, LARGEST).decode([b"[[[1, 2]], 7]", b"[[3, 4], 8]", b"[[[5, 6], 7]"])
    assert {name: element.tolist() for name, element in decoded_batch.tensors.items()} == {
        "x": [[1, 2], [3, 4]],
        "n": [[7], [8]],
    }
    assert [element.reason for element in decoded_batch.rejected.values()] == [Reason.MALFORMED]


def avro(type_: Any, *events: Any) -> Decoded:
    """Decode records whose field v has this type."""
    schema = {"type": "record", "name": "E", "fields": [{"name": "v", "type": type_}]}
    values = []
    for event in events:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), {"v": event})
        values.append(stream.getvalue())
    source = SchemaFileSource("avro", "e.avsc", json.dumps(schema).encode(), None)
    settings = settings_of("avro").model_copy(deep=True)
    decoder = SchemaDecoder(
        signature(), settings.model_copy(update={"input": settings.input.model_copy(update={"id": "h:x"})}), source
    )
    return decoder.decode(values)


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def test_avro_arrays_may_be_nested() -> None:
    nested, flat = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert avro(array(array("float")), nested, nested).tensors["x"].tolist() == [flat] * 2
    assert avro(array("float"), flat, flat).tensors["x"].tolist() == [flat] * 2
    decoded_batch = avro(array(array("float")), nested, [[1.0, 2.0, 3.0], [4.0]])
    assert decoded_batch.rows == [0]
    assert str(decoded_batch.rejected[1]) == f"field 'v'[1]: an array of 3 was expected, not of 1 {EXPECTED_SHAPE}"


def test_schemas_for_producers_have_both_forms() -> None:
    alternatives = json.loads(generate.json_schema(signature(), "m", None))["properties"]["v"]["anyOf"]
    assert [(element["minItems"], element["items"].get("maxItems")) for element in alternatives] == [(6, None), (2, 3)]
    optional = json.loads(generate.json_schema(signature(required=False, default=0), "m", None))["properties"]["v"]["anyOf"]
    assert optional[2] == {"type": "null"}
    (field,) = json.loads(generate.avro(signature(), "m", None))["fields"]
    assert field["type"] == array("float")
    assert "repeated float v = 1;" in generate.protobuf(signature(), "m", None)
