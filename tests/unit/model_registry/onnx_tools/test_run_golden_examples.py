"""Models that push tries with ONNX Runtime: a version whose scores depend on the batch or on padding is rejected."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from model_registry.errors import Refused
from model_registry.onnx_tools import run_golden_examples
from model_registry.onnx_tools.prepare_package import MissingScores, prepare
from model_registry.package.placeholders import BLANK
from tests.support import batch_models, models
from tests.support.batch_models import ALONE, FOUR, GOLDEN

LINES: list[dict[str, Any]] = [
    {"event": {"x": [1.0, 3.0]}, "score": 2.0, "tolerance": 1e-4},
    {"event": {"x": [2.0, 4.0, 9.0]}, "score": 5.0, "tolerance": 1e-4},
]


@pytest.mark.parametrize(
    ("build", "score"), [(batch_models.centred, 0.0), (batch_models.running_sum, 20.0), (batch_models.fixed_inside, 20.0)]
)
def test_a_score_that_depends_on_its_batch_is_rejected_and_right_one_event_at_a_time(
    tmp_path: Path, build: Callable[[Path], None], score: float
) -> None:
    build(tmp_path / "model.onnx")
    batch_models.complete(tmp_path, FOUR, [GOLDEN | {"score": score}])
    with pytest.raises(Refused, match=r"depends on its batch|answers one event at a time, but not 3 events together") as caught:
        prepare(tmp_path)
    assert '"batch": false' in str(caught.value.hint)
    batch_models.complete(tmp_path, ALONE, [GOLDEN | {"score": score}])
    assert prepare(tmp_path).onnxruntime_version


def test_a_version_without_golden_examples_is_probed_too(tmp_path: Path) -> None:
    batch_models.running_sum(tmp_path / "model.onnx")
    batch_models.complete(tmp_path, FOUR, [])
    (tmp_path / "golden.jsonl").unlink()
    with pytest.raises(Refused, match="depends on its batch"):
        prepare(tmp_path)


def test_dynamic_quantisation_is_rejected_unless_the_signature_accepts_its_difference(tmp_path: Path) -> None:
    batch_models.quantised(tmp_path / "model.onnx")
    golden = [
        {"event": {"a": a, "b": 0.213, "c": 0.387, "d": 0.271}, "score": score, "tolerance": 0.05}
        for a, score in ((0.5, 1.8), (0.61, 1.8))
    ]
    batch_models.complete(tmp_path, FOUR, golden)
    with pytest.raises(Refused, match=r"the largest difference is 0\.00\d+"):
        prepare(tmp_path)
    batch_models.complete(tmp_path, FOUR | {"batch_tolerance": 0.05}, golden)
    assert prepare(tmp_path).onnxruntime_version


def test_a_model_that_fails_with_zeros_needs_a_golden_example(tmp_path: Path) -> None:
    x, y = models.tensor("x", TensorProto.INT64, "n"), models.tensor("y", TensorProto.FLOAT, "n")
    nodes = [helper.make_node("Sub", ["x", "three"], ["at"]), helper.make_node("Gather", ["table", "at"], ["y"])]
    table, three = models.constant("table", [0.5, 0.75]), models.constant("three", [3], np.int64)
    models.save(nodes, [x], [y], tmp_path / "model.onnx", [table, three])
    document = {"inputs": [{"tensor": "x", "dtype": "int64", "shape": [], "fields": ["x"]}], "output": {"tensor": "y"}}
    batch_models.complete(tmp_path, document, [])
    (tmp_path / "golden.jsonl").unlink()
    with pytest.raises(Refused, match="cannot run the model") as caught:
        prepare(tmp_path)
    assert caught.value.hint == run_golden_examples.ZEROS
    batch_models.complete(tmp_path, document, [{"event": {"x": 4}, "score": 0.75, "tolerance": 1e-4}])
    assert prepare(tmp_path).onnxruntime_version


def alone_and_tolerant(folder: Path) -> None:
    """Write a package with the golden scores of events alone, whose signature allows other scores in batches."""
    batch_models.quantised(folder / "model.onnx")
    events = [{"event": {"a": a, "b": 0.213, "c": 0.387, "d": 0.271}, "score": BLANK, "tolerance": 1e-4} for a in (0.5, 9.0)]
    batch_models.complete(folder, FOUR | {"batch_tolerance": 0.5}, events)
    with pytest.raises(MissingScores) as caught:
        prepare(folder)
    (folder / "golden.jsonl").write_text(caught.value.lines)


def test_golden_examples_are_compared_alone_if_scores_may_depend_on_their_batch(tmp_path: Path) -> None:
    alone_and_tolerant(tmp_path)
    assert prepare(tmp_path).onnxruntime_version


@pytest.mark.parametrize("marks", ["values", "padding"])
def test_a_mask_of_the_wrong_polarity_is_rejected_and_either_can_be_written(tmp_path: Path, marks: str) -> None:
    batch_models.masked_mean(tmp_path / "model.onnx", marks)
    batch_models.complete(tmp_path, batch_models.masked(marks), LINES)
    assert prepare(tmp_path).onnxruntime_version
    opposite = {"values": "padding", "padding": None}[marks]
    batch_models.complete(tmp_path, batch_models.masked(opposite), LINES)
    with pytest.raises(Refused, match="padded to the length of others") as caught:
        prepare(tmp_path)
    assert "\"marks\" of mask 'mask'" in str(caught.value.hint)


def test_push_prints_the_answer_to_each_event_alone(tmp_path: Path) -> None:
    batch_models.running_sum(tmp_path / "model.onnx")
    batch_models.complete(tmp_path, FOUR, [GOLDEN | {"score": BLANK}] * 2)
    with pytest.raises(MissingScores) as caught:
        prepare(tmp_path)
    assert caught.value.lines.count('"score":20.0') == 2


def test_a_row_of_another_length_than_the_model_declares_is_no_score(tmp_path: Path) -> None:
    x, y = models.tensor("x", TensorProto.FLOAT, "N", 4), models.tensor("y", TensorProto.FLOAT, "N", 1)
    weights = models.constant("w", [[1.0, 2.0]] * 4)
    models.save([helper.make_node("MatMul", ["x", "w"], ["y"])], [x], [y], tmp_path / "model.onnx", [weights])
    (tmp_path / "signature.json").write_text(json.dumps(FOUR))
    with pytest.raises(Refused, match=r"returns output 'y' with the shape \(B, 2\), but declares \(N, 1\)") as caught:
        prepare(tmp_path)
    assert "correct the shape of that output in the model" in str(caught.value.hint)
    models.save(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [x],
        [models.tensor("y", TensorProto.FLOAT, "N", 2)],
        tmp_path / "model.onnx",
        [weights],
    )
    assert prepare(tmp_path).onnxruntime_version


def test_an_answer_without_a_batch_may_be_fed_one_event_at_a_time(tmp_path: Path) -> None:
    x, y = models.tensor("x", TensorProto.FLOAT, "N", 4), models.tensor("y", TensorProto.FLOAT, "K", 2)
    nodes = [helper.make_node("NonZero", ["x"], ["at"]), helper.make_node("Transpose", ["at"], ["places"])]
    nodes.append(helper.make_node("Cast", ["places"], ["y"], to=TensorProto.FLOAT))
    models.save(nodes, [x], [y], tmp_path / "model.onnx")
    (tmp_path / "signature.json").write_text(json.dumps(FOUR))
    with pytest.raises(Refused, match=r"has shape \(0, 2\), not one row for each of 1 events") as caught:
        prepare(tmp_path)
    assert 'one event at a time ("batch": false), with -1 in the "shape" of the output' in str(caught.value.hint)
