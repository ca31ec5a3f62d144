"""Integers in every format: any spelling of a whole number is accepted, and other numbers are rejected with the field."""

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_registry.onnx_tools import run_golden_examples
from model_registry.package.golden_examples import parse_lines
from model_registry.package.signature import Signature
from model_registry.package.signature_schema import parse_signature
from scorer.dead_letters.reasons import Reason
from scorer.decoding import decoder_factory
from scorer.decoding.json.decoder import JsonDecoder
from scorer.decoding.record_metadata import ListedMetadata
from scorer.decoding.types import Decoder
from scorer.schema_export.generate import GENERATORS
from tests.unit.scorer.decoding.formats import by_path, signature_of
from tests.unit.scorer.decoding.schema_events import avro_encoder, configured, proto_encoder, settings_of

INTEGER_AND_FLOAT = signature_of(("x", "int64", ["a"]), ("y", "float32", ["b"]))
BEYOND = "9" * 400
VALID = [("7", 7), ("7.0", 7), ("1e3", 1_000), ("-0.0", 0), ("-0", 0), ("70e-1", 7), ("9223372036854775807", 2**63 - 1)]
INVALID = [
    ("7.5", Reason.WRONG_TYPE),
    ("1e-3", Reason.WRONG_TYPE),
    ("true", Reason.WRONG_TYPE),
    ('"7"', Reason.WRONG_TYPE),
    ("[7]", Reason.WRONG_TYPE),
    ("9223372036854775808", Reason.OUT_OF_RANGE),
    ("-9223372036854775809", Reason.OUT_OF_RANGE),
    ("1e19", Reason.OUT_OF_RANGE),
    ("1" + "0" * 30, Reason.OUT_OF_RANGE),
    (BEYOND, Reason.OUT_OF_RANGE),
    (BEYOND + ".0", Reason.OUT_OF_RANGE),
    ("1e400", Reason.OUT_OF_RANGE),
    ("NaN", Reason.NOT_FINITE),
    ("-Infinity", Reason.NOT_FINITE),
]
Write = Callable[[str, str], bytes]
NAMED = by_path(INTEGER_AND_FLOAT, {"a": "after.a"})
FORMATS: dict[str, tuple[Signature, str, Write]] = {
    "json": (INTEGER_AND_FLOAT, "json", lambda a, b: f'{{"id":"e","a":{a},"b":{b}}}'.encode()),
    "paths": (NAMED, "json", lambda a, b: f'{{"id":"e","after":{{"a":{a}}},"b":{b}}}'.encode()),
    "json-array": (INTEGER_AND_FLOAT, "json-array", lambda a, b: f"[{a},{b}]".encode()),
    "json-envelope": (INTEGER_AND_FLOAT, "json-envelope", lambda a, b: f'{{"id":"e","features":[{a},{b}]}}'.encode()),
}


@pytest.fixture(params=FORMATS)
def format_(request: pytest.FixtureRequest) -> tuple[Decoder, Write]:
    signature, name, write = FORMATS[request.param]
    return decoder_factory.create_decoder(
        settings_of(name, **({"id": "header:ce_id"} if name == "json-array" else {})), signature
    ), write


@pytest.mark.parametrize(("text", "value"), VALID)
@pytest.mark.parametrize("count", [1, 20])
def test_a_number_without_a_fraction_is_an_integer(format_: tuple[Decoder, Write], text: str, value: int, count: int) -> None:
    decoder, write = format_
    decoded = decoder.decode([write(text, "1")] + [write("3", "2")] * (count - 1))
    assert decoded.rejected == {}
    assert decoded.tensors["x"].tolist() == [[value], *[[3]] * (count - 1)]


@pytest.mark.parametrize(("text", "reason"), INVALID, ids=[text[:20] for text, _ in INVALID])
@pytest.mark.parametrize("count", [1, 20])
def test_a_number_that_is_no_integer_is_rejected_with_its_field(
    format_: tuple[Decoder, Write], text: str, reason: Reason, count: int
) -> None:
    decoder, write = format_
    decoded = decoder.decode([write(text, "1")] + [write("3", "2")] * (count - 1))
    assert {row: poison.reason for row, poison in decoded.rejected.items()} == {0: reason}
    assert "field 'a'" in str(decoded.rejected[0])
    assert len(str(decoded.rejected[0])) < 500
    assert decoded.rows == list(range(1, count))


@pytest.mark.parametrize("text", [BEYOND, BEYOND + ".0", "-1e400"])
def test_a_number_that_no_float_holds_names_its_field(format_: tuple[Decoder, Write], text: str) -> None:
    decoder, write = format_
    for values in ([write("1", text)], [write("1", text)] + [write("3", "2")] * 20):
        decoded = decoder.decode(values)
        assert {row: poison.reason for row, poison in decoded.rejected.items()} == {0: Reason.OUT_OF_RANGE}
        assert "field 'b'" in str(decoded.rejected[0])


def test_a_number_with_more_digits_than_python_converts_names_its_field() -> None:
    for text in ("9" * 5_000, "-" + "9" * 5_000):
        decoded = JsonDecoder(INTEGER_AND_FLOAT, "id", 10_000).decode(
            [f'{{"a":{text},"b":1}}'.encode(), f'{{"a":1,"b":{text}}}'.encode()]
        )
        assert [poison.reason for poison in decoded.rejected.values()] == [Reason.OUT_OF_RANGE] * 2
        assert [name in str(poison) for name, poison in zip(("'a'", "'b'"), decoded.rejected.values(), strict=True)] == [
            True,
            True,
        ]
    unread = b'{"a":1,"b":1,"z":%b,"q":NaN}' % (b"9" * 5_000)
    assert JsonDecoder(INTEGER_AND_FLOAT, "id", 10_000).decode([unread]).rows == [0]


ARRAYS = signature_of(
    ("flat", "int32", [{"name": "flat", "array": True, "length": 3}]),
    ("limited", "uint8", ["limited", {"name": "absent", "default": 5}]),
)
SHAPED = parse_signature(
    json.dumps(
        {
            "inputs": [
                {"tensor": "s", "dtype": "int64", "shape": [2, 2], "fields": [{"name": "s", "array": True}]},
                {"tensor": "v", "dtype": "int64", "shape": [-1], "fields": [{"name": "v", "array": True, "max_length": 4}]},
            ],
            "output": {"tensor": "y"},
        }
    )
)


def test_elements_of_arrays_are_integers_in_the_same_way() -> None:
    decoder = JsonDecoder(ARRAYS, None, 10_000)
    valid = [b'{"flat":[1.0,-0.0,2e2],"limited":255.0}', b'{"flat":[1,2,3],"limited":1,"absent":2.0}']
    decoded = decoder.decode(valid)
    assert decoded.tensors["flat"].tolist() == [[1, 0, 200], [1, 2, 3]]
    assert decoded.tensors["limited"].tolist() == [[255, 5], [1, 2]]
    invalid = [
        b'{"flat":[1.5,0,2],"limited":1}',
        b'{"flat":[1,2,3e9],"limited":1}',
        b'{"flat":[1,2,true],"limited":1}',
        b'{"flat":[1,2,3],"limited":256.0}',
        b'{"flat":[1,2,3],"limited":-1.0}',
    ]
    rejected = decoder.decode([*valid, *invalid]).rejected
    assert [poison.reason.value for _, poison in sorted(rejected.items())] == [
        "wrong-type",
        "out-of-range",
        "wrong-type",
        "out-of-range",
        "out-of-range",
    ]
    assert [str(poison).split(":")[0] for _, poison in sorted(rejected.items())][:2] == ["field 'flat'[0]", "field 'flat'[2]"]


def test_elements_of_shaped_arrays_and_of_any_length_too() -> None:
    decoder = JsonDecoder(SHAPED, None, 10_000)
    decoded = decoder.decode([b'{"s":[[1.0,2],[3,4e0]],"v":[5.0,6]}', b'{"s":[1,2,3,4.0],"v":[]}'])
    assert decoded.rejected == {}
    assert decoded.tensors["s"].tolist() == [[1, 2, 3, 4]] * 2
    assert [row.tolist() for row in decoded.tensors["v"]] == [[5, 6], []]
    big = 2**63
    invalid = [b'{"s":[[1,2],[3,4.5]],"v":[]}', b'{"s":[1,2,3,%d],"v":[]}' % big, b'{"s":[1,2,3,4],"v":[1,%d]}' % big]
    rejected = decoder.decode(invalid).rejected
    assert [poison.reason.value for _, poison in sorted(rejected.items())] == ["wrong-type", "out-of-range", "out-of-range"]
    assert [str(poison).split(":")[0] for _, poison in sorted(rejected.items())] == [
        "field 's'[1][1]",
        "field 's'[3]",
        "field 'v'[1]",
    ]


def test_an_integer_beyond_the_exact_range_of_a_float_is_preserved() -> None:
    pair = signature_of(("x", "int64", ["a", "c"]), ("u", "uint64", ["u", "w"]))
    event = b'{"a":9007199254740993,"c":1.0,"u":18446744073709551615,"w":2.0}'
    decoded = JsonDecoder(pair, None, 10_000).decode([event])
    assert decoded.tensors["x"].tolist() == [[2**53 + 1, 1]]
    assert decoded.tensors["u"].tolist() == [[2**64 - 1, 2]]


def test_an_id_is_an_integer_in_the_same_way() -> None:
    decoder = JsonDecoder(INTEGER_AND_FLOAT, "id", 10_000)
    decoded = decoder.decode([b'{"id":7.0,"a":1,"b":1}', b'{"id":7,"a":1,"b":1}', b'{"id":7.5,"a":1,"b":1}'])
    assert list(decoded.ids) == [7, 7]
    assert list(map(type, decoded.ids)) == [int, int]
    assert decoded.rejected[2].reason is Reason.WRONG_TYPE


def test_keys_and_headers_are_integers_in_the_same_way() -> None:
    signature = signature_of(("x", "int64", [{"name": "n", "from": "header:n"}]), ("y", "float32", ["b"]))
    decoder = decoder_factory.create_decoder(settings_of("json"), signature)
    texts = [b"7.0", b"1e3", b"-0.0", b"7.5", b"true", b"9223372036854775808", b"1e19", BEYOND.encode()]
    parts = ListedMetadata([None] * len(texts), [1] * len(texts), [[("n", text)] for text in texts])
    decoded = decoder.decode([b'{"b":1}'] * len(texts), parts)
    assert decoded.tensors["x"].tolist() == [[7], [1_000], [0]]
    reasons = [poison.reason.value for _, poison in sorted(decoded.rejected.items())]
    assert reasons == ["wrong-type", "wrong-type", "out-of-range", "out-of-range", "out-of-range"]
    assert all("field 'n' (header:n)" in str(poison) for poison in decoded.rejected.values())


@pytest.mark.parametrize("count", [1, 20])
def test_doubles_of_avro_and_protobuf_are_integers_in_the_same_way(tmp_path: Path, count: int) -> None:
    double = {"type": "record", "name": "E", "fields": [{"name": "a", "type": "double"}, {"name": "b", "type": "float"}]}
    proto = 'syntax = "proto3"; message Event { optional double a = 1; optional float b = 2; }'
    for name, schema, encode in (
        ("avro", json.dumps(double), avro_encoder(double)),
        ("protobuf", proto, proto_encoder(proto)),
    ):
        decoder = decoder_factory.create_decoder(configured(tmp_path, name, schema, id="header:ce_id"), INTEGER_AND_FLOAT)
        values = [encode({"a": a, "b": 1.0}) for a in (7.0, -0.0, 1e3, 7.5, 1e19)] * count
        decoded = decoder.decode(values)
        assert decoded.tensors["x"].tolist() == [[7], [0], [1_000]] * count
        assert [poison.reason.value for _, poison in sorted(decoded.rejected.items())] == ["wrong-type", "out-of-range"] * count
        assert all("field 'a'" in str(poison) for poison in decoded.rejected.values())


def test_booleans_of_avro_are_no_integers(tmp_path: Path) -> None:
    schema = {"type": "record", "name": "E", "fields": [{"name": "a", "type": "boolean"}, {"name": "b", "type": "float"}]}
    decoder = decoder_factory.create_decoder(
        configured(tmp_path, "avro", json.dumps(schema), id="header:ce_id"), INTEGER_AND_FLOAT
    )
    decoded = decoder.decode([avro_encoder(schema)({"a": True, "b": 1.0})] * 20)
    assert {poison.reason for poison in decoded.rejected.values()} == {Reason.WRONG_TYPE}
    assert len(decoded.rejected) == 20


SCHEMA = json.loads(GENERATORS["json-schema"](INTEGER_AND_FLOAT, "m", "id"))
number_texts = st.one_of(
    st.integers(-(2**65), 2**65).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-1_000, 1_000).map(lambda n: f"{n}.0"),
    st.sampled_from(["1e3", "-0.0", "true", "null", '"1"', "7.5", "1E2", "[]", "{}"]),
)


@given(number_texts, st.integers(0, 12))
def test_the_schema_for_producers_and_the_decoder_accept_the_same(text: str, beside: int) -> None:
    event = f'{{"id":"e","a":{text},"b":1}}'
    valid = jsonschema.Draft202012Validator(SCHEMA).is_valid(json.loads(event))
    decoded = JsonDecoder(INTEGER_AND_FLOAT, "id", 10_000).decode([event.encode()] + [b'{"id":"e","a":1,"b":1}'] * beside)
    assert (0 in decoded.rows) is valid
    if valid:
        assert decoded.tensors["x"][0].tolist() == [int(json.loads(text))]


def test_golden_examples_are_integers_in_the_same_way() -> None:
    (example,) = parse_lines(b'{"event":{"a":7.0,"b":1},"score":1,"tolerance":0}', INTEGER_AND_FLOAT)
    assert run_golden_examples.decoded(INTEGER_AND_FLOAT, [example.event])["x"].tolist() == [[7]]
