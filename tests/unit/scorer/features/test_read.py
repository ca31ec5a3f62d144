"""Decoding of feature records in JSON and Avro, and their conversion to the tensors of a signature."""

import json
import math
from decimal import Decimal
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from fastavro import parse_schema, schemaless_writer
from msgspec import structs

from model_registry.package.signature import InputField, Output, Signature, TensorInput
from scorer.dead_letters.reasons import Reason
from scorer.features.read import (
    AvroFeatureReader,
    FeatureDecoder,
    FeatureLogDecoder,
    FeatureRecord,
    FeatureSource,
    UnreadableFeatures,
    decode_json,
)

HEAD = {
    "id": "e-17",
    "source": {"topic": "flights", "partition": 3, "offset": 17},
    "event_ms": 1_700_000_000_000,
    "scored_ms": 1_700_000_000_020,
    "model": "models/flights",
    "version": "v3",
    "digest": "sha256:" + "a" * 64,
    "role": "canary",
    "revision": 9,
}


def json_value(inputs: str, **changes: Any) -> bytes:
    head = json.dumps(HEAD | changes)
    return f'{head[:-1]}, "inputs": {inputs}}}'.encode()


def signature(*tensors: TensorInput) -> Signature:
    return Signature(tensors, (Output(None, "score"),))


def scalars(dtype: str, *names: str, **properties: Any) -> Signature:
    return signature(TensorInput("x", dtype, tuple(InputField(name, dtype, **properties) for name in names)))


def array(dtype: str, shape: tuple[int, ...], length: int, **properties: Any) -> Signature:
    field = InputField("a", dtype, array=length, shape=shape, **properties)
    return signature(TensorInput("x", dtype, (field,), shape))


def tensor(input_signature: Signature, *inputs: str) -> np.ndarray:
    decoded = FeatureDecoder(input_signature).convert([decode_json(json_value(text)) for text in inputs])
    assert decoded.rejected == {}
    return decoded.tensors["x"]


def rejection(input_signature: Signature, inputs: str) -> str:
    decoded = FeatureDecoder(input_signature).convert([decode_json(json_value(inputs))])
    assert decoded.rows == []
    return str(decoded.rejected[0])


def test_a_json_record_has_position_version_and_inputs() -> None:
    record = decode_json(json_value('{"n": 1.5, "s": "x"}'))
    assert record.position == ("flights", 3, 17)
    assert (record.id, record.version, record.digest, record.role, record.revision) == (
        "e-17",
        "v3",
        HEAD["digest"],
        "canary",
        9,
    )
    assert (record.event_ms, record.scored_ms, record.model) == (1_700_000_000_000, 1_700_000_000_020, "models/flights")
    assert record.inputs == {"n": 1.5, "s": "x"}


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"{}",
        b"[]",
        json_value("[1]"),
        json_value("{}", source={"topic": "t", "partition": 0, "offset": -1}),
        json_value("{}", event_ms=-5),
        json_value('{"a": 99999999999999999999999}'),
    ],
)
def test_other_bytes_are_no_json_record(value: bytes | None) -> None:
    with pytest.raises(UnreadableFeatures, match="not a feature record"):
        decode_json(value)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_shortest_text_of_a_float_gives_the_same_bits(dtype: str) -> None:
    random_floats = np.random.default_rng(7).integers(0, 256, (20_000, np.dtype(dtype).itemsize), np.uint8).view(dtype)[:, 0]
    limits = np.finfo(dtype)
    edges = [0.0, -0.0, limits.max, limits.min, limits.tiny, limits.smallest_subnormal, -limits.smallest_subnormal]
    floats = np.concatenate([random_floats[np.isfinite(random_floats)], np.array(edges, dtype)])
    values = tensor(scalars(dtype, "n"), *(f'{{"n": {number!s}}}' for number in floats))
    assert values.dtype == dtype
    assert values.tobytes() == floats.tobytes()


def test_a_text_halfway_between_two_float32_in_float64_is_rounded_once() -> None:
    halfway = np.float32(7.038531e-26)
    exact = np.nextafter(halfway, np.float32(0))
    assert np.format_float_scientific(exact, unique=True) == "7.038531e-26"
    assert tensor(scalars("float32", "n"), '{"n": 7.038531e-26}')[0, 0] == exact
    assert tensor(scalars("float32", "n"), '{"n": -7.038531e-26}')[0, 0] == -exact
    assert tensor(array("float32", (2,), 2), '{"a": [1, 7.038531e-26]}').tolist() == [[1.0, float(exact)]]


def test_the_exact_text_of_an_array_is_parsed_once() -> None:
    parsed: list[str] = []

    class CountingRecord(FeatureRecord, frozen=True):
        def exact_input(self, name: str) -> Any:
            parsed.append(name)
            return super().exact_input(name)

    record = decode_json(json_value('{"a": [7.038531e-26, 7.038531e-26]}'))
    counted = CountingRecord(**structs.asdict(record))
    FeatureDecoder(array("float32", (2,), 2)).convert([counted])
    assert parsed == ["a"]


def test_a_number_beyond_the_range_of_decimal_does_not_affect_other_inputs() -> None:
    inputs = '{"n": 7.038531e-26, "other": 1e-99999999999999999999}'
    assert tensor(scalars("float32", "n"), inputs).tolist() == tensor(scalars("float32", "n"), '{"n": 7.038531e-26}').tolist()


def test_a_negative_zero_without_a_fraction_keeps_its_sign() -> None:
    assert math.copysign(1, tensor(scalars("float32", "n"), '{"n": -0}')[0, 0]) == -1


def test_null_is_nan_with_the_bits_of_numpy() -> None:
    nullable = scalars("float32", "n", required=False, default=math.nan)
    assert tensor(nullable, '{"n": null}', '{"n": 2}').tobytes() == np.array([np.nan, 2], np.float32).tobytes()


@pytest.mark.parametrize(
    ("dtype", "texts", "expected"),
    [
        ("int8", ["-128", "127"], [-128, 127]),
        ("int64", ["-9223372036854775808", "9223372036854775807"], [-(2**63), 2**63 - 1]),
        ("uint64", ["0", "18446744073709551615"], [0, 2**64 - 1]),
        ("uint64", ['"18446744073709551615"'], [2**64 - 1]),
        ("bool", ["true", "false"], [True, False]),
    ],
)
def test_integers_and_booleans_are_exact(dtype: str, texts: list[str], expected: list[Any]) -> None:
    values = tensor(scalars(dtype, "n"), *(f'{{"n": {text}}}' for text in texts))
    assert values.dtype == dtype
    assert values[:, 0].tolist() == expected


def test_strings_are_object_arrays() -> None:
    values = tensor(scalars("string", "n", "m"), '{"m": "\\u00e9", "n": "nan"}')
    assert values.dtype == object
    assert values.tolist() == [["nan", "é"]]


def test_fields_of_a_tensor_are_columns_in_the_order_of_the_signature() -> None:
    values = tensor(scalars("float32", "b", "a"), '{"a": 1, "b": 2}', '{"b": 4, "a": 3}')
    assert values.tolist() == [[2.0, 1.0], [4.0, 3.0]]
    assert values.flags.c_contiguous


def test_an_array_is_flat_as_in_the_decoder_of_events() -> None:
    assert tensor(array("int32", (2, 2), 4), '{"a": [1, 2, 3, 4]}', '{"a": [5, 6, 7, 8]}').shape == (2, 4)


def test_an_array_of_varying_length_has_the_shape_of_its_field() -> None:
    values = tensor(array("float32", (-1, 2), 8), '{"a": [1, 2, 3, 4]}', '{"a": []}')
    assert values.dtype == object
    assert [row.shape for row in values] == [(2, 2), (0, 2)]
    assert values[0].dtype == np.float32


def test_bytes_are_arrays_of_their_elements() -> None:
    assert tensor(array("uint8", (3,), 3, raw=True), '{"a": [0, 128, 255]}').tolist() == [[0, 128, 255]]
    assert tensor(scalars("float32", "n", raw=True), '{"n": [2.5]}').tolist() == [[2.5]]


@pytest.mark.parametrize(
    ("input_signature", "inputs", "message"),
    [
        (scalars("float32", "n", "m"), "{}", "the feature record of v3 has no input 'n', 'm'"),
        (scalars("float32", "n", required=False, default=7.0), "{}", "has no input 'n'"),
        (scalars("float32", "n"), '{"n": null}', "field 'n': the value is NaN"),
        (scalars("float32", "n"), '{"n": 1e39}', "1e+39 is not a finite float32"),
        (scalars("float32", "n"), '{"n": true}', "True is not a float32"),
        (scalars("float32", "n"), '{"n": "2"}', "'2' is not a float32"),
        (scalars("int32", "n"), '{"n": 7.5}', "7.5 is not a valid int32"),
        (scalars("int32", "n"), '{"n": null}', "None is not a valid int32"),
        (scalars("string", "n"), '{"n": 7}', "7 is not a string"),
        (array("int32", (2,), 2), '{"a": [1]}', "an array of 2 was expected, not of 1"),
        (array("int32", (2,), 2), '{"a": 1}', "an array was expected, not 1"),
        (array("int32", (-1, 2), 4), '{"a": [1]}', "1 elements do not fit the shape [-1, 2]"),
        (array("float32", (-1,), 1), '{"a": [1, 2]}', "2 elements do not fit the shape [-1]"),
        (scalars("int32", "n"), '{"n": "5"}', "'5' is not a valid int32"),
        (scalars("uint64", "n"), f'{{"n": "{"9" * 5_000}"}}', "field 'n': '9999"),
        (scalars("float32", "n"), '{"n": []}', "one value was expected, not an array of 0"),
        (scalars("string", "n"), '{"n": ["a", "b"]}', "one value was expected, not an array of 2"),
        (array("int32", (2,), 2), '{"a": ["1", "2"]}', "'1' is not a valid int32"),
    ],
)
def test_a_record_that_does_not_fit_the_signature_is_rejected_with_the_reason(
    input_signature: Signature, inputs: str, message: str
) -> None:
    assert message in rejection(input_signature, inputs)


def test_a_rejected_record_does_not_affect_the_others() -> None:
    records = [decode_json(json_value(text)) for text in ('{"n": 1}', '{"n": "x"}', "{}", '{"n": 4}')]
    decoded = FeatureDecoder(scalars("float32", "n")).convert(records)
    assert decoded.rows == [0, 3]
    assert decoded.ids == ["e-17", "e-17"]
    assert decoded.tensors["x"].tolist() == [[1.0], [4.0]]
    assert sorted(decoded.rejected) == [1, 2]


def test_no_record_gives_empty_tensors() -> None:
    decoded = FeatureDecoder(signature(*scalars("float32", "n").inputs)).convert([])
    assert decoded.tensors["x"].shape == (0, 1)


def test_the_decoder_of_a_log_rejects_other_values_as_malformed() -> None:
    decoder = FeatureLogDecoder(scalars("float32", "n"), decode_json)
    decoded = decoder.decode([b"?", json_value('{"n": 3}'), json_value("{}")], None)
    assert decoded.rows == [1]
    assert {row: poison.reason for row, poison in decoded.rejected.items()} == {
        0: Reason.MALFORMED,
        2: Reason.MISSING_FIELD,
    }


AVRO_INPUTS = [
    {"name": "customers_age", "type": "float", "default": 0.0, "field": "customers.age"},
    {"name": "customers_age_2", "type": "double", "default": 0.0, "field": "customers-age"},
    {"name": "n", "type": "long", "default": 0},
    {"name": "u", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20}, "default": ""},
    {"name": "a", "type": {"type": "array", "items": "float"}, "default": []},
]
AVRO_SCHEMA = {
    "type": "record",
    "name": "Features",
    "fields": [
        {"name": "id", "type": "string"},
        {
            "name": "source",
            "type": {
                "type": "record",
                "name": "Source",
                "fields": [
                    {"name": "topic", "type": "string"},
                    {"name": "partition", "type": "int"},
                    {"name": "offset", "type": "long"},
                ],
            },
        },
        *({"name": name, "type": "long"} for name in ("event_ms", "scored_ms")),
        *({"name": name, "type": "string"} for name in ("model", "version", "digest", "role")),
        {"name": "revision", "type": "long"},
        {"name": "inputs", "type": {"type": "record", "name": "Inputs", "fields": AVRO_INPUTS}},
    ],
}


def avro_value(inputs: dict[str, Any]) -> bytes:
    stream = BytesIO()
    schemaless_writer(stream, parse_schema(AVRO_SCHEMA), {**HEAD, "inputs": inputs})
    return b"\0\0\0\0\7" + stream.getvalue()


def read_avro(value: bytes | None) -> FeatureRecord:
    return AvroFeatureReader({7: json.dumps(AVRO_SCHEMA)}.__getitem__)(value)


def test_an_avro_record_has_the_names_of_the_fields_and_exact_values() -> None:
    third = float(np.float32(1) / np.float32(3))
    inputs = {"customers_age": third, "customers_age_2": 0.1, "n": 2**62 + 1, "u": Decimal(2**64 - 1), "a": [1.0, math.nan]}
    record = read_avro(avro_value(inputs))
    assert record.source == FeatureSource("flights", 3, 17)
    assert (record.role, record.revision, record.version) == ("canary", 9, "v3")
    assert dict(record.inputs, a=None) == {
        "customers.age": third,
        "customers-age": 0.1,
        "n": 2**62 + 1,
        "u": 2**64 - 1,
        "a": None,
    }
    input_signature = signature(
        TensorInput("x", "float32", (InputField("customers.age", "float32"),)),
        TensorInput("u", "uint64", (InputField("u", "uint64"),)),
        TensorInput("a", "float32", (InputField("a", "float32", False, math.nan, array=2),)),
    )
    tensors = FeatureDecoder(input_signature).convert([record]).tensors
    assert tensors["x"].tobytes() == np.array([third], np.float32).tobytes()
    assert tensors["u"].tolist() == [[2**64 - 1]]
    assert tensors["a"].tobytes() == np.array([1, np.nan], np.float32).tobytes()


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"{}",
        b"\0\0\0\0\7",
        b"\0\0\0\0\7\2e",
        avro_value({"customers_age": 0, "customers_age_2": 0, "n": 0, "u": Decimal(0), "a": []}) + b"x",
    ],
)
def test_other_bytes_are_no_avro_record(value: bytes | None) -> None:
    with pytest.raises(UnreadableFeatures, match="not a feature record in Avro"):
        read_avro(value)


def test_another_schema_is_no_schema_of_feature_records() -> None:
    with pytest.raises(UnreadableFeatures, match="not the Avro schema of feature records"):
        AvroFeatureReader(lambda _: '"string"')(b"\0\0\0\0\1x")
