"""The recipe `network` without torch: the supported signatures, the encoding, and the results of its graph."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import softmax

from model_registry.package.signature import Signature
from model_registry.package.signature_schema import parse_signature
from publisher.errors import REFUSED, USAGE, Fatal
from training.recipes.network import Network, job_files
from training.recipes.network.encoding import RARE, learned
from training.recipes.network.head import Head, create_head
from training.recipes.network.job_files import Encoded, State
from training.recipes.network.model import SHARDS, Parameters, first, shapes, views
from training.recipes.network.to_onnx import onnx
from training.recipes.network.train_loop import added, processes
from training.snapshot.target import ZERO_OR_ONE, Target, TargetKind

X = {"tensor": "x", "dtype": "float32", "fields": ["a", "b"]}
NAMES = {"tensor": "name", "dtype": "string", "fields": ["name"]}
SINGLE_OUTPUT = {"tensor": "p"}


def signature(*inputs: dict[str, Any], output: Any = SINGLE_OUTPUT, **more: Any) -> Signature:
    return parse_signature(json.dumps({"inputs": inputs or [X, NAMES], "output": output, "labels": None, **more}))


@pytest.mark.parametrize(
    ("declared", "at"),
    [
        (signature(), 0),
        (signature(output={"tensor": "p", "index": 0}), 0),
        (signature(output={"tensor": "p", "index": 1}), 1),
        (signature(output={"tensor": "p", "shape": [2]}), 1),
        (signature(labels=["no", "yes"]), 1),
    ],
)
def test_the_probability_is_in_the_column_that_the_signature_reads(declared: Signature, at: int) -> None:
    Network().check(declared, ZERO_OR_ONE)
    rows = {"x": np.ones((3, 2), np.float32), "name": np.full((3, 1), "n", object)}
    model = onnx(declared, learned(rows, declared), weights_of(declared, rows))
    (output,) = onnxruntime.InferenceSession(model).run(["p"], rows)
    assert output.shape == (3, at + 1)
    assert at == 0 or output.sum(axis=1) == pytest.approx(1)


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (signature(output={"tensor": "p", "index": 2}), "is read at column 2"),
        (signature(labels=["a", "b", "c"]), "it has 3 labels"),
        (signature(output={"tensor": "p", "shape": [-1]}), r"has the shape \[-1\]"),
        (signature(output={"tensor": "p", "shape": []}), "has no dimension except the batch"),
        (signature(output=[{"name": "p", "tensor": "p"}, {"name": "q", "tensor": "q"}]), "it has 2 outputs"),
    ],
)
def test_other_outputs_are_refused(declared: Signature, message: str) -> None:
    with pytest.raises(Fatal, match=message) as caught:
        Network().check(declared, ZERO_OR_ONE)
    assert caught.value.exit_code == USAGE


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        ({"tensor": "x", "dtype": "float32", "fields": ["a"], "batch": False}, "'x' has no batch dimension"),
        (
            {"tensor": "t", "dtype": "int64", "fields": [{"name": "t", "array": True, "max_length": 9}], "shape": [-1]},
            "'t' has a variable length",
        ),
    ],
)
def test_other_tensors_are_refused(tensor: dict[str, Any], message: str) -> None:
    with pytest.raises(Fatal, match=message):
        Network().check(signature(tensor, NAMES), ZERO_OR_ONE)


def weights_of(declared: Signature, rows: dict[str, Any]) -> list[Any]:
    encoding = learned(rows, declared)
    layout = shapes(encoding, Parameters(width=7, depth=2))
    return views(first(layout, len(encoding.vocabularies), seed=5), layout)


def layers(weights: list[Any], numbers: Any, names: Any) -> Any:
    """Compute the outputs of the network with numpy in float64."""
    tables = [weights[at][names[:, at]] for at in range(names.shape[1])]
    hidden = np.concatenate([numbers, *tables], axis=1).astype(np.float64)
    parts = weights[names.shape[1] :]
    for at in range(0, len(parts) - 2, 2):
        hidden = np.maximum(hidden @ parts[at].T + parts[at + 1], 0)
    return hidden @ parts[-2].T + parts[-1]


def answer(weights: list[Any], numbers: Any, names: Any) -> Any:
    """Compute the probabilities with numpy in float64."""
    return 1 / (1 + np.exp(-layers(weights, numbers, names)[:, 0]))


@given(numbers=arrays(np.float32, (40, 2)), letters=st.lists(st.text(max_size=3), min_size=1, max_size=4))
def test_the_graph_is_the_encoding_and_the_layers(numbers: Any, letters: list[str]) -> None:
    names = np.array([letters[at % len(letters)] for at in range(40)], object)[:, None]
    rows, stated_signature = {"x": numbers, "name": names}, signature()
    encoding, weights = learned(rows, stated_signature), weights_of(stated_signature, rows)
    encoded, indices = encoding.numeric(rows), encoding.named(rows)
    assert np.isfinite(encoded).all()
    assert np.abs(encoded).max() <= 10.001
    (output,) = onnxruntime.InferenceSession(onnx(stated_signature, encoding, weights)).run(None, rows)
    assert np.abs(output[:, 0] - answer(weights, encoded, indices)).max() < 1e-5
    assert onnx(stated_signature, encoding, weights) == onnx(
        stated_signature, learned(rows, stated_signature), weights_of(stated_signature, rows)
    )


@pytest.mark.parametrize(("kind", "shape"), [("classes", (3,)), ("regression", (1,)), ("regression", ())])
def test_graph_of_other_targets_ends_in_probabilities_or_numbers(kind: TargetKind, shape: tuple[int, ...]) -> None:
    names = ("a", "b", "c")
    declared = signature(labels=names) if kind == "classes" else signature(output={"tensor": "p", "shape": shape})
    rows = {"x": np.arange(12, dtype=np.float32).reshape(6, 2), "name": np.full((6, 1), "n", object)}
    encoding = learned(rows, declared)
    head = Head(Target(kind, names if kind == "classes" else ()), mean=1e6, deviation=2e5)
    layout = shapes(encoding, Parameters(width=7, depth=2), head.outputs)
    weights = views(first(layout, len(encoding.vocabularies), seed=5), layout)
    outputs = layers(weights, encoding.numeric(rows), encoding.named(rows))
    expected = softmax(outputs, axis=1) if kind == "classes" else 1e6 + 2e5 * outputs[:, 0]
    (output,) = onnxruntime.InferenceSession(onnx(declared, encoding, weights, head)).run(None, rows)
    assert output.shape == (6, *shape)
    assert output.reshape(expected.shape) == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_labels_of_a_regression_are_standardized_in_any_unit() -> None:
    outcomes = np.random.default_rng(1).normal(30, 5, 1_000)
    encoded = [create_head(Target("regression"), unit * outcomes).encoded(unit * outcomes) for unit in (1.0, 1e9)]
    assert (encoded[0].mean(), encoded[0].std()) == (pytest.approx(0, abs=1e-6), pytest.approx(1))
    assert encoded[1] == pytest.approx(encoded[0], abs=1e-6)
    assert create_head(Target("classes", ("a", "b", "c")), outcomes).encoded(np.array([2, 0], np.int16)).tolist() == [2, 0]


@pytest.mark.parametrize("outcomes", [[1e200, -1e200], [3.0, 3.0]])
def test_labels_that_cannot_be_standardized_are_refused_with_their_deviation(outcomes: list[float]) -> None:
    with pytest.raises(Fatal, match=r"recipe network: the labels have the mean .* and the standard deviation") as caught:
        create_head(Target("regression"), np.array(outcomes))
    assert caught.value.exit_code == REFUSED


def test_numbers_are_standardised_and_names_that_are_rare_are_unknown() -> None:
    x = np.array([[1, 5], [3, 5], [np.nan, 5], [np.inf, 5]] * 3, np.float32)
    names = np.array(["b"] * RARE + ["a"] * RARE + ["rare"] * 2, object)[:, None]
    encoding = learned({"x": x, "name": names}, signature())
    assert encoding.vocabularies == [("a", "b")]
    assert encoding.named({"x": x[:4], "name": np.array([["a"], ["b"], ["rare"], ["?"]], object)}).tolist() == [
        [1],
        [2],
        [0],
        [0],
    ]
    assert encoding.numeric({"x": x[:4], "name": names[:4]}).tolist() == [[-1, 0], [1, 0], [0, 0], [10, 0]]


def test_lone_surrogates_are_unknown() -> None:
    names = np.array(["\ud800"] * RARE + ["a"] * RARE, object)[:, None]
    assert learned({"x": np.ones((2 * RARE, 2)), "name": names}, signature()).vocabularies == [("a",)]


def test_the_gradients_are_added_in_one_order_by_any_number_of_processes() -> None:
    assert [processes(limit) for limit in (1, 2, 3, 4, 7, 8, 1_000)] == [1, 2, 2, 4, 4, 8, 8]

    class Sum(str):
        def add_(self, other: str) -> "Sum":
            return Sum(f"({self}{other})")

    total = added(Sum, 0, SHARDS)
    halves = [added(Sum, half * SHARDS // 2, SHARDS // 2) for half in (0, 1)]
    assert total == halves[0].add_(halves[1]) == "(((01)(23))((45)(67)))"


def test_the_newest_checkpoint_up_to_the_budget_counts(tmp_path: Path) -> None:
    rows = {"x": np.ones((8, 2), np.float32), "name": np.full((8, 1), "n", object)}
    encoding = learned(rows, signature())
    encoded = Encoded(encoding.numeric(rows), encoding.named(rows), np.ones(8, np.float32))
    job = job_files.of(encoded, encoding, Parameters(), seed=1)
    weights = job_files.begun(tmp_path, job, 9).weights
    for epoch in (3, 7):
        job_files.keep(tmp_path, job, State(epoch, 2 * epoch, weights + epoch, weights, weights))
    (tmp_path / "notes.npz").write_bytes(b"no checkpoint")
    assert [job_files.begun(tmp_path, job, budget).epoch for budget in (2, 3, 6, 7, 100)] == [0, 3, 3, 7, 7]
    assert (job_files.begun(tmp_path, job, 7).weights == weights + 7).all()
    job_files.write(tmp_path, job, encoded)
    stored_job, layout = job_files.read(tmp_path)
    pairs = zip(tuple[Any, ...](layout), tuple[Any, ...](encoded), strict=True)
    assert stored_job == job
    assert all(np.array_equal(stored_array, other) for stored_array, other in pairs)
