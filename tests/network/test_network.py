"""The recipe `network` in one process: checkpoints, ONNX beside torch, and degenerate rows."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import optuna
import pytest
import torch
from numpy.typing import NDArray

from model_registry.onnx_tools.prepare_package import golden_lines, prepare
from model_registry.onnx_tools.run_golden_examples import LoadedOnnxModel
from model_registry.package.signature import Signature
from model_registry.package.signature_schema import parse_signature
from publisher.errors import REFUSED, USAGE, Fatal
from tests.network.rows import SIGNATURE, made, of
from training.recipes.network import Network, Perceptron
from training.recipes.network.job_files import CHECKPOINT
from training.recipes.network.model import Parameters
from training.recipes.network.train_loop import adam
from training.snapshot.rows import LabelledRows

PARITY = 1e-6
EPOCHS = 6
ROWS = made(4_000)


def fitted(
    folder: Path, rows: LabelledRows = ROWS, signature: Signature = SIGNATURE, epochs: int = EPOCHS, **params: Any
) -> Perceptron:
    return Network().fit(rows, signature, {"batch": 256, "learning_rate": 3e-3, **params}, epochs, folder, seed=7)


def by_onnx(model: Perceptron, rows: LabelledRows, output: int = 1) -> NDArray[np.float32]:
    """(B,): what ONNX Runtime answers."""
    session = onnxruntime.InferenceSession(model.onnx(), providers=["CPUExecutionProvider"])
    scores: NDArray[np.float32] = session.run(None, dict(rows.tensors))[0][:, output]
    return scores


def digest(model: Perceptron) -> str:
    return hashlib.sha256(model.onnx()).hexdigest()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Perceptron:
    return fitted(tmp_path_factory.mktemp("model"))


def test_it_learns(model: Perceptron) -> None:
    rows = made(4_000, seed=2)
    scores = model.scores(rows.tensors)
    late, on_time = scores[rows.outcomes == 1], scores[rows.outcomes == 0]
    assert (late[:, None] > on_time).mean() > 0.85


@pytest.mark.parametrize("params", [{"width": 256, "depth": 3}, {"width": 1, "depth": 1}, {"dropout": 0.3}])
def test_onnx_answers_what_torch_does(tmp_path: Path, params: dict[str, Any]) -> None:
    model = fitted(tmp_path, **params)
    assert np.abs(by_onnx(model, ROWS) - model.scores(ROWS.tensors)).max() <= PARITY


def test_a_larger_budget_continues_and_a_smaller_one_is_kept(tmp_path: Path, model: Perceptron) -> None:
    small = digest(fitted(tmp_path, epochs=2))
    assert digest(fitted(tmp_path)) == digest(model)
    assert sorted(path.name for path in tmp_path.glob(f"*{CHECKPOINT}")) == ["2.npz", f"{EPOCHS}.npz"]
    begin = (tmp_path / "2.npz").stat().st_mtime_ns
    assert digest(fitted(tmp_path, epochs=2)) == small
    assert (tmp_path / "2.npz").stat().st_mtime_ns == begin


def test_a_budget_below_every_checkpoint_restarts(tmp_path: Path) -> None:
    fitted(tmp_path)
    assert digest(fitted(tmp_path, epochs=2)) == digest(fitted(tmp_path / "other", epochs=2))


def test_the_optimizer_is_that_of_torch() -> None:
    chance = np.random.default_rng(1)
    ours, mean, square = (torch.tensor(array) for array in (chance.normal(size=50), np.zeros(50), np.zeros(50)))
    theirs = ours.clone()
    torchs = torch.optim.AdamW([theirs], lr=0.01, weight_decay=0.1)
    for steps in range(1, 30):
        theirs.grad = torch.tensor(chance.normal(size=50))
        torchs.step()
        adam(ours, theirs.grad, mean, square, steps, Parameters(learning_rate=0.01, weight_decay=0.1))
    assert np.abs(ours.numpy() - theirs.numpy()).max() < 1e-12


def test_another_seed_is_another_model(tmp_path: Path, model: Perceptron) -> None:
    params = {"batch": 256, "learning_rate": 3e-3}
    assert digest(Network().fit(ROWS, SIGNATURE, params, EPOCHS, tmp_path, seed=8)) != digest(model)


def test_checkpoints_of_another_training_are_refused(tmp_path: Path) -> None:
    fitted(tmp_path, epochs=1)
    with pytest.raises(Fatal, match="other rows, parameters or seed") as caught:
        fitted(tmp_path, epochs=2, width=32)
    assert caught.value.exit_code == REFUSED


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    fitted(tmp_path, epochs=1)
    path = tmp_path / f"1{CHECKPOINT}"
    path.write_bytes(path.read_bytes()[:1_000])
    with pytest.raises(Fatal, match=r"1\.npz cannot be read") as caught:
        fitted(tmp_path, epochs=2)
    assert "remove this file" in caught.value.hint


@pytest.mark.parametrize("params", [{"widht": 64}, {"width": 0}, {"width": "wide"}, {"dropout": 1.0}, {"batch": 4}])
def test_other_parameters_are_refused(tmp_path: Path, params: dict[str, Any]) -> None:
    with pytest.raises(Fatal, match="parameters of the recipe network") as caught:
        fitted(tmp_path, **params)
    assert caught.value.exit_code == USAGE


def test_infinite_weights_are_reported(tmp_path: Path) -> None:
    fitted(tmp_path, epochs=1)
    with np.load(tmp_path / "1.npz") as checkpoint:
        arrays = dict(checkpoint)
    arrays["weights"][5] = np.inf
    np.savez(tmp_path / "1.npz", **arrays)
    with pytest.raises(Fatal, match="infinite within 2 epochs") as caught:
        fitted(tmp_path, epochs=2)
    assert "learning_rate" in caught.value.hint


def test_missing_gpus_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Fatal, match="but torch finds 0"):
        Network(gpus=2).fit(ROWS, SIGNATURE, {}, 1, tmp_path, seed=1)


def test_every_suggestion_can_be_trained(tmp_path: Path) -> None:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    rows = made(600)
    digests = set()
    for number in range(4):
        params = Network().suggest(study.ask())
        digests.add(digest(Network().fit(rows, SIGNATURE, params, 1, tmp_path / str(number), seed=1)))
    assert len(digests) == 4


HOSTILE: dict[str, Callable[[dict[str, NDArray[Any]]], None]] = {
    "constant columns": lambda tensors: tensors["x"].fill(3),
    "a column without a number": lambda tensors: tensors["x"][:, 1].fill(np.nan),
    "no number at all": lambda tensors: tensors["x"].fill(np.nan),
    "infinities": lambda tensors: tensors["x"][::7].fill(np.inf),
    "the largest numbers": lambda tensors: tensors["x"][::3].fill(np.finfo(np.float32).max),
    "the smallest numbers": lambda tensors: tensors["x"][::3].fill(np.finfo(np.float32).smallest_subnormal),
    "one category": lambda tensors: tensors["carrier"].fill("only"),
    "a name each": lambda tensors: tensors["dest"].__setitem__((slice(None), 0), [f"n{at}" for at in range(len(ROWS))]),
    "empty names": lambda tensors: tensors["dest"][::2].fill(""),
    "names of any letters": lambda tensors: tensors["dest"][::2].fill('Zürich \N{AIRPLANE}\t"\\'),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_degenerate_rows_give_a_model(tmp_path: Path, name: str) -> None:
    tensors = {tensor: values.copy() for tensor, values in ROWS.tensors.items()}
    HOSTILE[name](tensors)
    rows = of(tensors, ROWS.outcomes)
    model = fitted(tmp_path, rows, epochs=2)
    for scored_rows in (rows, ROWS):  # the training rows, and unknown rows
        scores = model.scores(scored_rows.tensors)
        assert np.isfinite(scores).all()
        assert np.abs(by_onnx(model, scored_rows) - scores).max() <= PARITY


def test_an_unknown_name_is_like_a_rare_one(tmp_path: Path) -> None:
    """Rare and hidden names train the representation of an unknown one."""
    tensors = {tensor: values.copy() for tensor, values in ROWS.tensors.items()}
    tensors["dest"][:4] = "rare"
    model = fitted(tmp_path, of(tensors, ROWS.outcomes))
    inputs = {tensor: values[4:44].copy() for tensor, values in tensors.items()}
    scores = []
    for name in ("rare", "never seen", "\N{AIRPLANE}", ""):
        inputs["dest"][:] = name
        scores.append(model.scores(inputs))
        assert np.abs(by_onnx(model, of(inputs, ROWS.outcomes[4:44])) - scores[-1]).max() <= PARITY
    assert all((result == scores[0]).all() for result in scores)
    assert (model.scores({tensor: values[4:44] for tensor, values in tensors.items()}) != scores[0]).any()


SHAPES = parse_signature(
    b"""{"inputs": [
    {"tensor": "ids", "dtype": "int64", "fields": ["a", "b"]}, {"tensor": "on", "dtype": "bool", "fields": ["c"]},
    {"tensor": "grid", "dtype": "float64", "fields": [{"name": "g", "array": true, "length": 6}], "shape": [2, 3]},
    {"tensor": "half", "dtype": "float16", "fields": ["h"]}, {"tensor": "words", "dtype": "string", "fields": ["v", "w"]}],
    "output": {"tensor": "score"}, "labels": null}"""
)


def test_any_dtype_shape_and_a_single_probability(tmp_path: Path) -> None:
    chance, count = np.random.default_rng(1), 1_000
    tensors: dict[str, NDArray[Any]] = {
        "ids": chance.integers(-(1 << 62), 1 << 62, (count, 2)),
        "on": chance.random((count, 1)) < 0.5,
        "grid": 1.7e12 + chance.normal(size=(count, 2, 3)),  # more digits than float32 has
        "half": chance.normal(size=(count, 1)).astype(np.float16),
        "words": chance.choice(["a", "b", "c"], (count, 2)).astype(object),
    }
    rows = of(tensors, (tensors["grid"][:, 0, 0] > 1.7e12).astype(np.int8))
    model = fitted(tmp_path, rows, SHAPES, epochs=20)
    assert np.abs(by_onnx(model, rows, 0) - model.scores(tensors)).max() <= PARITY
    assert ((model.scores(tensors) > 0.5) == (rows.outcomes == 1)).mean() > 0.9


def test_push_accepts_it(tmp_path: Path, model: Perceptron) -> None:
    """Checked as a folder that is to become a version: safe, signed for, and its golden examples hold."""
    (tmp_path / "model.onnx").write_bytes(model.onnx())
    (tmp_path / "signature.json").write_text(SIGNATURE.to_json())
    events = [{"delay": None, "distance": 100.0, "hour": 7, "carrier": "carrier-1", "dest": name} for name in ("dest-1", "?")]
    events.append({"delay": 60.5, "distance": 2_000.0, "hour": 23, "carrier": "", "dest": "dest-2"})
    (tmp_path / "golden.jsonl").write_text(golden_lines(LoadedOnnxModel(tmp_path / "model.onnx", SIGNATURE), events))
    ready = prepare(tmp_path)
    assert len(ready.package.golden) == 3
    assert ready.onnxruntime_version
