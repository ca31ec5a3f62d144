"""A signature drafted from a model and example events: inputs by name and shape, and gaps."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_registry.errors import Refused
from model_registry.onnx_tools import draft_events, draft_inputs, draft_outputs
from model_registry.onnx_tools.declared_tensors import ModelTensor
from model_registry.package import placeholders
from model_registry.package.placeholders import BLANK
from model_registry.package.signature_schema import parse_signature

B = "N"
FLIGHTS: list[dict[str, Any]] = [
    {"a": 1.5, "b": 2, "carrier": "UA", "v": [1, 2, 3], "deep": {"a": 3, "tags": ["x", "y"]}, "list": [{"price": 5}]},
    {"a": 2.5, "b": 3, "carrier": "DL", "v": [4, 5, 6], "deep": {"a": 4, "tags": ["z", "w"]}, "list": [{"price": 6}]},
]


@pytest.mark.parametrize(
    ("tensor", "fields", "more"),
    [
        (ModelTensor("a", "float32", (B, 1)), ["a"], {}),
        (ModelTensor("a", "float32", (B,)), ["a"], {"shape": []}),
        (ModelTensor("b", "int64", (B, 1)), ["b"], {}),
        (ModelTensor("A", "float32", (B, 1)), ["a"], {}),
        (ModelTensor("price", "float32", (B, 1)), [{"name": "price", "path": "list[0].price"}], {}),
        (ModelTensor("v", "float32", (B, 3)), [{"name": "v", "array": True, "length": 3}], {}),
        (ModelTensor("v", "float32", (B, "n")), [{"name": "v", "array": True, "length": 3}], {}),
        (ModelTensor("pixels", "int8", (B, 3)), [{"name": "v", "array": True, "length": 3}], {}),
        (ModelTensor("v", "float32", (B, 3, 1)), [{"name": "v", "array": True}], {"shape": [3, 1]}),
        (ModelTensor("words", "string", (B, 2)), [{"name": "tags", "path": "deep.tags", "array": True, "length": 2}], {}),
    ],
    ids=lambda tensor: f"{tensor.name} {tensor.dtype}{list(tensor.shape)}" if isinstance(tensor, ModelTensor) else "",
)
def test_fields_are_matched_by_name_or_shape(tensor: ModelTensor, fields: list[Any], more: dict[str, Any]) -> None:
    (drafted,), _ = draft_inputs.draft_inputs([tensor], draft_events.values(FLIGHTS))
    assert drafted == {"tensor": tensor.name, "dtype": tensor.dtype, "fields": fields, **more}
    parse_signature(json.dumps({"inputs": [drafted], "output": {"tensor": "y"}}))


def test_different_lengths_are_drafted_as_varying() -> None:
    events = [{"ids": [1, 2, 3], "frames": [[0.5, 1.5]]}, {"ids": [4], "frames": [[0.5, 1.5], [2.5, 3.5]]}]
    tensors = [
        ModelTensor("ids", "int64", (B, "S")),
        ModelTensor("attention_mask", "int64", (B, "S")),
        ModelTensor("frames", "float32", (B, "T", 2)),
    ]
    drafted, _ = draft_inputs.draft_inputs(tensors, draft_events.values(events))
    length_gap = f"{BLANK}: the largest length that may occur; the examples have up to "
    pad, marks = drafted[0]["pad"], drafted[1]["marks"]
    assert placeholders.is_placeholder(pad)
    assert placeholders.is_placeholder(marks)
    assert drafted == [
        {
            "tensor": "ids",
            "dtype": "int64",
            "shape": [-1],
            "pad": pad,
            "fields": [{"name": "ids", "array": True, "max_length": f"{length_gap}3"}],
        },
        {"tensor": "attention_mask", "dtype": "int64", "mask_of": "ids", "marks": marks},
        {
            "tensor": "frames",
            "dtype": "float32",
            "shape": [-1, 2],
            "pad": pad,
            "fields": [{"name": "frames", "array": True, "max_length": f"{length_gap}2"}],
        },
    ]
    for document in (drafted[0], drafted[2]):
        document["fields"][0]["max_length"] = 5
        document["pad"] = 0
    drafted[1]["marks"] = "padding"
    parse_signature(json.dumps({"inputs": drafted, "output": {"tensor": "y"}}))


def test_bytes_are_recognised_in_base64() -> None:
    events = [{"image": "AAECAwQF", "sound": "AAAA"}, {"image": "AAECAwQG", "sound": "AAA="}]
    tensors = [ModelTensor("image", "uint8", (B, 2, 3)), ModelTensor("sound", "uint8", ("n",))]
    drafted, notes = draft_inputs.draft_inputs(tensors, draft_events.values(events))
    size_gap = f"{BLANK}: the largest number of bytes in an event"
    assert drafted == [
        {"tensor": "image", "dtype": "uint8", "shape": [2, 3], "fields": [{"name": "image", "bytes": True}]},
        {
            "tensor": "sound",
            "dtype": "uint8",
            "shape": [-1],
            "batch": False,
            "fields": [{"name": "sound", "bytes": True, "max_length": size_gap}],
        },
    ]
    assert notes == [
        "input 'image' takes image as bytes in base64; where the record's value is nothing but the bytes, add "
        '"from": "value" to the field',
        "input 'sound' takes bytes, such as a file, one event at a time; for a single number write \"shape\": []",
    ]


def test_without_events_an_open_length_and_bytes_are_gaps() -> None:
    tensors = [ModelTensor("file", "uint8", (None,)), ModelTensor("ids", "int64", (B, "S"))]
    (file, ids), _ = draft_inputs.draft_inputs(tensors, {})
    gap = {"name": "file", "bytes": True, "max_length": f"{BLANK}: the largest number of bytes in an event"}
    assert file == {"tensor": "file", "dtype": "uint8", "shape": [-1], "batch": False, "fields": [gap]}
    ids_field = {"name": "ids", "array": True, "max_length": BLANK}
    assert ids == {"tensor": "ids", "dtype": "int64", "shape": [-1], "fields": [ids_field]}


@pytest.mark.parametrize(
    ("tensor", "gap"),
    [
        (
            ModelTensor("carrier", "int64", (B, 1)),
            "fields[0] FILL IN: the field of events that feeds it, one int64; the examples",
        ),
        (
            ModelTensor("other", "float32", (B, 2, "w")),
            "fields[0] FILL IN: the field of events that feeds it, an array of shape [2, -1]",
        ),
        (ModelTensor("x", "float32", (B, 2)), "fields[0] FILL IN: leave here the 2 fields of a row, in the order in which"),
        (ModelTensor("state", "float32", (2, 4)), "value FILL IN"),
        (ModelTensor("x", "bfloat16", (B, 4)), "dtype FILL IN"),
    ],
    ids=lambda tensor: f"{tensor.name} {tensor.dtype}" if isinstance(tensor, ModelTensor) else "",
)
def test_a_value_that_no_event_determines_is_a_gap(tensor: ModelTensor, gap: str) -> None:
    (drafted,), _ = draft_inputs.draft_inputs([tensor], draft_events.values(FLIGHTS))
    gaps = [f"{place} {text}" for place, text in placeholders.find_in_document(drafted)]
    assert [drafted_gap for drafted_gap in gaps if drafted_gap.startswith(gap)]


def test_candidate_fields_of_a_row_are_listed_without_those_of_other_tensors() -> None:
    tensors = [ModelTensor("x", "float32", (B, 3)), ModelTensor("b", "float32", (B, 1)), ModelTensor("c", "string", (B, 2))]
    drafted, _ = draft_inputs.draft_inputs(tensors, draft_events.values([{**event, "v": None} for event in FLIGHTS]))
    assert drafted[0]["fields"][1:] == ["a", {"name": "deep.a", "path": "deep.a"}, {"name": "price", "path": "list[0].price"}]
    assert drafted[2]["fields"] == [{"name": "tags", "path": "deep.tags", "array": True, "length": 2}]


def test_a_field_that_may_feed_two_tensors_is_assigned_to_none() -> None:
    tensors = [ModelTensor("one", "float32", (B, 3)), ModelTensor("two", "float32", (B, 3))]
    drafted, notes = draft_inputs.draft_inputs(tensors, draft_events.values(FLIGHTS))
    assert notes == []
    for document in drafted:
        gap, *candidates = document["fields"]
        assert placeholders.is_placeholder(gap)
        assert candidates[:2] == ["a", "b"]


def test_a_joined_field_that_may_feed_two_tensors_has_one_name() -> None:
    tensors = [ModelTensor("one", "float32", (B, 3)), ModelTensor("two", "float32", (B, 3))]
    values = draft_events.values([{"customers.age": 41}, {"customers.age": 7}])
    drafted, _ = draft_inputs.draft_inputs(tensors, values, ["customers"])
    assert [document["fields"][1:] for document in drafted] == [[{"name": "customers.age", "from": "table:customers"}]] * 2


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('ab.[]" ', max_size=3), inner, max_size=4),
    max_leaves=20,
)
tensors = st.builds(
    ModelTensor,
    st.sampled_from(["a", "b", 'a"b', "a.b"]),
    st.sampled_from(["float32", "int64", "string", "bool", "bfloat16"]),
    st.sampled_from([(), (B,), (B, 1), (B, 2), (B, "n"), (B, 2, 2), (B, 2, "n"), (2, 3), (B, 0)]),
)


@given(
    st.lists(tensors, min_size=1, max_size=3, unique_by=lambda tensor: tensor.name),
    st.lists(st.dictionaries(st.text('ab."', max_size=3), json_values, max_size=4), min_size=1, max_size=3),
)
def test_any_events_make_a_signature_or_gaps(model_tensors: list[ModelTensor], events: list[dict[str, Any]]) -> None:
    document, _ = draft_inputs.draft_inputs(model_tensors, draft_events.values(events))
    signature_document = {"inputs": document, **draft_outputs.draft_answers([ModelTensor("y", "float32", (B, 1))], [])}
    if not any(placeholders.find_in_document(signature_document)):
        parsed = parse_signature(json.dumps(signature_document))
        assert {tensor.tensor for tensor in parsed.inputs} == {tensor.name for tensor in model_tensors}


@pytest.mark.parametrize(
    ("outputs", "labels", "expected"),
    [
        ([ModelTensor("y", "string", (B,))], [], {"output": {"tensor": "y"}}),
        ([ModelTensor("y", "float32", (1, 4))], [], {"output": {"tensor": "y"}}),
        ([ModelTensor("state", "float32", (1, 4)), ModelTensor("y", "float32", (B, 1))], [], {"output": {"tensor": "y"}}),
        ([ModelTensor("y", "float32", (B, 3, "n"))], [], {"output": {"tensor": "y", "shape": [3, -1]}}),
        ([ModelTensor("label", "int64", (B,)), ModelTensor("p", "float32", (B, 1))], [], {"output": {"tensor": "p"}}),
        ([ModelTensor("p", "float32", (B, 3))], [], {"output": {"tensor": "p"}}),
        (
            [ModelTensor("u", "float32", (B, 2)), ModelTensor("v", "float32", (B, 2, 2))],
            [],
            {"output": [{"name": "u", "tensor": "u"}, {"name": "v", "tensor": "v", "shape": [2, 2]}]},
        ),
        (
            [ModelTensor("p", "float32", (B, "c"))],
            ["a", "b"],
            {"output": {"tensor": "p", "top": 2}, "labels": ["a", "b"], "decision": {"argmax": True}},
        ),
    ],
)
def test_outputs_are_drafted(outputs: list[ModelTensor], labels: list[str], expected: dict[str, Any]) -> None:
    drafted = draft_outputs.draft_answers(outputs, labels)
    assert drafted == expected
    inputs = [{"tensor": "x", "dtype": "float32", "fields": ["a"]}]
    parse_signature(json.dumps({"inputs": inputs, **drafted}))


@pytest.mark.parametrize("label", [(B,), (1,)])
def test_the_choice_of_a_probability_beside_a_label_is_a_gap(label: Any) -> None:
    outputs = [
        ModelTensor("label", "int64", label),
        ModelTensor("p", "float32", (B, 2)),
    ]  # onnxmltools states one label for a batch
    ((where, _),) = placeholders.find_in_document(draft_outputs.draft_answers(outputs, []))
    assert where == "output.index"


def test_a_model_without_an_output_that_can_be_read_is_refused() -> None:
    outputs = [ModelTensor("zipped", "a sequence", ()), ModelTensor("anchors", "float32", (2, 4))]
    with pytest.raises(Refused, match=r"no output .* \(zipped: a sequence \(\), anchors: float32 \(2, 4\)\)"):
        draft_outputs.draft_answers(outputs, [])


def test_labels_that_match_no_output_or_two_are_a_gap() -> None:
    for outputs in ([ModelTensor("p", "float32", (B, 3))], [ModelTensor(name, "float32", (B, 2)) for name in "pq"]):
        (gap,) = placeholders.find_in_document(draft_outputs.draft_answers(outputs, ["a", "b"]))
        assert gap == ("output.tensor", f"{BLANK}: the tensor of (B, 2) numbers, one a label")
