"""Models that take one event at a time are recognised by their shapes, and drafted with "batch": false."""

import json
from typing import Any

import pytest

from model_registry.onnx_tools import draft_events, draft_inputs, draft_unbatched
from model_registry.onnx_tools.declared_tensors import ModelTensor
from model_registry.package import placeholders
from model_registry.package.signature_schema import parse_signature

Y = ModelTensor("y", "float32", ("n", 1))


@pytest.mark.parametrize(
    ("inputs", "output", "expected"),
    [
        ([("n", 4)], ("n", 1), ""),
        ([(None, 4)], ("batch", 1), ""),
        ([("batch", 4)], ("unk__12", 1), ""),
        ([("batch", 4)], ("Gemmy_dim_0", 1), ""),
        ([("n", 4), (1, 128)], ("n", 1), ""),
        ([(2, 4)], (2, 1), ""),
        ([(), ()], (), ""),
        ([(5, 4), (5,)], ("k", 4), "first axes of input 'x0' [5, 4] and output 'y' ['k', 4] differ"),
        ([(3, 224, 224)], (10,), "first axes of input 'x0' [3, 224, 224] and output 'y' [10] differ"),
        ([("n", 4)], (), ""),
        ([(1, 4)], (1, 1), "input 'x0' has the fixed batch size 1"),
        ([(1, 4)], ("k",), "input 'x0' has the fixed batch size 1"),
        (
            [("seq", "batch", 4)],
            ("batch", 1),
            "first axes of input 'x0' ['seq', 'batch', 4] and output 'y' ['batch', 1] differ",
        ),
        ([("t", 4)], (1, 1), "first axes of input 'x0' ['t', 4] and output 'y' [1, 1] differ"),
    ],
)
def test_shapes_determine_whether_events_are_fed_one_at_a_time(inputs: list[Any], output: Any, expected: str) -> None:
    tensors = [ModelTensor(f"x{at}", "float32", shape) for at, shape in enumerate(inputs)]
    reason = draft_unbatched.reason_for_single_events(tensors, [ModelTensor("y", "float32", output)])
    assert reason == expected or (expected and expected in reason)


def test_a_file_of_bytes_is_no_batch() -> None:
    assert not draft_unbatched.reason_for_single_events(
        [ModelTensor("file", "uint8", (None,))], [ModelTensor("y", "float32", (1, 4))]
    )


@pytest.mark.parametrize(
    ("shape", "events", "document"),
    [
        ((1, 4), [{"x": [1, 2, 3, 4]}], {"shape": [1, 4], "fields": [{"name": "x", "array": True, "length": 4}]}),
        ((1, 1), [{"x": 3}], {"shape": [1, 1], "fields": ["x"]}),
        ((1,), [{"x": 3}], {"shape": [1], "fields": ["x"]}),
        ((1, 2, 2), [{"x": [[[1, 2], [3, 4]]]}], {"shape": [1, 2, 2], "fields": [{"name": "x", "array": True}]}),
        ((1, 2, 2), [{"x": [1, 2, 3, 4]}], {"shape": [1, 2, 2], "fields": [{"name": "x", "array": True}]}),
        (("t", 2), [{"x": [[1, 2]]}, {"x": [[1, 2], [3, 4]]}], {"shape": [-1, 2]}),
        ((1, "t"), [{"x": [1, 2]}, {"x": [1]}], {"shape": [1, -1]}),
        ((1, 2), [], {"shape": [1, 2], "fields": [{"name": "x", "array": True, "length": 2}]}),
        ((1, 2), [{"a": 1, "b": 2}], {"shape": [1, 2]}),
    ],
)
def test_an_input_is_drafted_with_its_complete_shape(shape: Any, events: list[Any], document: dict[str, Any]) -> None:
    tensor = ModelTensor("x", "float32", shape)
    drafted = draft_unbatched.add_open_batch(tensor, alone=True)
    (batched,), _ = draft_inputs.draft_inputs([drafted], draft_events.values(events))
    single = draft_unbatched.draft_single_input(batched, tensor, drafted)
    assert single | document | {"batch": False} == single
    for field in single["fields"]:
        if isinstance(field, dict) and "max_length" in field:
            field["max_length"] = 64
    single["fields"] = [field for field in single["fields"] if not placeholders.is_placeholder(field)]
    assert parse_signature(json.dumps({"inputs": [single], "output": {"tensor": "y"}})).alone


def test_a_mask_has_the_complete_shape_and_nothing_is_padded() -> None:
    tensors = [ModelTensor("ids", "int64", (1, "len")), ModelTensor("ids_mask", "bool", (1, "len"))]
    opened = [draft_unbatched.add_open_batch(tensor, alone=True) for tensor in tensors]
    batched, _ = draft_inputs.draft_inputs(opened, draft_events.values([{"ids": [1, 2]}, {"ids": [3]}]))
    ids, mask = (draft_unbatched.draft_single_input(*parts) for parts in zip(batched, tensors, opened, strict=True))
    assert ids["shape"] == [1, -1]
    assert "pad" not in ids
    assert (mask["shape"], mask["batch"], mask["mask_of"]) == ([1, -1], False, "ids")
    ids["fields"][0]["max_length"], mask["marks"] = 64, "values"
    assert parse_signature(json.dumps({"inputs": [ids, mask], "output": {"tensor": "y"}})).alone


def test_an_input_that_no_field_feeds_is_a_constant() -> None:
    tensors = [ModelTensor("x", "float32", (1, 2)), ModelTensor("state", "float32", (1, 1, 8))]
    opened = [draft_unbatched.add_open_batch(tensor, alone=True) for tensor in tensors]
    batched, _ = draft_inputs.draft_inputs(opened, draft_events.values([{"x": [1, 2]}]))
    _, state = (draft_unbatched.draft_single_input(*parts) for parts in zip(batched, tensors, opened, strict=True))
    assert placeholders.is_placeholder(state["value"])
    assert state["batch"] is False


def test_an_input_of_an_event_without_the_batch_of_one_is_no_constant() -> None:
    tensor = ModelTensor("x", "float32", (1, 3, 2, 2))
    drafted = draft_unbatched.add_open_batch(tensor, alone=True)
    (batched,), _ = draft_inputs.draft_inputs([drafted], draft_events.values([{"x": [[[1, 2], [3, 4]]] * 3}]))
    document = draft_unbatched.draft_single_input(batched, tensor, drafted)
    assert document["shape"] == [1, 3, 2, 2]
    (gap,) = document["fields"]
    assert "an array of shape [1, 3, 2, 2], nested or flat; the examples have x, of shape [3, 2, 2], which does not fit" in gap


def test_the_only_input_is_no_constant() -> None:
    tensor = ModelTensor("x", "float32", (1, 1, 8))
    drafted = draft_unbatched.add_open_batch(tensor, alone=True)
    (batched,), _ = draft_inputs.draft_inputs([drafted], draft_events.values([{"a": "text"}]))
    assert "fields" in draft_unbatched.draft_single_input(batched, tensor, drafted, only=True)


def test_the_batch_of_a_recurrent_model_is_known_by_the_name_of_its_axis() -> None:
    (x,), (y,) = draft_unbatched.with_unit_batch(
        [ModelTensor("x", "float32", ("time", "batch", 3))], [ModelTensor("y", "float32", ("batch", 1))], lengths=False
    )
    assert (x.shape, y.shape) == (("time", 1, 3), (1, 1))


@pytest.mark.parametrize(
    ("outputs", "shape", "expected"),
    [
        ([("n", "seq", 2)], [-1], "output 'y0' is as long as input 'ids' ('seq')"),
        ([(None, "seq")], [-1], "output 'y0' is as long as input 'ids' ('seq')"),
        ([("n", "seq", 2), ("n", 8)], [-1], ""),
        ([("n", "seq", 2)], [16], ""),
        ([("n", 8)], [-1], ""),
    ],
)
def test_answers_as_long_as_events_need_one_event_at_a_time(outputs: list[Any], shape: list[int], expected: str) -> None:
    ids = ModelTensor("ids", "int64", ("n", "seq"))
    tensors = [ModelTensor(f"y{at}", "float32", tensor) for at, tensor in enumerate(outputs)]
    assert draft_unbatched.reason_for_single_lengths([ids], tensors, [{"shape": shape}]) == expected
    if expected:
        (ids,), (y,) = draft_unbatched.with_unit_batch([ids], tensors, lengths=True)
        assert (ids.shape, y.shape) == ((1, "seq"), (1, *outputs[0][1:]))


@pytest.mark.parametrize("size", [1, 8])
def test_the_batch_that_only_the_inputs_name_applies_to_the_outputs(size: int) -> None:
    x, y = ModelTensor("x", "float32", ("batch_size", 4)), ModelTensor("y", "float32", (size, 2))
    outputs = draft_unbatched.batched([x], [y])
    assert [tensor.shape for tensor in outputs] == [(None, 2)]
    assert draft_unbatched.reason_for_single_events([x], outputs) == ""


def test_an_output_of_a_fixed_size_is_unchanged_beside_another_axis() -> None:
    y = ModelTensor("y", "float32", (1, 1))
    assert draft_unbatched.batched([ModelTensor("x", "float32", ("t", 4))], [y]) == [y]
    assert draft_unbatched.batched([ModelTensor("x", "float32", (1, 4))], [y]) == [y]


def test_events_feed_inputs_with_a_batch_of_one_or_an_open_axis_and_else_all_inputs() -> None:
    image, anchors = ModelTensor("image", "float32", (1, 4)), ModelTensor("anchors", "float32", (9, 2))
    assert draft_unbatched.select_event_inputs([image, anchors]) == [image]
    series, state = ModelTensor("series", "float32", (10, "batch", 4)), ModelTensor("state", "float32", (1, 1, 3))
    assert draft_unbatched.select_event_inputs([series, state]) == [series, state]
    assert draft_unbatched.select_event_inputs([anchors, ModelTensor("scale", "float32", ())]) == [anchors]
