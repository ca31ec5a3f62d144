"""Fields from other sources than an event's value, and fields of bytes: their declarations in signature.json."""

import json
import math
from typing import Any

import pytest

from model_registry.errors import Refused
from model_registry.onnx_tools import run_golden_examples
from model_registry.package import binary_fields, field_sources, version_difference
from model_registry.package.golden_examples import parse_lines
from model_registry.package.signature import Signature, SignatureError
from model_registry.package.signature_schema import parse_signature
from tests.unit.model_registry.package.test_signature import GOOD

BYTES = {"name": "image", "bytes": True}


def signature(*inputs: dict[str, Any]) -> Signature:
    return parse_signature(json.dumps(GOOD | {"inputs": inputs}))


def signature_of(dtype: str = "float32", *fields: Any, **more: Any) -> Signature:
    return signature({"tensor": "x", "dtype": dtype, "fields": fields, **more})


C = {"name": "c", "from": "key", "default": "nan"}
MIXED = signature(
    {"tensor": "image", "dtype": "uint8", "shape": [2, 2], "fields": [BYTES]},
    {"tensor": "x", "dtype": "float32", "fields": ["a", {"name": "b", "from": "header:b"}, C]},
    {"tensor": "t", "dtype": "int64", "shape": [], "fields": [{"name": "t", "from": "time"}]},
    {"tensor": "s", "dtype": "string", "fields": [{"name": "s", "bytes": True, "from": "value"}]},
)


def test_a_signature_with_sources_is_read_back() -> None:
    reparsed = parse_signature(MIXED.to_json())
    assert reparsed.to_json() == MIXED.to_json()
    image, a, b, c, t, s = reparsed.fields
    assert (image.raw, image.array, image.shape, image.source) == (True, 4, None, None)
    assert (s.raw, s.array, s.source) == (True, None, "value")
    assert [field.source for field in (a, b, c, t)] == [None, "header:b", "key", "time"]
    assert c.default is not None
    assert math.isnan(float(c.default))
    assert [tensor.full_shape for tensor in reparsed.inputs] == [(None, 2, 2), (None, 3), (None,), (None, 1)]


def test_a_length_gives_the_size_without_a_shape() -> None:
    parsed = signature_of("int16", BYTES | {"length": 5})
    assert (parsed.inputs[0].full_shape, binary_fields.size(parsed.fields[0])) == ((None, 5), 10)
    assert binary_fields.size(signature_of("float64", BYTES, shape=[]).fields[0]) == 8


def test_fields_of_the_value_are_separated_from_others() -> None:
    inside = field_sources.only_value_fields(MIXED)
    assert [(tensor.tensor, [field.name for field in tensor.fields]) for tensor in inside.inputs] == [
        ("image", ["image"]),
        ("x", ["a"]),
    ]
    assert [field.name for field in field_sources.fields_outside_value(MIXED)] == ["b", "c", "t", "s"]
    assert {field.source for field in field_sources.read_by_name(MIXED).fields} == {None}
    value_only = signature_of("float32", "a", "b")
    assert field_sources.only_value_fields(value_only) is value_only
    assert field_sources.read_by_name(value_only) is value_only


@pytest.mark.parametrize(
    ("dtype", "field", "more", "message"),
    [
        (
            "float32",
            {"from": "header:"},
            {},
            "inputs[0].fields[0].from: 'header:' is neither a part of a record nor a table: it must be",
        ),
        (
            "float32",
            {"from": "Key"},
            {},
            "inputs[0].fields[0].from: 'Key' is neither a part of a record nor a table: it must be",
        ),
        (
            "float32",
            {"from": ["key"]},
            {},
            "['key'] is neither a part of a record nor a table: it must be one of key, header:NAME, time, value, table:NAME",
        ),
        (
            "float32",
            {"from": "table:"},
            {},
            "fields[0].from: '' is not the name of a table: a name has letters, digits, _ and -",
        ),
        ("float32", {"from": "table:a.b"}, {}, "fields[0].from: 'a.b' is not the name of a table: a name has letters"),
        ("float32", {"form": "key"}, {}, "unknown key 'form'; did you mean 'from'?"),
        (
            "float32",
            {"from": "key", "path": "a.b"},
            {},
            "field 'image' has a path and comes from key; remove one of the two keys",
        ),
        ("int32", {"from": "time"}, {}, "field 'image' is a time in ms since 1970, not int32; its dtype must be one of"),
        ("int64", {"from": "time", "bytes": True, "length": 1}, {}, "field 'image' is a time in ms since 1970, not bytes"),
        ("uint8", {"from": "value", "array": True}, {"shape": [3]}, 'which holds bytes, not an array; write "bytes": true in'),
        ("uint8", {"bytes": True, "array": True}, {"shape": [3]}, "field 'image' comes as bytes or as an array; remove"),
        (
            "uint8",
            {"bytes": True},
            {},
            "field 'image': the number of bytes is unknown; add \"shape\" to the tensor",
        ),
        (
            "uint8",
            {"bytes": True, "length": 4},
            {"shape": [3]},
            'the shape [3] has 3 elements, but the "length" of field \'image\' is 4; remove "length"',
        ),
        (
            "string",
            {"bytes": True, "length": 4},
            {},
            "field 'image': in a string tensor, the bytes are a single string; remove \"length\" from the field",
        ),
        ("string", {"bytes": True}, {"shape": [2]}, "the shape [2] has 2 elements, but 1 fields are named"),
        ("uint8", {"bytes": True, "length": 1 << 21}, {}, "2097152 is not a whole number from 1 to 1048576"),
    ],
)
def test_every_mistake_is_named(dtype: str, field: dict[str, Any], more: dict[str, Any], message: str) -> None:
    with pytest.raises(SignatureError) as caught:
        signature_of(dtype, {"name": "image", **field}, **more)
    assert message in str(caught.value)


def test_a_field_of_bytes_is_alone_in_its_tensor() -> None:
    with pytest.raises(
        SignatureError, match="a tensor takes one field of bytes and no other field; use one tensor for each field"
    ):
        signature_of("uint8", BYTES, "b")


def line(**event: Any) -> bytes:
    return json.dumps({"event": event, "score": 1, "tolerance": 0}).encode()


GOLDEN = {"image": "AAECAw==", "a": 1, "b": 2.5, "t": 1_700_000_000_000, "s": "w6k="}


def test_golden_examples_have_all_fields_by_name() -> None:
    (example,) = parse_lines(line(**GOLDEN), MIXED)
    parsed = run_golden_examples.fed(MIXED, [example.event])
    assert parsed["image"].tolist() == [[[0, 1], [2, 3]]]
    assert parsed["x"].tolist()[0][:2] == [1.0, 2.5]
    assert parsed["t"].tolist() == [1_700_000_000_000]
    assert parsed["s"].tolist() == [["é"]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"image": "AAECAw"}, "event field 'image': 'AAECAw' is not base64 (standard alphabet, padded)"),
        ({"image": [0, 1, 2, 3]}, "event field 'image': [0, 1, 2, 3] is not base64 (standard alphabet, padded)"),
        ({"image": "AAEC"}, "event field 'image': 3 bytes, but 4 were expected (4 of uint8)"),
        ({"s": "/w=="}, "event field 's': 1 bytes are not UTF-8: invalid start byte at byte 0"),
        ({"b": "2.5"}, "event field 'b': '2.5' is not a finite float32"),
        ({"t": None}, "event field 't': it is required, but missing or null"),
    ],
)
def test_a_golden_example_of_another_kind_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(Refused) as caught:
        parse_lines(line(**(GOLDEN | change)), MIXED)
    assert message in str(caught.value)


def changes(*new: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    old = signature_of("float32", "a", {"name": "b", "from": "header:b"})
    return version_difference._signatures(old, signature_of("float32", *new))


@pytest.mark.parametrize(
    ("new", "lines", "breaks"),
    [
        (["a", {"name": "b", "from": "header:b"}], (), ()),
        (["a", {"name": "c", "from": "header:b"}], 2, ()),
        (
            ["a", "b"],
            ("field b: float32, required, from header:b -> float32, required",),
            ("field b came from header:b and comes from the event (b)",),
        ),
        (
            [{"name": "a", "from": "key"}, {"name": "b", "from": "header:b"}],
            ("field a: float32, required -> float32, required, from key",),
            ("field a came from the event (a) and comes from key",),
        ),
    ],
)
def test_another_place_of_a_value_is_a_break(new: list[Any], lines: Any, breaks: tuple[str, ...]) -> None:
    differences = changes(*new)
    assert differences[0] == lines or len(differences[0]) == lines
    assert differences[1] == breaks


JOINED_AGE = {"name": "customers.age", "from": "table:customers", "default": 0}
JOINED = signature(
    {"tensor": "x", "dtype": "float32", "fields": ["a", JOINED_AGE]},
    {
        "tensor": "city",
        "dtype": "string",
        "fields": [{"name": "city", "path": "address.city", "from": "table:customers", "default": ""}],
    },
    {"tensor": "e", "dtype": "float32", "fields": [{"name": "e", "from": "table:items", "array": True, "length": 2}]},
)


def test_a_joined_field_names_its_table_and_column() -> None:
    assert parse_signature(JOINED.to_json()).to_json() == JOINED.to_json()
    tables = field_sources.joined_fields(JOINED)
    assert {table: [field.name for field in fields] for table, fields in tables.items()} == {
        "customers": ["customers.age", "city"],
        "items": ["e"],
    }
    assert [field_sources.column_steps(field) for fields in tables.values() for field in fields] == [
        ("age",),
        ("address", "city"),
        ("e",),
    ]


def test_a_joined_field_is_no_part_of_the_record() -> None:
    assert field_sources.fields_outside_value(JOINED) == ()
    for inside in (field_sources.only_value_fields(JOINED), field_sources.only_record_fields(JOINED)):
        assert [(tensor.tensor, [field.name for field in tensor.fields]) for tensor in inside.inputs] == [("x", ["a"])]
    assert field_sources.only_record_fields(MIXED) is MIXED


def test_golden_examples_have_joined_fields_by_name() -> None:
    (example,) = parse_lines(line(**{"a": 1, "customers.age": 41, "city": "Kyiv", "e": [1, 2]}), JOINED)
    parsed = run_golden_examples.fed(JOINED, [example.event])
    assert {name: tensor.tolist() for name, tensor in parsed.items()} == {
        "x": [[1.0, 41.0]],
        "city": [["Kyiv"]],
        "e": [[1.0, 2.0]],
    }


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            "age",
            "inputs: table customers: field 'years' is read at age, in conflict with field 'customers.age' at the same path",
        ),
        (
            "age.years",
            "inputs: table customers: field 'years' is read at age.years, in conflict with field 'customers.age' at age",
        ),
    ],
)
def test_columns_that_no_row_can_have_are_refused(path: str, message: str) -> None:
    years = {"name": "years", "path": path, "from": "table:customers"}
    with pytest.raises(SignatureError) as caught:
        signature_of("float32", JOINED_AGE, years)
    assert message in str(caught.value)
    two_tables = signature_of("float32", JOINED_AGE, years | {"from": "table:items"})
    assert list(field_sources.joined_fields(two_tables)) == ["customers", "items"]


@pytest.mark.parametrize(
    ("age", "message"),
    [
        ({"path": "years"}, "field customers.age was column age of table:customers and is column years"),
        ({"from": "table:items"}, "field customers.age came from table:customers and comes from table:items"),
        ({"from": None}, 'field customers.age came from table:customers and comes from the event ("customers.age")'),
        ({"default": None}, "field customers.age is required and was optional"),
    ],
)
def test_another_column_of_a_table_is_a_break(age: dict[str, Any], message: str) -> None:
    field = {"name": "customers.age", "from": "table:customers", "default": 0} | age
    old = signature_of("float32", "a", JOINED_AGE)
    new = signature_of("float32", "a", {key: value for key, value in field.items() if value is not None})
    assert version_difference._signatures(old, new)[1] == (message,)


def test_a_renamed_field_of_the_same_column_is_no_break() -> None:
    old = signature_of("float32", "a", JOINED_AGE)
    new = signature_of("float32", "a", {"name": "years", "path": "age", "from": "table:customers", "default": 0})
    assert version_difference._signatures(old, new) == (
        (
            "field customers.age is no longer read",
            "field years is new (float32, default 0.0, from table:customers at age)",
        ),
        (),
    )


def test_bytes_in_place_of_an_array_are_a_break() -> None:
    array = signature_of("uint8", {"name": "image", "array": True}, shape=[2, 2])
    differences = version_difference._signatures(array, signature_of("uint8", BYTES, shape=[2, 2]))
    assert differences[1] == ("field image was uint8[2, 2] and is the bytes of uint8[4]",)
