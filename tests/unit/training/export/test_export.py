"""The package of a trained model: reproducible, with golden examples by a rule, and accepted by a scorer."""

import dataclasses
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from model_registry.package import read
from model_registry.package.signature import Argmax, InputField, Output, Signature, TensorInput
from publisher.errors import REFUSED, Fatal
from tests.unit.scorer.minimal import minimal
from tests.unit.training.labelled_rows import NAN, SIGNATURE, rows
from training.export import card, examples
from training.export.card import Card
from training.export.export import ExportedPackage, export
from training.recipes.trees import FittedTrees, Trees
from training.snapshot.rows import LabelledRows
from training.snapshot.target import Target

HOLD_OUT = rows(500, seed=5)
CARD = Card(
    "late 20260801-0123456789ab",
    "trees",
    {"num_leaves": 9, "learning_rate": 0.1},
    7,
    {"training": 600},
    {"AUC": 0.8},
    {"Run": "0123"},
)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> FittedTrees:
    return Trees().fit(rows(600), SIGNATURE, {"num_leaves": 9}, 20, tmp_path_factory.mktemp("trees"), seed=7)


def exported(
    fitted: Any, folder: Path, signature: Signature = SIGNATURE, hold_out: LabelledRows = HOLD_OUT, **scorer: Any
) -> ExportedPackage:
    source = folder.with_name(f"{folder.name}-model")
    source.mkdir(exist_ok=True)
    (source / "model.onnx").write_bytes(fitted.onnx())
    try:
        return export(source, fitted, hold_out, signature, folder, minimal(**scorer), CARD)
    finally:
        shutil.rmtree(source)


class DifferingModel:
    """A model whose ONNX graph gives another score to one new carrier."""

    def __init__(self, fitted: FittedTrees, by: float) -> None:
        self._fitted, self._by = fitted, by
        self.onnx = fitted.onnx

    def scores(self, tensors: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
        new = ~np.isin(tensors["carrier"][:, 0].astype(str), [f"C{n}" for n in range(9)])
        return self._fitted.scores(tensors) + np.where(new & (np.arange(len(new)) == 3), self._by, 0)


def test_the_same_model_gives_the_same_package(fitted: FittedTrees, tmp_path: Path) -> None:
    first, second = exported(fitted, tmp_path / "a"), exported(fitted, tmp_path / "b")
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == ["README.md", "golden.jsonl", "model.onnx", "signature.json"]
    assert [(tmp_path / "a" / name).read_bytes() for name in names] == [(tmp_path / "b" / name).read_bytes() for name in names]
    assert first.parity == second.parity
    assert first.parity is not None
    assert first.parity < 3e-7
    assert np.abs(first.scores - fitted.scores(HOLD_OUT.tensors)).max() <= first.parity
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_the_package_reads_as_it_was_returned(fitted: FittedTrees, tmp_path: Path) -> None:
    exported_package = exported(fitted, tmp_path / "p")
    assert read(tmp_path / "p") == exported_package.package
    assert exported_package.package.signature == SIGNATURE


def test_an_earlier_package_is_replaced_as_a_whole(fitted: FittedTrees, tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "old").touch()
    (tmp_path / ".p.part").mkdir()
    exported(fitted, tmp_path / "p")
    assert [path.name for path in tmp_path.iterdir()] == ["p"]
    assert not (tmp_path / "p" / "old").exists()


def test_examples_are_the_extremes_the_classes_and_missing_values(fitted: FittedTrees, tmp_path: Path) -> None:
    exported_package = exported(fitted, tmp_path / "p")
    golden, scores = exported_package.package.golden, exported_package.scores
    example_scores = [example.score for example in golden if isinstance(example.score, float)]
    assert [min(example_scores), max(example_scores)] == pytest.approx([scores.min(), scores.max()])
    chosen = examples.chosen(HOLD_OUT, scores, SIGNATURE)
    assert len(chosen) == len(golden)
    assert set(HOLD_OUT.outcomes[chosen].tolist()) == {0, 1}
    assert np.argsort(scores, kind="stable")[250] in chosen
    incomplete = [example.event for example in golden if "delay" not in example.event]
    assert incomplete
    first = int(np.flatnonzero(np.isnan(HOLD_OUT.tensors["x"][:, 0]))[0])
    assert incomplete[0]["distance"] == HOLD_OUT.tensors["x"][first, 1]
    assert all(example.event.keys() <= {field.name for field in SIGNATURE.fields} for example in golden)


def test_events_have_their_values_at_their_paths_and_under_their_names() -> None:
    a = InputField("a", "float32", path=("after", "a"))
    inputs = (
        TensorInput("a", "float32", (a, InputField("b", "float32", False, NAN, path=("after", "b")))),
        TensorInput("v", "int64", (InputField("v", "int64", array=2, path=("items", 1, "v")),)),
        TensorInput("t", "int64", (InputField("t", "int64", source="time"),)),
        TensorInput("a2", "float32", (a,)),
    )
    signature = Signature(inputs, (Output(None, "p"),), labels=("no", "yes"), decision=Argmax())
    tensors = {
        "a": np.array([[1.5, NAN]], np.float32),
        "v": np.array([[1, 2]]),
        "t": np.array([[9]]),
        "a2": np.array([[1.5]], np.float32),
    }
    single_row = dataclasses.replace(HOLD_OUT.select(np.array([0])), tensors=tensors)
    (line,) = examples.lines(single_row, {"p": np.array([[0.25, 0.75]], np.float32)}, signature)
    event = {"after": {"a": 1.5}, "items": [None, {"v": [1, 2]}], "t": 9}
    assert json.loads(line) == {"event": event, "score": [0.25, 0.75], "tolerance": 1e-4}


def test_tolerance_of_several_numbers_is_a_share_of_the_largest_one() -> None:
    outputs = tuple(Output(name, name, 0) for name in ("minutes", "low"))
    signature = Signature((TensorInput("x", "float32", (InputField("a", "float32"),)),), outputs)
    single_row = dataclasses.replace(rows(1), tensors={"x": np.array([[1.0]], np.float32)}, target=Target("regression"))
    answers = {"minutes": np.array([[20.0]], np.float32), "low": np.array([[-300.0]], np.float32)}
    (line,) = examples.lines(single_row, answers, signature)
    assert json.loads(line) == {
        "event": {"a": 1.0},
        "score": {"minutes": 20.0, "low": -300.0},
        "tolerance": pytest.approx(examples.TOLERANCE * 300),
    }


def test_a_model_that_differs_for_a_new_value_is_refused_with_the_event(fitted: FittedTrees, tmp_path: Path) -> None:
    parity = exported(DifferingModel(fitted, 5e-7), tmp_path / "near").parity
    assert parity is not None
    assert parity > 4e-7
    with pytest.raises(Fatal) as raised:
        exported(DifferingModel(fitted, 3e-6), tmp_path / "far")
    assert str(raised.value).startswith("the ONNX model scores the event flights[0]@3 with a new 'carrier' 0.")
    assert raised.value.exit_code == REFUSED
    assert not (tmp_path / "far").exists()


def test_a_package_that_a_scorer_would_refuse_is_refused(fitted: FittedTrees, tmp_path: Path) -> None:
    other = Signature(SIGNATURE.inputs, (Output(None, "q", 1),))
    with pytest.raises(Fatal, match="the exported model cannot be served: the signature reads output 'q'") as raised:
        exported(fitted, tmp_path / "p", other)
    assert raised.value.exit_code == REFUSED


def test_the_card_has_recipe_rows_and_metrics(fitted: FittedTrees, tmp_path: Path) -> None:
    exported(fitted, tmp_path / "p")
    card_text = (tmp_path / "p" / "README.md").read_text()
    assert card_text.startswith("# late 20260801-0123456789ab\n")
    for row in ("| Run | 0123 |", "| `num_leaves` | 9 |", "| Seed | 7 |", "| Events: training | 600 |", "| AUC | 0.8000 |"):
        assert row in card_text
    assert card.text(CARD, 1e-7, 5) == card.text(CARD, 1e-7, 5)
