"""Outputs, labels and decisions of a signature: their meaning, the refusals, and the answers read from a model."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from model_registry.package import model_outputs
from model_registry.package.golden_examples import agrees
from model_registry.package.model_outputs import MAX_ELEMENTS, OutputMismatch
from model_registry.package.signature import Argmax, Decision, Output, Signature, SignatureError
from model_registry.package.signature_schema import parse_signature
from model_registry.package.version_difference import describe_decision, describe_output

INPUTS = [{"tensor": "x", "dtype": "float32", "fields": ["a"]}]
LABELS = ["cat", "dog", "eel"]
BOXES = {"name": "boxes", "tensor": "boxes", "shape": [-1, 4]}
BREED = {"name": "breed", "tensor": "p", "top": 2, "labels": LABELS}


def signature(**parts: Any) -> Signature:
    return parse_signature(json.dumps({"inputs": INPUTS, **parts}))


def test_outputs_are_parsed_and_described() -> None:
    parsed = signature(output=[BOXES, BREED], decision={"argmax": True, "output": "breed"})
    assert parsed.outputs == (
        Output("boxes", "boxes", shape=(-1, 4)),
        Output("breed", "p", top=2, labels=("cat", "dog", "eel")),
    )
    assert parsed.decision == Argmax(output="breed")
    assert parsed.decided == parsed.outputs[1]
    assert [describe_output(parsed, output) for output in parsed.outputs] == [
        "(B, -1, 4) of boxes",
        "the 2 largest of p, of cat, dog, eel",
    ]
    unsure = signature(output={"tensor": "p"}, labels=LABELS, decision={"argmax": True, "threshold": 0.5, "below": "unsure"})
    assert unsure.decision == Argmax(0.5, "unsure")
    assert describe_decision(unsure) == "the label of the largest, unsure below 0.5"
    several = signature(
        output=[BOXES, {"name": "risk", "tensor": "r"}],
        decision={"threshold": 0.5, "at_or_above": "high", "below": "low", "output": "risk"},
    )
    assert several.decision == Decision(0.5, "high", "low", "risk")
    assert describe_decision(several) == "high (score of risk 0.5 or more), else low"
    for signature_ in (parsed, unsure, several):
        assert parse_signature(signature_.to_json()) == signature_


@pytest.mark.parametrize(
    "text",
    [
        '{"inputs":[{"tensor":"x","dtype":"float32","fields":["a"]}],"output":{"tensor":"p","index":1},"labels":null,'
        '"decision":{"threshold":0.5,"at_or_above":"late","below":"on time"}}',
        '{"inputs":[{"tensor":"x","dtype":"float32","fields":["a"]}],"output":[{"name":"a","tensor":"p"},'
        '{"name":"b","tensor":"p","index":0}],"labels":["u","v"],"decision":null}',
    ],
)
def test_signatures_of_earlier_releases_are_written_unchanged(text: str) -> None:
    assert parse_signature(text).to_json() == text


SINGLE_OUTPUT = {"tensor": "p"}
RULE = {"threshold": 0.5, "at_or_above": "a", "below": "b"}


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"output": SINGLE_OUTPUT | {"top": 0}}, "output.top: 0 is not a whole number from 1 to 1000"),
        (
            {"output": SINGLE_OUTPUT | {"top": 2}},
            'output: "top" requires labels, which name the classes; write "labels": ["cat", "dog", ...]',
        ),
        ({"output": SINGLE_OUTPUT | {"top": 4}, "labels": LABELS}, "output: top is 4, but there are only 3 labels"),
        (
            {"output": SINGLE_OUTPUT | {"top": 1, "index": 1}},
            "output: index and top read the tensor in two ways; remove one of these keys",
        ),
        ({"output": SINGLE_OUTPUT | {"shape": [2, 0]}}, "output.shape: 0 is not a whole number from 1"),
        (
            {"output": SINGLE_OUTPUT | {"shape": [None]}},
            "output.shape: a dimension in the shape is null; write its size, or -1 for any length",
        ),
        ({"output": SINGLE_OUTPUT | {"shape": 4}}, "output.shape: 4 is not a list of at most 8 lengths"),
        (
            {"output": SINGLE_OUTPUT | {"shape": [2048, 2048]}},
            "output.shape: the shape [2048, 2048] has 4194304 elements; a score may have at most 1048576",
        ),
        (
            {"output": SINGLE_OUTPUT | {"labels": LABELS}},
            'output: "labels" has no effect without "top" and without a decision by argmax',
        ),
        ({"output": [BREED | {"labels": ["a", "a"]}]}, "output[0]: labels: label 'a' is repeated"),
        ({"output": [BOXES, BREED], "decision": {"argmax": True}}, 'name the output that decides: "output": "boxes"'),
        (
            {"output": [BOXES, BREED], "decision": {"argmax": True, "output": "bred"}},
            "decision.output: 'bred' is not an output; did you mean 'breed'?",
        ),
        (
            {"output": SINGLE_OUTPUT, "decision": RULE | {"output": "p"}},
            "decision.output: 'p' is not an output; the only output has no name",
        ),
        (
            {"output": [BOXES, BREED], "decision": {"argmax": True, "output": "boxes"}},
            'remove "index" and "shape" from its output',
        ),
        ({"output": SINGLE_OUTPUT, "decision": {"argmax": True}}, 'decision: argmax requires labels; write "labels"'),
        ({"output": SINGLE_OUTPUT, "labels": LABELS, "decision": {"argmax": 1}}, "decision.argmax: 1 is not valid; write"),
        ({"output": SINGLE_OUTPUT, "labels": LABELS, "decision": {"argmax": True, "threshold": 0.5}}, '"below": "unsure"'),
        (
            {"output": SINGLE_OUTPUT, "labels": LABELS, "decision": {"argmax": True, "above": 1}},
            "decision: unknown key 'above'",
        ),
        (
            {"output": [BREED], "decision": RULE | {"output": "breed"}},
            "decision: the score is an array with one label per number",
        ),
    ],
)
def test_every_mistake_is_named(parts: dict[str, Any], message: str) -> None:
    with pytest.raises(SignatureError) as caught:
        signature(**parts)
    assert message in str(caught.value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.sampled_from(["tensor", "index", "shape", "top", "labels", "name"]),
    st.sampled_from(["argmax", "threshold", "below", "output", "at_or_above"]),
    json_values,
    json_values,
    st.booleans(),
)
def test_any_value_anywhere_is_read_or_refused(
    of_output: str, of_decision: str, output_value: Any, decision_value: Any, several: bool
) -> None:
    stated: Any = {"tensor": "p", "top": 2, of_output: output_value}
    try:
        parsed = signature(
            output=[BREED | stated, BOXES] if several else stated,
            labels=LABELS,
            decision={"argmax": True, of_decision: decision_value} | ({"output": "breed"} if several else {}),
        )
    except SignatureError:
        return
    assert parse_signature(parsed.to_json()) == parsed


numbers = st.sampled_from([np.float32, np.float64, np.float16, np.int64, np.uint8, np.int8])
counts = st.sampled_from([0, 1, 2, 3, 100, 127])


@given(st.data(), numbers)
def test_the_largest_values_equal_those_of_a_sort(data: st.DataObject, dtype: Any) -> None:
    shape = data.draw(st.tuples(st.integers(1, 5), st.integers(1, 9)))
    elements = counts if data.draw(st.booleans()) else arrays.from_dtype(np.dtype(dtype), allow_nan=False)
    rows = data.draw(arrays.arrays(dtype, shape, elements=elements))
    count = data.draw(st.integers(1, shape[1]))
    sorted_rows = [sorted((-number, at) for at, number in enumerate(row))[:count] for row in rows.tolist()]
    assert model_outputs.largest_indices(rows, count).tolist() == [[at for _, at in row] for row in sorted_rows]


def test_the_largest_of_rows_with_nan_are_some_of_them() -> None:
    rows = np.array([[1, np.nan, 2, 3], [1, 2, 3, 4]], np.float32)
    places = model_outputs.largest_indices(rows, 2)
    assert places.shape == (2, 2)
    assert places[1].tolist() == [3, 2]


P = np.array([[0.25, 0.5, 0.25], [0.125, 0.125, 0.75]], np.float32)


def test_the_answers_of_a_batch_are_read() -> None:
    outputs = {
        "boxes": np.arange(16.0).reshape(2, 2, 4),
        "p": P,
        "words": np.array([["a", "b"], ["c", ""]], object),
        "good": np.array([True, False]),
        "one": np.ones((2, 1)),
    }
    declared = [BOXES, BREED, *({"name": name, "tensor": name} for name in ("words", "good", "one"))]
    declared.append({"name": "row", "tensor": "one", "shape": [1]})
    declared.append({"name": "number", "tensor": "one", "shape": []})
    first, second = model_outputs.read_scores(signature(output=declared), outputs)
    assert first == {
        "boxes": [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]],
        "breed": [{"label": "dog", "score": 0.5}, {"label": "cat", "score": 0.25}],
        "words": ["a", "b"],
        "good": True,
        "one": 1.0,
        "row": [1.0],
        "number": 1.0,
    }
    assert second["breed"] == [{"label": "eel", "score": 0.75}, {"label": "cat", "score": 0.125}]
    assert model_outputs.read_scores(signature(output=SINGLE_OUTPUT), outputs) == P.tolist()


@pytest.mark.parametrize(
    ("parts", "actual", "message"),
    [
        ({"output": SINGLE_OUTPUT | {"index": 3}}, P, r"output 'p' has shape \(2, 3\), but the signature reads column 3"),
        ({"output": SINGLE_OUTPUT | {"index": 0}}, P[:, 0], r"output 'p' has shape \(2,\), but the signature reads column 0"),
        (
            {"output": SINGLE_OUTPUT | {"shape": [-1, 4]}},
            P,
            r"output 'p' has shape \(2, 3\), but the signature states \(B, -1, 4\)",
        ),
        (
            {"output": SINGLE_OUTPUT | {"top": 1}, "labels": ["a", "b"]},
            P,
            r"is float32 of shape \(2, 3\), not rows of 2 numbers, one a",
        ),
        (
            {"output": SINGLE_OUTPUT | {"top": 1}, "labels": LABELS},
            P.astype(str).astype(object),
            "output 'p' is string of shape",
        ),
        ({"output": SINGLE_OUTPUT, "labels": LABELS, "decision": {"argmax": True}}, P[:, 0], "not rows of 3 numbers"),
        (
            {"output": SINGLE_OUTPUT},
            np.zeros((1, MAX_ELEMENTS // 16), bool),
            "the answer to one event has 2097152 elements; the limit is",
        ),
        (
            {"output": SINGLE_OUTPUT},
            np.zeros((1024, 65536), bool),
            "the answers to 1024 events have 67108864 elements; the limit is 33554432",
        ),
    ],
)
def test_outputs_that_contradict_the_signature_are_refused(parts: dict[str, Any], actual: Any, message: str) -> None:
    with pytest.raises(OutputMismatch, match=message):
        model_outputs.read_outputs(signature(**parts), {"p": actual})


def classes(*pairs: tuple[str, float]) -> list[dict[str, Any]]:
    return [{"label": label, "score": score} for label, score in pairs]


@pytest.mark.parametrize(
    ("actual", "same"),
    [
        (classes(("cat", 0.5), ("dog", 0.3)), True),
        (classes(("cat", 0.495), ("dog", 0.304)), True),
        (classes(("cat", 0.5), ("eel", 0.3)), False),
        (classes(("dog", 0.5), ("cat", 0.3)), False),
        (classes(("cat", 0.5), ("dog", 0.32)), False),
        (classes(("cat", 0.5)), False),
        ([0.5, 0.3], False),
    ],
    ids=["the same", "within the tolerance", "another class", "swapped", "off", "fewer", "numbers"],
)
def test_classes_agree_within_a_tolerance(actual: Any, same: bool) -> None:
    assert agrees(classes(("cat", 0.5), ("dog", 0.3)), actual, 0.01) is same


def test_classes_nearer_than_the_tolerance_change_places() -> None:
    expected, parsed = (
        classes(("cat", 0.405), ("dog", 0.4), ("eel", 0.1)),
        classes(("dog", 0.404), ("cat", 0.401), ("eel", 0.1)),
    )
    assert agrees(expected, parsed, 0.01)
    assert not agrees(expected, parsed, 0.001)


def test_nested_arrays_agree_within_a_tolerance() -> None:
    boxes = {"boxes": [[1.0, 2.0], [3.0, 4.0]], "names": ["a", "b"], "none": []}
    assert agrees(boxes, {"boxes": [[1.0, 2.0], [3.0, 4.01]], "names": ["a", "b"], "none": []}, 0.1)
    assert not agrees(boxes, {"boxes": [[1.0, 2.0], [3.0, 4.2]], "names": ["a", "b"], "none": []}, 0.1)
    assert not agrees(boxes, {"boxes": [[1.0, 2.0, 3.0, 4.0]], "names": ["a", "b"], "none": []}, 0.1)
    assert not agrees(boxes, boxes | {"names": ["a", "c"]}, 0.1)
