"""signature.json: its meaning, and the error for every mistake."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_registry.package.dtypes import DTYPES, FLOAT_LIMITS, INTEGER_LIMITS
from model_registry.package.signature import Decision, InputField, Output, Signature, SignatureError, TensorInput
from model_registry.package.signature_schema import parse_signature

GOOD: dict[str, Any] = {
    "inputs": [
        {"tensor": "x", "dtype": "float32", "fields": ["f0", {"name": "f1", "required": False, "default": "nan"}]},
        {"tensor": "carrier", "dtype": "string", "fields": ["carrier"], "default": ""},
    ],
    "output": {"tensor": "probabilities", "index": 1},
    "labels": None,
    "decision": {"threshold": 0.5, "at_or_above": "late", "below": "on time"},
}

texts = st.text(min_size=1, max_size=8)


def values(dtype: str) -> st.SearchStrategy[Any]:
    if dtype in FLOAT_LIMITS:
        limit = FLOAT_LIMITS[dtype]
        return st.just(math.nan) | st.floats(-limit, limit)
    if dtype in INTEGER_LIMITS:
        return st.integers(*INTEGER_LIMITS[dtype])
    return st.booleans() if dtype == "bool" else st.text(max_size=5)


@st.composite
def tensors(draw: st.DrawFn, name: str, field_names: list[str]) -> TensorInput:
    dtype = draw(st.sampled_from(DTYPES))
    array = draw(st.none() | st.integers(1, 1000)) if len(field_names) == 1 else None
    shape: tuple[int, ...] | None = draw(st.none() | st.just((array or len(field_names),)))
    nested: tuple[int, ...] | None = None
    if array and draw(st.booleans()):
        shape = nested = draw(st.lists(st.integers(1, 5), min_size=2, max_size=4).map(tuple))
        array = math.prod(nested)
    fields = []
    for field in field_names:
        default = draw(st.none() | values(dtype))
        fields.append(InputField(field, dtype, draw(st.booleans()) if default is not None else True, default, array, nested))
    return TensorInput(name, dtype, tuple(fields), shape)


@st.composite
def constants(draw: st.DrawFn) -> TensorInput:
    dtype = draw(st.sampled_from(DTYPES))
    shape, value = draw(st.lists(st.integers(1, 3), max_size=3)), values(dtype)
    filled: st.SearchStrategy[Any] = value
    for length in reversed(shape):
        filled = st.lists(filled, min_size=length, max_size=length).map(tuple)
    return TensorInput("constant", dtype, (), tuple(shape), draw(value | filled), draw(st.booleans()))


@st.composite
def signatures(draw: st.DrawFn) -> Signature:
    names = draw(st.lists(texts, min_size=1, max_size=6, unique=True))
    cut = draw(st.integers(1, len(names)))
    parts = [part for part in (names[:cut], names[cut:]) if part]
    inputs = tuple(draw(tensors(f"t{at}", part)) for at, part in enumerate(parts))
    inputs += draw(st.just(()) | st.tuples(constants()))
    index = st.none() | st.integers(0, 100)
    if draw(st.booleans()):
        outputs = tuple(
            Output(name, draw(texts), draw(index)) for name in draw(st.lists(texts, min_size=1, max_size=3, unique=True))
        )
    else:
        outputs = (Output(None, draw(texts), draw(index)),)
    labels = draw(st.none() | st.lists(texts, min_size=1, max_size=3, unique=True).map(tuple))
    decision = None
    if len(outputs) == 1 and (labels is None or outputs[0].index is not None):
        decision = draw(st.none() | st.builds(Decision, st.floats(-10, 10), texts, texts))
    return Signature(inputs, outputs, labels, decision)


@given(signatures())
def test_a_written_signature_is_read_back(signature: Signature) -> None:
    text = signature.to_json()
    reparsed = parse_signature(text)
    assert reparsed.to_json() == text
    assert repr(reparsed) == repr(signature)  # not ==: NaN is not equal to itself


def test_the_example_of_the_contract_is_parsed() -> None:
    signature = parse_signature(json.dumps(GOOD).encode())
    x, carrier = signature.inputs
    assert (x.width, carrier.width) == (2, 1)
    assert x.fields[0] == InputField("f0", "float32")
    assert (x.fields[1].required, x.fields[1].allows_nan) == (False, True)
    assert carrier.fields == (InputField("carrier", "string", required=False, default=""),)
    assert signature.outputs == (Output(None, "probabilities", 1),)
    assert signature.decision == Decision(0.5, "late", "on time")
    assert [field.name for field in signature.fields] == ["f0", "f1", "carrier"]


def with_field(field: Any, dtype: str = "float32", *others: Any) -> dict[str, Any]:
    return {"inputs": [{"tensor": "x", "dtype": dtype, "fields": [field, *others]}]}


@pytest.mark.parametrize(
    ("dtype", "stated", "field"),
    [
        ("int8", {"name": "a", "required": True, "default": 3}, InputField("a", "int8", True, 3)),
        ("float32", {"name": "a", "array": True, "length": 784, "default": 0}, InputField("a", "float32", False, 0.0, 784)),
        ("string", {"name": "a", "default": "nan"}, InputField("a", "string", False, "nan")),
    ],
    ids=["required wins over a default", "an array", "nan is a word for strings"],
)
def test_a_field_is_parsed(dtype: str, stated: dict[str, Any], field: InputField) -> None:
    signature = parse_signature(json.dumps(GOOD | with_field(stated, dtype)))
    assert signature.fields == (field,)
    assert signature.inputs[0].width == (field.array or 1)
    assert not field.allows_nan


def test_fields_by_path() -> None:
    fields = [
        {"name": "amount", "path": "after.amount"},
        {"name": "a.b"},
        {"name": "c", "path": "c"},
        {"name": "d", "path": '"c.d"'},
    ]
    signature = parse_signature(json.dumps(GOOD | with_field(fields[0], "float32", *fields[1:])))
    assert [field.steps for field in signature.fields] == [("after", "amount"), ("a.b",), ("c",), ("c.d",)]
    assert signature.fields[0] == InputField("amount", "float32", path=("after", "amount"))
    assert signature.fields[2] == InputField("c", "float32")
    assert json.loads(signature.to_json())["inputs"][0]["fields"] == [
        {"name": "amount", "path": "after.amount", "required": True},
        "a.b",
        "c",
        {"name": "d", "path": '"c.d"', "required": True},
    ]


def test_named_outputs() -> None:
    outputs = [{"name": "late", "tensor": "p", "index": 1}, {"name": "minutes", "tensor": "m"}]
    signature = parse_signature(json.dumps(GOOD | {"output": outputs, "decision": None}))
    assert signature.outputs == (Output("late", "p", 1), Output("minutes", "m", None))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"decisoin": None}, "signature.json: unknown key 'decisoin'; did you mean 'decision'?"),
        ({"inputs": []}, "inputs: [] is not a list with at least one entry"),
        (with_field("a", "float23"), "inputs[0].dtype: 'float23' is not a valid dtype; did you mean 'float32'?"),
        ({"inputs": [{"tensor": "x", "dtype": "int8", "fields": []}]}, "inputs[0].fields: [] is not a list"),
        ({"inputs": [{"tensor": "x", "dtype": "int8"}]}, "inputs[0]: the key 'fields' is missing"),
        ({"inputs": [{"tensor": "x", "dtype": "int8", "fields": ["a", "a"]}]}, "inputs[0]: field 'a' is repeated"),
        ({"inputs": [{"tensor": "x", "dtype": "int8", "fields": [n]} for n in "ab"]}, "inputs: tensor 'x' is repeated"),
        ({"inputs": [{"tensor": t, "dtype": t, "fields": ["a"]} for t in ("int8", "bool")]}, "field 'a' feeds two tensors"),
        (with_field({"name": "a", "requird": True}), "inputs[0].fields[0]: unknown key 'requird'; did you mean 'required'?"),
        (with_field({"name": "a", "required": False}), 'not required and has no default; write "default": "nan"'),
        (with_field({"name": "a", "required": 1}), "inputs[0].fields[0].required: 1 is neither true nor false"),
        (with_field({"name": "a", "default": "NaN"}), 'is not a finite float32 (NaN is written "nan")'),
        (with_field({"name": "a", "default": 1e39}), "is not a finite float32"),
        (with_field({"name": "a", "default": True}), "is not a finite float32"),
        (with_field({"name": "a", "default": "nan"}, "int8"), "'nan' is not a valid int8 (-128 to 127)"),
        (with_field({"name": "a", "default": 256}, "uint8"), "256 is not a valid uint8 (0 to 255)"),
        (with_field({"name": "a", "default": 1.0}, "int64"), "1.0 is not a valid int64"),
        (with_field({"name": "a", "default": 0}, "bool"), "0 is not a bool"),
        (with_field({"name": "a", "default": 0}, "string"), "0 is not a string"),
        (with_field({"name": "a", "array": True}), 'an array field is written {"name": ..., "array": true, "length": n}'),
        (with_field({"name": "a", "length": 3}), "an array field is written"),
        (with_field({"name": "a", "array": True, "length": 0}), "inputs[0].fields[0].length: 0 is not a whole number from 1"),
        (with_field({"name": "a", "array": True, "length": 3}, "int8", "b"), "one array field and no other"),
        (with_field(7), "inputs[0].fields[0]: 7 is not an object"),
        (with_field(""), "is not a text of at least one character"),
        (
            with_field({"name": "a", "path": "b..c"}),
            "inputs[0].fields[0].path: 'b..c' is not a valid path: an error at character 2",
        ),
        (with_field({"name": "a", "path": "[0].b"}), "inputs[0].fields[0].path: the path '[0].b' must begin with a name"),
        (with_field({"name": "a", "path": ["b"]}), "inputs[0].fields[0].path: ['b'] is not a valid path such as after.amount"),
        (
            with_field({"name": "a", "path": "b.c"}, "int8", "b"),
            "inputs: field 'b' is read at b, in conflict with field 'a' inside of it",
        ),
        (
            {"inputs": [{"tensor": t, "dtype": "int8", "fields": [{"name": "a", "path": f"{t}.a"}]} for t in "xy"]},
            "inputs: field 'a' feeds two tensors, which state a different dtype, default, path, origin, length or shape",
        ),
        ({"output": {"tensor": "p", "index": -1}}, "output.index: -1 is not a whole number from 0"),
        ({"output": {"tensor": "p", "index": True}}, "output.index: True is not a whole number"),
        ({"output": [{"tensor": "p"}]}, "output[0]: the key 'name' is missing"),
        ({"output": [{"name": "a", "tensor": "p"}, {"name": "a", "tensor": "q"}]}, "output: name 'a' is repeated"),
        ({"output": [{"name": "a", "tensor": "p"}, {"name": "b", "tensor": "q"}]}, "the decision must name one"),
        ({"output": {"tensor": "p"}, "labels": ["a", "b"]}, "decision: the score is an array with one label per number"),
        ({"labels": ["a", "a"]}, "labels: label 'a' is repeated"),
        ({"labels": [1]}, "labels[0]: 1 is not a text"),
        ({"decision": {"threshold": "0.5", "at_or_above": "a", "below": "b"}}, "decision.threshold: '0.5' is not a finite"),
        ({"decision": {"threshold": 0.5, "above": "a", "below": "b"}}, "decision: unknown key 'above'"),
    ],
)
def test_every_mistake_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SignatureError) as caught:
        parse_signature(json.dumps(GOOD | changes))
    assert message in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 100_000, b"null", b'{"inputs": NaN}', b" " * (2 << 20)])
def test_a_document_that_is_no_json_object_is_refused(data: bytes) -> None:
    with pytest.raises(SignatureError):
        parse_signature(data)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(["inputs", "output", "labels", "decision", "tensor", "dtype", "fields", "default"]), json_values)
def test_any_value_anywhere_is_read_or_refused(key: str, value: Any) -> None:
    tensor = {"tensor": "x", "dtype": "float32", "fields": [{"name": "a"}]} | {key: value}
    changes = {key: value} if key in GOOD else {"inputs": [tensor]}
    try:
        signature = parse_signature(json.dumps(GOOD | changes))
    except SignatureError:
        return
    assert parse_signature(signature.to_json()).to_json() == signature.to_json()


@given(st.lists(json_values | st.text('ab.[]0"\\u', max_size=8), min_size=1, max_size=3))
def test_any_path_is_read_or_refused(segments: list[Any]) -> None:
    fields = [{"name": f"f{number}", "path": path} for number, path in enumerate(segments)]
    try:
        signature = parse_signature(json.dumps(GOOD | {"inputs": [{"tensor": "x", "dtype": "int8", "fields": fields}]}))
    except SignatureError:
        return
    assert parse_signature(signature.to_json()) == signature


@given(st.sampled_from(["tensor", "dtype", "fields", "default", "shape", "value", "batch"]), json_values)
def test_any_value_in_a_tensor_is_read_or_refused(key: str, value: Any) -> None:
    tensor = {"tensor": "x", "dtype": "float32", "fields": [{"name": "a"}]} | {key: value}
    try:
        signature = parse_signature(json.dumps(GOOD | {"inputs": [tensor]}))
    except SignatureError:
        return
    assert signature.inputs[0].width >= 1
