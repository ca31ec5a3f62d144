"""The recipe `network` for several classes and for numbers: it learns, ONNX answers the same, and the bytes never vary."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

from model_registry.package.signature import Argmax, Output, Signature
from publisher.errors import REFUSED, USAGE, Fatal
from tests.network.rows import SIGNATURE, made
from training.export import parity
from training.recipes.network import Network, Perceptron
from training.snapshot.rows import LabelledRows
from training.snapshot.target import Target
from training.validation_gate.metrics import constant, default_metric, evaluate

NAMES = ("early", "on time", "late")
THREE, MINUTES, UPPER = Target("classes", NAMES), Target("regression"), Target("regression", quantile=0.9)
CLASSES = Signature(SIGNATURE.inputs, (Output(None, "p"),), labels=NAMES, decision=Argmax())
NUMBERS = Signature(SIGNATURE.inputs, (Output(None, "minutes", 0),))
TARGETS = pytest.mark.parametrize("target", [THREE, MINUTES, UPPER], ids=["classes", "mean", "quantile"])
EPOCHS = 8


def signature_of(target: Target) -> Signature:
    return CLASSES if target.kind == "classes" else NUMBERS


def labelled(target: Target, seed: int = 1, unit: float = 1.0, count: int = 4_000) -> LabelledRows:
    """Rows whose number of minutes, or whose class, depends on the delay and the destination, and on chance."""
    plain = made(count, seed)
    noise = np.random.default_rng(seed + 100).normal(size=count)
    late = np.array([int(name.removeprefix("dest-")) % 3 for name in plain.tensors["dest"][:, 0]])
    minutes = np.nan_to_num(plain.tensors["x"][:, 0].astype(np.float64)) + 20 * late + 10 * noise
    outcomes = np.digitize(minutes, [10, 35]) if target.kind == "classes" else unit * minutes
    return replace(plain, outcomes=outcomes.astype(target.dtype), target=target)


def fitted(
    target: Target, folder: Path, epochs: int = EPOCHS, workers: int = 1, unit: float = 1.0, **params: Any
) -> Perceptron:
    rows = labelled(target, unit=unit)
    parameters = {"batch": 256, "learning_rate": 3e-3, **params}
    return Network().fit(rows, signature_of(target), parameters, epochs, folder, seed=7, workers=workers)


def by_onnx(model: Perceptron, rows: LabelledRows) -> NDArray[np.float32]:
    session = onnxruntime.InferenceSession(model.onnx(), providers=["CPUExecutionProvider"])
    result: NDArray[np.float32] = session.run(None, dict(rows.tensors))[0]
    return result


@TARGETS
def test_model_is_better_than_a_constant_prediction(target: Target, tmp_path: Path) -> None:
    later = labelled(target, seed=2)
    metric = default_metric(target)
    simple = evaluate(target, constant(target, later.outcomes, metric).scores, later.outcomes)[metric]
    scores = fitted(target, tmp_path).scores(later.tensors)
    assert evaluate(target, scores, later.outcomes)[metric] < 0.7 * simple
    if target.quantile is not None:
        assert 0.87 < (later.outcomes <= scores).mean() < 0.93


@TARGETS
@pytest.mark.parametrize("unit", [1.0, 1e6])
def test_exported_model_has_the_scores_of_torch_in_any_unit(target: Target, unit: float, tmp_path: Path) -> None:
    model = fitted(target, tmp_path, epochs=3, unit=unit, dropout=0.1)
    rows = labelled(target, seed=2, unit=unit)
    assert by_onnx(model, rows).shape == (4_000, 3 if target.kind == "classes" else 1)
    session = onnxruntime.InferenceSession(model.onnx(), providers=["CPUExecutionProvider"])

    def run(tensors: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        return {output.name: values for output, values in zip(session.get_outputs(), session.run(None, tensors), strict=True)}

    scores, difference = parity.check(run, model, rows, signature_of(target))
    assert difference <= parity.LARGEST
    assert scores.shape == ((4_000, 3) if target.kind == "classes" else (4_000,))


@TARGETS
def test_interruptions_and_processes_leave_the_bytes_unchanged(target: Target, tmp_path: Path) -> None:
    expected = fitted(target, tmp_path / "one").onnx()
    fitted(target, tmp_path / "resumed", epochs=3)
    assert fitted(target, tmp_path / "resumed").onnx() == expected
    assert fitted(target, tmp_path / "two", workers=2).onnx() == expected


def test_columns_of_the_score_are_the_classes_in_their_order(tmp_path: Path) -> None:
    later = labelled(THREE, seed=2)
    probabilities = by_onnx(fitted(THREE, tmp_path), later)
    assert probabilities.sum(axis=1) == pytest.approx(1, abs=1e-5)
    for at in range(3):
        assert probabilities[later.outcomes == at, at].mean() > 1.5 * probabilities[later.outcomes != at, at].mean()


def test_number_may_have_an_output_without_columns(tmp_path: Path) -> None:
    flat = Signature(SIGNATURE.inputs, (Output(None, "minutes", shape=()),))
    rows = labelled(MINUTES)
    model = Network().fit(rows, flat, {"width": 8}, 1, tmp_path, seed=1)
    assert by_onnx(model, rows) == pytest.approx(model.scores(rows.tensors), rel=1e-6)


def test_checkpoints_of_another_quantile_are_refused(tmp_path: Path) -> None:
    fitted(UPPER, tmp_path, epochs=1)
    with pytest.raises(Fatal, match="other rows, parameters or seed") as caught:
        fitted(Target("regression", quantile=0.5), tmp_path, epochs=2)
    assert caught.value.exit_code == REFUSED


def test_labels_that_do_not_fit_the_signature_are_refused_by_name() -> None:
    with pytest.raises(Fatal, match="has labels, but the label is a number") as caught:
        Network().check(CLASSES, MINUTES)
    assert caught.value.exit_code == USAGE
