"""Tensors of any shape and constants in signatures."""

import json
from typing import Any

import pytest

from model_registry.package.signature import InputField, SignatureError, TensorInput
from model_registry.package.signature_schema import parse_signature
from tests.unit.model_registry.package.test_signature import GOOD


def test_signatures_without_shapes_are_written_as_before() -> None:
    inputs = [
        {"tensor": "x", "dtype": "float32", "fields": ["a", {"name": "b", "required": False, "default": "nan"}]},
        {"tensor": "p", "dtype": "uint8", "fields": [{"name": "p", "required": True, "array": True, "length": 784}]},
    ]
    text = json.dumps({"inputs": inputs, "output": {"tensor": "y"}, "labels": None, "decision": None}, separators=(",", ":"))
    assert parse_signature(text).to_json() == text


def one_tensor(**tensor: Any) -> TensorInput:
    return parse_signature(
        json.dumps(GOOD | {"inputs": [{"tensor": "x", "dtype": "float32", **tensor}, *GOOD["inputs"][1:]]})
    ).inputs[0]


def test_shapes() -> None:
    image = one_tensor(shape=[3, 8, 8], fields=[{"name": "image", "array": True}])
    assert image.fields == (InputField("image", "float32", array=192, shape=(3, 8, 8)),)
    assert (image.width, image.row, image.full_shape) == (192, (3, 8, 8), (None, 3, 8, 8))
    assert one_tensor(shape=[3, 8, 8], fields=[{"name": "image", "array": True, "length": 192}]) == image
    assert one_tensor(shape=[2, 2], fields=["a", "b", "c", "d"]).full_shape == (None, 2, 2)
    assert one_tensor(shape=[], fields=["a"]).full_shape == (None,)
    assert one_tensor(fields=["a"]).full_shape == (None, 1)


def test_constants() -> None:
    assert one_tensor(dtype="int64", value=16000).full_shape == (None,)
    assert one_tensor(dtype="int64", value=16000, batch=False).full_shape == ()
    assert one_tensor(value=[[1, "nan"]], batch=False).full_shape == (1, 2)
    filled = one_tensor(value=0, shape=[2, 1, 128], batch=False)
    assert (filled.full_shape, filled.value, filled.width) == ((2, 1, 128), 0.0, 256)
    signature = parse_signature(
        json.dumps(GOOD | {"inputs": [*GOOD["inputs"], {"tensor": "k", "dtype": "bool", "value": False}]})
    )
    assert [tensor.tensor for tensor in signature.fed] == ["x", "carrier"]
    assert [field.name for field in signature.fields] == ["f0", "f1", "carrier"]


IMAGE = {"name": "image", "array": True}


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (
            {"shape": 3, "fields": ["a"]},
            "inputs[0].shape: 3 is not a list of at most 8 whole numbers, the dimensions that follow",
        ),
        ({"shape": [1] * 9, "fields": ["a"]}, "is not a list of at most 8 whole numbers"),
        ({"shape": [3, 0], "fields": [IMAGE]}, "inputs[0].shape: 0 is not a whole number from 1 to 1048576"),
        ({"shape": [3, -2], "fields": [IMAGE]}, "-2 is not a whole number from 1"),
        ({"shape": [3, True], "fields": [IMAGE]}, "True is not a whole number from 1"),
        ({"shape": [3, None], "fields": [IMAGE]}, "a dimension in the shape is null; write its size, or -1"),
        (
            {"shape": [1 << 11, 1 << 10], "fields": [IMAGE]},
            "the shape [2048, 1024] has 2097152 elements; a tensor may have at most 1048576",
        ),
        (
            {"shape": [2, 2], "fields": ["a", "b"]},
            "the shape [2, 2] has 4 elements, but 2 fields are named; name 4 fields, or",
        ),
        ({"shape": [], "fields": ["a", "b"]}, "the shape [] is one value, but 2 fields are named; name one field"),
        ({"shape": [], "fields": [IMAGE]}, "the shape [] is one value, but field 'image' is an array; name a scalar field"),
        ({"shape": [2, 2], "fields": [IMAGE | {"length": 5}]}, 'but the "length" of field \'image\' is 5; remove "length"'),
        ({"fields": [IMAGE]}, "field 'image': an array field is written"),
        ({"fields": ["a"], "value": 1}, "must not have fields or a default"),
        ({"value": 1, "default": 2}, "must not have fields or a default"),
        ({"value": "one"}, "the constant value: 'one' is not a finite float32"),
        ({"value": [[1, 2], [3]]}, "the constant value[1]: an array of 2 was expected, not of 1; the shape must be [2, 2]"),
        ({"value": [[1, 2], [3, True]]}, "the constant value[1][1]: True is not a finite float32"),
        (
            {"value": [1, 2, 3], "shape": [2, 2]},
            "the constant value: an array of 2 was expected, not of 3; the shape must be [2, 2]",
        ),
        ({"value": []}, "the constant value: one value was expected, not an array"),
        ({"value": [[[[[[[[[1]]]]]]]]]}, "is not a list of at most 8 whole numbers"),
        ({"dtype": "bfloat16", "fields": ["a"]}, "inputs[0].dtype: no format of events has 'bfloat16'; export the model with"),
    ],
)
def test_every_mistake_in_a_shape_is_named(tensor: dict[str, Any], message: str) -> None:
    with pytest.raises(SignatureError) as caught:
        one_tensor(**tensor)
    assert message in str(caught.value)


def test_constants_alone_are_refused() -> None:
    with pytest.raises(SignatureError, match="all tensors are constants; at least one tensor must take a field of the event"):
        parse_signature(json.dumps(GOOD | {"inputs": [{"tensor": "x", "dtype": "int8", "value": 1}]}))


def test_a_field_has_one_shape() -> None:
    inputs = [
        {"tensor": name, "dtype": "int8", "shape": shape, "fields": [IMAGE]} for name, shape in (("x", [2, 3]), ("y", [3, 2]))
    ]
    with pytest.raises(SignatureError, match="different dtype, default, path, origin, length or shape"):
        parse_signature(json.dumps(GOOD | {"inputs": inputs}))
