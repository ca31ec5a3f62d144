"""Signatures with varying lengths: the valid declarations, and the compatibility of their events."""

import json
from typing import Any

import pytest

from model_registry.package.dtypes import value_fault
from model_registry.package.dynamic_shapes import accepts_arrays_of, find_unequal_lengths
from model_registry.package.golden_examples import parse_lines
from model_registry.package.shapes import array_fault
from model_registry.package.signature import Signature, SignatureError
from model_registry.package.signature_schema import parse_signature
from model_registry.package.version_difference import describe_tensor

IDS = {
    "tensor": "ids",
    "dtype": "int64",
    "shape": [-1],
    "fields": [{"name": "ids", "array": True, "max_length": 512}],
    "pad": 0,
}
FILE = {"name": "f", "bytes": True, "max_length": 512}
TYPES = IDS | {"tensor": "types", "fields": [{"name": "types", "array": True, "max_length": 512}]}
MASK = {"tensor": "mask", "dtype": "int64", "mask_of": "ids"}
COUNT = {"tensor": "count", "dtype": "int32", "length_of": "ids"}


def signature(*inputs: dict[str, Any]) -> Signature:
    return parse_signature(json.dumps({"inputs": inputs, "output": {"tensor": "y"}}))


def test_a_signature_declares_lengths() -> None:
    parsed = signature(IDS, TYPES, MASK, COUNT, {"tensor": "rate", "dtype": "int64", "value": 16000, "batch": False})
    assert [tensor.full_shape for tensor in parsed.inputs] == [(None, -1), (None, -1), (None, -1), (None,), ()]
    assert [tensor.tensor for tensor in parsed.fed] == ["ids", "types"]
    assert [(field.array, field.max_length, field.varies) for field in parsed.fields] == [(512, 512, True)] * 2
    assert parsed.varies
    frames = signature(IDS | {"dtype": "float32", "shape": [80, -1], "pad": "nan", "axis": "time"}).inputs[0]
    assert (frames.width, frames.fields[0].max_length, frames.axis) == (80 * 512, 512, "time")
    assert describe_tensor(parsed.inputs[0]) == "int64 (B, -1), -1 up to 512, padded with 0"
    assert describe_tensor(parsed.inputs[2]) == "int64 (B, -1), mask of ids"
    assert describe_tensor(signature(IDS, MASK | {"marks": "padding"}).inputs[1]) == "int64 (B, -1), mask of the padding of ids"


@pytest.mark.parametrize(
    "inputs",
    [
        [IDS, TYPES, MASK, COUNT],
        [IDS | {"dtype": "float32", "shape": [80, -1], "pad": "nan", "axis": "time"}],
        [IDS | {"dtype": "string", "pad": ""}],
        [{key: value for key, value in IDS.items() if key != "pad"}],
        [IDS | {"fields": [{"name": "ids", "array": True, "max_length": 5, "required": False, "path": "a.ids"}]}],
        [IDS | {"batch": False}, MASK | {"batch": False}, {"tensor": "a", "dtype": "bool", "fields": ["a"], "batch": False}],
        [IDS, MASK | {"dtype": "float32", "shape": [1, 1, -1]}, COUNT | {"shape": [1]}],
    ],
)
def test_a_signature_with_lengths_is_read_back(inputs: list[dict[str, Any]]) -> None:
    parsed = signature(*inputs)
    reparsed = parse_signature(parsed.to_json())
    assert reparsed.to_json() == parsed.to_json()
    assert repr(reparsed) == repr(parsed)  # NaN is not equal to itself


FIELD = {"name": "ids", "array": True, "max_length": 512}
NO_BOUND = """field 'ids' has a varying length, so it must have "max_length" instead of "length": {"name": ..., "array": true"""


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (
            [IDS | {"shape": [-1, -1]}],
            "inputs[0].shape: the shape [-1, -1] has 2 lengths that vary (-1); a tensor may have one",
        ),
        ([IDS | {"fields": [{"name": "ids", "array": True}]}], NO_BOUND),
        ([IDS | {"fields": [FIELD | {"length": 3}]}], NO_BOUND),
        (
            [IDS | {"fields": ["a"]}],
            "a tensor of varying length, here of the shape [-1], must have exactly one field; the field must be an array",
        ),
        (
            [IDS | {"fields": ["a", "b"]}],
            "a tensor of varying length, here of the shape [-1], must have exactly one field; the field must be an array",
        ),
        ([IDS | {"fields": [FIELD | {"max_length": 0}]}], "0 is not a whole number from 1 to 16777216"),
        ([IDS | {"shape": [-1, 1 << 12]}], '2097152 elements; it may have at most 1048576; lower "max_length"'),
        (
            [IDS | {"fields": [FIELD | {"required": False, "default": 0}]}],
            'so it must not have a default; with "required": false an absent',
        ),
        ([IDS | {"default": 0}], "so it must not have a default"),
        ([IDS | {"pad": 0.5}], 'the value of "pad": 0.5 is not a valid int64'),
        ([IDS | {"value": 0}], "[-1]: only a tensor of an array field or of bytes may have a length that varies (-1)"),
        ([IDS | {"fields": None, "value": 0}], "[-1]: only a tensor of an array field or of bytes may have a length"),
        (
            [IDS | {"fields": [FILE], "dtype": "string", "pad": None}],
            "field 'f': in a string tensor, the bytes are a single string, so the shape cannot vary; write \"shape\": []",
        ),
        (
            [IDS | {"fields": [FILE | {"max_length": 1 << 22}]}],
            "the shape allows field 'f' 33554432 bytes; it may have at most 16777216; lower \"max_length\"",
        ),
        (
            [IDS | {"fields": [FILE | {"length": 9}]}],
            'instead of "length": {"name": ..., "bytes": true, "max_length": 2000000}',
        ),
        ([IDS | {"fields": [FILE | {"from": "key", "path": "a.b"}]}], "field 'f' has a path and comes from key"),
        ([IDS | {"fields": [FILE | {"from": "time"}]}], "field 'f' is a time in ms since 1970, not bytes"),
        ([IDS | {"fields": [FIELD | {"from": "header:h"}]}], 'which holds bytes, not an array; write "bytes": true in place'),
        ([IDS | {"shape": [4]}], '"pad", "axis" and "max_length" are for a length that varies: write -1 for it in "shape"'),
        ([IDS | {"shape": None, "pad": None}], '"pad", "axis" and "max_length" are for a length that varies'),
        ([IDS, TYPES | {"pad": None}], "tensors 'ids' and 'types' have the same \"axis\": write \"pad\" in both or"),
        (
            [IDS, TYPES | {"fields": [FIELD | {"name": "types", "max_length": 5}]}],
            "tensors 'ids' and 'types' have the same \"axis\" but different lengths: write \"max_length\": 512 in both",
        ),
        (
            [IDS, MASK | {"mask_of": "idz"}],
            "tensor 'mask' is derived from 'idz', but 'idz' is not a tensor of varying length; "
            "the tensors of varying length are: 'ids'",
        ),
        ([IDS, MASK | {"fields": ["a"]}], 'a tensor with "mask_of" is derived from another tensor; remove "fields"'),
        ([IDS, MASK | {"value": 1}], 'a tensor with "mask_of" is derived from another tensor; remove "value"'),
        ([IDS, MASK | {"pad": 1}], 'a tensor with "mask_of" is derived from another tensor; remove "pad"'),
        ([IDS, MASK | {"length_of": "ids"}], 'a tensor with "mask_of" is derived from another tensor; remove "length_of"'),
        ([IDS, MASK | {"dtype": "string"}], 'a tensor with "mask_of" must have a dtype of numbers or bool, not string'),
        (
            [IDS, MASK | {"shape": [5]}],
            'the shape [5] is not valid for a tensor with "mask_of", whose shape must have -1 for the length, such as [-1]',
        ),
        (
            [IDS, COUNT | {"shape": [-1]}],
            'the shape [-1] is not valid for a tensor with "length_of", whose shape must have no -1, such as [] or [1]',
        ),
        (
            [IDS, COUNT | {"dtype": "int8"}],
            "tensor 'count' contains lengths of up to 512, but 512 is not a valid int8 (-128 to 127)",
        ),
        ([MASK], "all tensors are constants; at least one tensor must take a field"),
    ],
)
def test_every_mistake_is_named(inputs: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(SignatureError) as caught:
        signature(*inputs)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("value", "shape", "message"),
    [
        ([1, 2, 3], (-1,), None),
        ([], (-1,), None),
        ([1] * 5, (-1,), "a length of at most 4 was expected, not 5 (shape [-1])"),
        ([1, "a"], (-1,), "[1]'a' is not a valid int64"),
        ([[1]], (-1,), "[0]one value was expected, not an array (shape [-1])"),
        (7, (-1,), "an array of at most 4 was expected, not 7 (shape [-1])"),
        ({}, (-1,), "an array of at most 4 was expected, not an object (shape [-1])"),
        ([[1, 2], [3, 4]], (-1, 2), None),
        ([1, 2, 3, 4], (-1, 2), None),
        ([1, 2, 3], (-1, 2), "a multiple of 2 elements was expected, not 3 (shape [-1, 2], nested or flat)"),
        ([[1, 2], [3]], (-1, 2), "[1]an array of 2 was expected, not of 1 (shape [-1, 2], nested or flat)"),
        ([[1, 2], 3], (-1, 2), "[1]an array of 2 was expected, not 3 (shape [-1, 2], nested or flat)"),
        ([[1] * 5, [1] * 5], (2, -1), "a length of at most 4 was expected, not 5 (shape [2, -1], nested or flat)"),
        ([[1, 2, 3], [4, 5]], (2, -1), "[1]an array of 3 was expected, not of 2 (shape [2, -1], nested or flat)"),
        ([[1], [2], [3]], (2, -1), "an array of 2 was expected, not of 3 (shape [2, -1], nested or flat)"),
        ([[], []], (2, -1), None),
    ],
)
def test_a_fault_of_an_array_is_named(value: Any, shape: tuple[int, ...], message: str | None) -> None:
    max_elements = 4 * max(2 if 2 in shape else 1, 1)
    fault = array_fault(value, max_elements, shape, lambda element: value_fault(element, "int64"))
    assert (fault is None) if message is None else (fault is not None and (fault[0] + fault[1]).startswith(message))


def field(shape: list[int], length: int, **more: Any) -> Any:
    bound = "max_length" if -1 in shape else "length"
    tensor = {"name": "x", "array": True, bound: length}
    return signature({"tensor": "x", "dtype": "int64", "shape": shape, "fields": [tensor], **more}).fields[0]


def test_arrays_that_another_field_accepts() -> None:
    assert accepts_arrays_of(field([-1], 5), field([-1], 4))
    assert not accepts_arrays_of(field([-1], 4), field([-1], 5))
    assert accepts_arrays_of(field([-1], 5), field([5], 5))
    assert not accepts_arrays_of(field([-1], 4), field([5], 5))
    assert not accepts_arrays_of(field([5], 5), field([-1], 5))
    assert accepts_arrays_of(field([-1, 2], 5), field([3, 2], 6))
    assert not accepts_arrays_of(field([-1, 2], 5), field([2, 3], 6))
    assert not accepts_arrays_of(field([-1, 2], 5), field([2, -1], 5))
    assert not accepts_arrays_of(field([-1], 5), signature({"tensor": "x", "dtype": "int64", "fields": ["x"]}).fields[0])


def test_fields_that_newly_share_a_length_are_found() -> None:
    other = TYPES | {"axis": "other"}
    assert find_unequal_lengths(signature(IDS, TYPES), signature(IDS, TYPES)) is None
    assert find_unequal_lengths(signature(IDS, other), signature(IDS, TYPES)) == ("ids", "types")
    assert find_unequal_lengths(signature(IDS, TYPES), signature(IDS, other)) is None
    assert find_unequal_lengths(signature(IDS), signature(IDS, TYPES)) is None  # a new field is reported as such


def test_golden_examples_have_individual_lengths() -> None:
    def lines(*events: Any) -> bytes:
        return b"\n".join(json.dumps({"event": event, "score": 1, "tolerance": 0}).encode() for event in events)

    assert len(parse_lines(lines({"ids": [1]}, {"ids": []}, {"ids": [1] * 512}), signature(IDS))) == 3
    with pytest.raises(Exception, match=r"line 1: event field 'ids': a length of at most 512 was expected, not 513"):
        parse_lines(lines({"ids": [1] * 513}), signature(IDS))
    with pytest.raises(Exception, match=r"line 1: event field 'ids'\[1\]: None is not a valid int64"):
        parse_lines(lines({"ids": [1, None]}), signature(IDS))
