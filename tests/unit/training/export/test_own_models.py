"""Models of a custom recipe that contradict the signature: each is refused with a reason."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from publisher.errors import REFUSED, Fatal
from tests.unit.scorer.minimal import minimal
from tests.unit.training.labelled_rows import SIGNATURE, rows
from training.export import parity
from training.export.card import Card
from training.export.export import ExportedPackage, export
from training.snapshot.rows import LabelledRows
from training.snapshot.target import PredictionInterval, Target

CARD = Card("late 1", "own", {}, 7, {"training": 1}, {"AUC": 0.8}, {"Run": "0123"})
OWN = {
    "inputs": [{"tensor": "x", "dtype": "float32", "fields": ["distance"]}],
    "output": {"tensor": "p", "index": 0},
    "decision": {"threshold": 0.5, "at_or_above": "late", "below": "on time"},
}


def exported(
    folder: Path,
    nodes: Sequence[Any],
    of: int,
    shape: Sequence[int | None],
    extra: str = "",
    labelled: LabelledRows | None = None,
) -> ExportedPackage:
    package = folder / "model" / "package"
    package.mkdir(parents=True)
    (package / "signature.json").write_text(json.dumps(OWN))
    inputs, outputs = helper.make_tensor_value_info("x", 1, [None, 1]), helper.make_tensor_value_info("p", of, shape)
    word = numpy_helper.from_array(np.array([["late"]], object), "word")
    graph = helper.make_graph(nodes, "own", [inputs], [outputs], [word])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)
    (package / "model.onnx").write_bytes(model.SerializeToString())
    if extra:
        (package / extra).touch()
    return export(folder / "model", None, labelled or rows(50), SIGNATURE, folder / "out", minimal(), CARD)


SIGMOID = [helper.make_node("Sigmoid", ["x"], ["p"])]


def test_a_model_with_a_separate_signature_is_exported(tmp_path: Path) -> None:
    assert exported(tmp_path, SIGMOID, TensorProto.FLOAT, [None, 1]).scores.shape == (50,)


def test_a_signature_without_the_outputs_of_the_interval_is_refused(tmp_path: Path) -> None:
    target = Target("regression", interval=PredictionInterval("lowest", "highest", 0.8))
    labelled = replace(rows(50), target=target)
    with pytest.raises(Fatal, match=r"its signature has no output 'lowest' of evaluation\.interval") as raised:
        exported(tmp_path, SIGMOID, TensorProto.FLOAT, [None, 1], labelled=labelled)
    assert raised.value.exit_code == REFUSED


def test_an_output_of_texts_is_refused(tmp_path: Path) -> None:
    nodes = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Expand", ["word", "s"], ["p"])]
    with pytest.raises(Fatal, match="the output 'p' of the model has 'late' for an event"):
        exported(tmp_path, nodes, TensorProto.STRING, [None, 1])


def test_an_output_without_the_column_of_the_signature_is_refused() -> None:
    run = {"p": np.zeros((50, 1), np.float32)}
    with pytest.raises(Fatal, match=r"has 1 numbers for each event, but it must have more than 1 \(output\.index\)"):
        parity.scores(lambda _: run, SIGNATURE, Target("binary"), {"x": np.zeros((50, 2))})


@pytest.mark.parametrize("name", ["a\x1b[2J", "a\udcff"])
def test_a_file_with_a_name_that_cannot_be_printed_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(Fatal, match="package/ has a file with the name 'a"):
        exported(tmp_path, SIGMOID, TensorProto.FLOAT, [None, 1], name)
