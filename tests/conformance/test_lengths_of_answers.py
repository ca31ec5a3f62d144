"""Answers whose length is each event's own, of models that take one event at a time: pushed, loaded, and written as JSON."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from model_registry.errors import Refused
from model_registry.onnx_tools import run_golden_examples, safety
from model_registry.package.golden_examples import GoldenExample
from model_registry.package.signature import SignatureError
from model_registry.package.signature_schema import parse_signature
from scorer.backends.base import ModelRefused
from tests.conformance.lengths import loaded
from tests.support import models

X: dict[str, Any] = {
    "tensor": "x",
    "dtype": "float32",
    "shape": [1, 4],
    "fields": [{"name": "x", "array": True}],
    "batch": False,
}
ANY = {"inputs": [X], "output": {"tensor": "y", "shape": [-1]}}
UNSTATED = {"inputs": [X], "output": {"tensor": "y"}}
EVENTS = ([-1.0, -1, -1, -1], [0, 1, 0, 0], [1, 0, 2, 0], [1, 1, 1, 1], [0, 0, 0, 5])
PLACES: tuple[list[int], ...] = ([], [1], [0, 2], [0, 1, 2, 3], [3])


def places(path: Path, dtype: int = TensorProto.INT64) -> None:
    """y (k,) of x (1, 4): the places of the positive numbers."""
    nodes = [
        helper.make_node("Greater", ["x", "zero"], ["p"]),
        helper.make_node("NonZero", ["p"], ["nz"]),
        helper.make_node("Slice", ["nz", "one", "two", "axis"], ["row"]),
        helper.make_node("Squeeze", ["row", "axis"], ["k"]),
        helper.make_node("Cast", ["k"], ["y"], to=dtype),
    ]
    constants = [("zero", np.float32(0)), ("one", np.array([1])), ("two", np.array([2])), ("axis", np.array([0]))]
    initializers = [models.constant(name, value, np.asarray(value).dtype.type) for name, value in constants]
    models.save(nodes, [models.tensor("x", TensorProto.FLOAT, 1, 4)], [models.tensor("y", dtype, "k")], path, initializers)


def repeated(path: Path) -> None:
    """y (1, n, 2) of x (1, n): each number and its double."""
    nodes = [
        helper.make_node("Unsqueeze", ["x", "last"], ["u"]),
        helper.make_node("MatMul", ["u", "pair"], ["y"]),
    ]
    initializers = [models.constant("last", [2], np.int64), models.constant("pair", [[1, 2]])]
    models.save(
        nodes,
        [models.tensor("x", TensorProto.FLOAT, 1, "n")],
        [models.tensor("y", TensorProto.FLOAT, 1, "n", 2)],
        path,
        initializers,
    )


def values(events: Any) -> list[bytes]:
    return [json.dumps({"x": event}).encode() for event in events]


def goldens(events: Any, expected: Any) -> list[GoldenExample]:
    return [GoldenExample({"x": event}, score, 0.0) for event, score in zip(events, expected, strict=True)]


@pytest.mark.parametrize("signature", [ANY, UNSTATED], ids=["stated", "not stated"])
@pytest.mark.parametrize("first", range(len(EVENTS)))
def test_every_event_is_scored_for_any_length_of_the_first_answer(
    tmp_path: Path, signature: dict[str, Any], first: int
) -> None:
    places(tmp_path / "model.onnx")
    model = loaded(tmp_path, signature)
    order = [first, *(at for at in range(len(EVENTS)) if at != first)]
    alone = [json.loads(model.score(model.decoder.decode(values([EVENTS[at]])).tensors).encoded()[0]) for at in order]
    scores = model.score(model.decoder.decode(values(EVENTS[at] for at in order)).tensors)
    answers = [json.loads(answer) for answer in scores.encoded()]
    assert answers == alone
    assert scores.finite().all()
    if signature is ANY:
        assert answers == [PLACES[at] for at in order]


def test_golden_examples_of_several_lengths_are_answered(tmp_path: Path) -> None:
    places(tmp_path / "model.onnx")
    signature = parse_signature(json.dumps(ANY))
    safety.check(tmp_path / "model.onnx", signature)
    assert run_golden_examples.run(tmp_path / "model.onnx", signature, goldens(EVENTS, PLACES))
    with pytest.raises(Refused, match=r"golden example 2 must score \[2\] within 0.0, but scores \[1\]"):
        run_golden_examples.run(tmp_path / "model.onnx", signature, goldens(EVENTS[:2], [[], [2]]))


def test_lengths_that_the_signature_does_not_state_are_named_at_push(tmp_path: Path) -> None:
    places(tmp_path / "model.onnx")
    with pytest.raises(Refused, match=r"output 'y' has the shapes \[\] and \[\d\] for two events") as caught:
        run_golden_examples.run(tmp_path / "model.onnx", parse_signature(json.dumps(UNSTATED)), goldens(EVENTS, PLACES))
    assert caught.value.hint == 'write "shape": [-1] in that output; -1 is any length'


def test_an_answer_as_long_as_its_event(tmp_path: Path) -> None:
    repeated(tmp_path / "model.onnx")
    fed = X | {"shape": [1, -1], "fields": [{"name": "x", "array": True, "max_length": 9}]}
    document = {"inputs": [fed], "output": {"tensor": "y", "shape": [-1, 2]}}
    signature = parse_signature(json.dumps(document))
    safety.check(tmp_path / "model.onnx", signature)
    model = loaded(tmp_path, document)
    scores = model.score(model.decoder.decode(values([[1.0, 2.0], [3.0]])).tensors)
    assert [json.loads(answer) for answer in scores.encoded()] == [[[1, 2], [2, 4]], [[3, 6]]]
    unstated = parse_signature(json.dumps(document | {"output": {"tensor": "y"}}))
    with pytest.raises(Refused, match=r'has the length of input \'x\' .* or write -1 for it in the "shape" of the output'):
        safety.check(tmp_path / "model.onnx", unstated)


def test_an_answer_that_is_not_finite_is_detected_in_any_length(tmp_path: Path) -> None:
    repeated(tmp_path / "model.onnx")
    fed = X | {"shape": [1, -1], "fields": [{"name": "x", "array": True, "max_length": 9}]}
    model = loaded(tmp_path, {"inputs": [fed], "output": {"tensor": "y", "shape": [-1, 2]}})
    scores = model.score(model.decoder.decode(values([[3e38], [1.0, 2.0]])).tensors)
    assert scores.finite().tolist() == [False, True]


def test_a_fixed_shape_is_checked_for_each_event(tmp_path: Path) -> None:
    places(tmp_path / "model.onnx")
    golden = goldens(EVENTS[1:3], PLACES[1:3])
    with pytest.raises(Refused, match=r"output 'y' has shape \(2,\) for an event, but the signature states \[1\]"):
        run_golden_examples.run(
            tmp_path / "model.onnx", parse_signature(json.dumps(UNSTATED | {"output": {"tensor": "y", "shape": [1]}})), golden
        )


def test_several_outputs_of_which_one_has_any_length(tmp_path: Path) -> None:
    places(tmp_path / "model.onnx", TensorProto.STRING)
    output = [{"name": "places", "tensor": "y", "shape": [-1]}, {"name": "again", "tensor": "y", "shape": [-1]}]
    model = loaded(tmp_path, {"inputs": [X], "output": output})
    scores = model.score(model.decoder.decode(values(EVENTS[1:3])).tensors)
    assert [json.loads(answer) for answer in scores.encoded()] == [
        {"places": ["1"], "again": ["1"]},
        {"places": ["0", "2"], "again": ["0", "2"]},
    ]


def test_a_threshold_is_no_rule_for_an_array_of_any_length() -> None:
    rule = {"threshold": 0.5, "at_or_above": "a", "below": "b"}
    with pytest.raises(SignatureError, match=r"decision: the score is an array of any length, shape \[-1\]"):
        parse_signature(json.dumps(ANY | {"decision": rule}))


def test_padded_texts_with_an_answer_for_each_token_are_refused_with_the_remedy(tmp_path: Path) -> None:
    repeated_rows = models.tensor("x", TensorProto.FLOAT, "B", "n")
    models.save(
        [helper.make_node("Neg", ["x"], ["y"])],
        [repeated_rows],
        [models.tensor("y", TensorProto.FLOAT, "B", "m")],
        tmp_path / "model.onnx",
    )
    fed = {"tensor": "x", "dtype": "float32", "shape": [-1], "fields": [{"name": "x", "array": True, "max_length": 9}]}
    document = {"inputs": [fed], "output": {"tensor": "y"}}
    with pytest.raises(Refused, match="has the shapes") as caught:
        run_golden_examples.run(
            tmp_path / "model.onnx", parse_signature(json.dumps(document)), goldens([[1.0, 2], [3.0]], [[-1, -2], [-3]])
        )
    assert '"batch": false' in caught.value.hint
    lines = [{"event": {"x": x}, "score": [-number for number in x], "tolerance": 0} for x in ([1.0, 2.0], [3.0])]
    (tmp_path / "golden.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(ModelRefused, match="has the shape"):
        loaded(tmp_path, document)
