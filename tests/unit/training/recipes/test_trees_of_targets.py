"""Trees for several classes and for numbers: better than a constant, the same in ONNX, and one model after an interruption."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

from model_registry.package.signature import Argmax, Output, Signature
from publisher.errors import USAGE, Fatal
from tests.unit.training.labelled_rows import SIGNATURE, rows
from training.recipes import check_signature
from training.recipes.encoding import learned, ordering_numbers
from training.recipes.trees import CHUNK, FittedTrees, Trees
from training.snapshot.rows import LabelledRows
from training.snapshot.target import Target
from training.validation_gate.metrics import constant, evaluate

NAMES = ("early", "on time", "late")
THREE, NUMBER = Target("classes", NAMES), Target("regression")
CLASSES = Signature(SIGNATURE.inputs, (Output(None, "p"),), labels=NAMES, decision=Argmax())
MINUTES = Signature(SIGNATURE.inputs, (Output(None, "minutes", 0),))
SIGNATURES = {"classes": CLASSES, "regression": MINUTES}
VARIED = {"bagging_fraction": 0.7, "feature_fraction": 0.7, "min_data_in_leaf": 5}


def with_target(target: Target, count: int = 900, seed: int = 1, unit: float = 1.0) -> LabelledRows:
    """Return rows whose number of minutes or class depends on delay and carrier."""
    plain = rows(count, seed)
    delay = np.nan_to_num(plain.tensors["x"][:, 0].astype(np.float64))
    carrier = np.array([int(name[1:]) for name in plain.tensors["carrier"][:, 0]])
    minutes = delay + 3 * (carrier * 7 % 9) + 10 * plain.outcomes
    outcomes = np.digitize(minutes, [0, 30]) if target.kind == "classes" else unit * minutes
    return replace(plain, outcomes=outcomes.astype(target.dtype), target=target)


def fitted(target: Target, folder: Path, budget: int = 30, unit: float = 1.0) -> FittedTrees:
    return Trees().fit(with_target(target, unit=unit), SIGNATURES[target.kind], VARIED, budget, folder, seed=7)


def run(fitted_model: FittedTrees, labelled: LabelledRows) -> NDArray[np.float32]:
    session = onnxruntime.InferenceSession(fitted_model.onnx(), providers=["CPUExecutionProvider"])
    result: NDArray[np.float32] = session.run(None, dict(labelled.tensors))[0]
    return result


@pytest.mark.parametrize(("target", "metric", "width"), [(THREE, "log_loss", 3), (NUMBER, "rmse", 1)])
def test_a_model_is_better_than_a_constant_and_the_same_in_onnx(
    target: Target, metric: str, width: int, tmp_path: Path
) -> None:
    later = with_target(target, 500, seed=2)
    model = fitted(target, tmp_path)
    scores = model.scores(later.tensors)
    simple = evaluate(target, constant(target, later.outcomes, metric).scores, later.outcomes)[metric]
    assert evaluate(target, scores, later.outcomes)[metric] < 0.7 * simple
    result = run(model, later)
    assert result.shape == (500, width)
    assert np.allclose(result, scores.reshape(500, width), rtol=1e-6, atol=3e-7)


@pytest.mark.parametrize("target", [THREE, NUMBER])
def test_a_training_that_continues_ends_in_the_same_bytes(target: Target, tmp_path: Path) -> None:
    unbroken = fitted(target, tmp_path / "unbroken", 2 * CHUNK + 5).onnx()
    fitted(target, tmp_path / "resumed", CHUNK + 1)
    assert fitted(target, tmp_path / "resumed", 2 * CHUNK + 5).onnx() == unbroken
    assert fitted(target, tmp_path / "resumed", CHUNK + 1).onnx() == fitted(target, tmp_path / "short", CHUNK + 1).onnx()


def test_a_quantile_of_the_numbers_is_trained_and_is_the_same_in_onnx(tmp_path: Path) -> None:
    upper = Target("regression", quantile=0.9)
    later = with_target(upper, 600, seed=2)
    model = fitted(upper, tmp_path / "upper", 2 * CHUNK + 5)
    scores = model.scores(later.tensors)
    simple = evaluate(upper, constant(upper, later.outcomes, "quantile_loss").scores, later.outcomes)["quantile_loss"]
    mean = evaluate(upper, fitted(NUMBER, tmp_path / "mean").scores(later.tensors), later.outcomes)["quantile_loss"]
    loss = evaluate(upper, scores, later.outcomes)["quantile_loss"]
    assert loss < 0.5 * simple
    assert loss < mean
    assert 0.75 < (later.outcomes <= scores).mean() < 0.97
    assert np.allclose(run(model, later)[:, 0], scores, rtol=1e-6, atol=3e-7)
    fitted(upper, tmp_path / "resumed", CHUNK + 1)
    assert fitted(upper, tmp_path / "resumed", 2 * CHUNK + 5).onnx() == model.onnx()


def test_large_numbers_keep_the_precision_of_their_output(tmp_path: Path) -> None:
    model = fitted(NUMBER, tmp_path, unit=1e6)
    later = with_target(NUMBER, 300, seed=2, unit=1e6)
    assert np.allclose(run(model, later)[:, 0], model.scores(later.tensors), rtol=1e-6)


def test_a_regression_may_have_an_output_without_columns(tmp_path: Path) -> None:
    model = replace(fitted(NUMBER, tmp_path), signature=Signature(SIGNATURE.inputs, (Output(None, "minutes", shape=()),)))
    assert run(model, with_target(NUMBER, 50)).shape == (50,)


def test_categories_of_several_classes_are_ordered_by_the_share_of_the_less_frequent_ones() -> None:
    outcomes = np.array([1, 1, 1, 0, 2, 1], np.int16)
    names = np.array([["a"], ["a"], ["b"], ["b"], ["c"], ["a"]], object)
    signature = Signature((SIGNATURE.inputs[2],), CLASSES.outputs)
    assert ordering_numbers(THREE, outcomes).tolist() == [0, 0, 0, 1, 1, 0]
    encoding = learned({"carrier": names}, ordering_numbers(THREE, outcomes), signature)
    assert encoding.columns[0].names == ("a", "b", "c")


@pytest.mark.parametrize(
    ("signature", "target", "message"),
    [
        (replace(CLASSES, outputs=(Output(None, "p", 1),)), THREE, "is read at column 1, but there are 3 classes"),
        (replace(CLASSES, outputs=(Output(None, "p", shape=(4,)),)), THREE, "has the shape [4], but there are 3 classes: [3]"),
        (replace(CLASSES, labels=("late", "on time", "early")), THREE, "its labels are ['late', 'on time', 'early'], but the"),
        (CLASSES, NUMBER, "output 'p' has labels, but the label is a number"),
        (
            replace(MINUTES, outputs=(Output(None, "p", shape=(2,)),)),
            NUMBER,
            "is a row of numbers, but the label is one number",
        ),
    ],
)
def test_signatures_that_contradict_the_target_are_refused_by_name(signature: Signature, target: Target, message: str) -> None:
    with pytest.raises(Fatal) as raised:
        check_signature.check(signature, target, "trees")
    assert (message in str(raised.value), raised.value.exit_code) == (True, USAGE)
