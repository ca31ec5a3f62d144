"""Trees: strings and missing values, the same model after any interruption, and equal results in ONNX."""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from model_registry.package.signature import Argmax, InputField, Output, Signature, TensorInput
from publisher.errors import USAGE, Fatal
from scorer.evaluation.quality_metrics import auc
from tests.unit.training.labelled_rows import DECISION, NAN, SIGNATURE, rows
from training.recipes import check_signature
from training.recipes.encoding import MatrixEncoding, gaps, learned
from training.recipes.trees import CHUNK, FittedTrees, Trees
from training.recipes.trees_to_onnx import model
from training.snapshot.target import ZERO_OR_ONE

ROWS = rows(600)
VARIED = {"bagging_fraction": 0.7, "feature_fraction": 0.7, "min_data_in_leaf": 5}


def fitted(folder: Path, budget: int = 30, workers: int = 1, signature: Signature = SIGNATURE, **params: Any) -> FittedTrees:
    return Trees().fit(ROWS, signature, VARIED | params, budget, folder, seed=7, workers=workers)


def run(model: bytes, tensors: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
    return answers(onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]), tensors)


def answers(session: Any, tensors: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
    result: NDArray[np.float32] = session.run(None, dict(tensors))[0]
    return result


def test_the_model_is_better_than_chance_and_the_same_in_onnx(tmp_path: Path) -> None:
    later = rows(400, seed=2)
    trained = fitted(tmp_path)
    scores = trained.scores(later.tensors)
    area = auc(scores, later.outcomes == 1)
    assert area is not None
    assert area > 0.8
    result = run(trained.onnx(), later.tensors)
    assert result.shape == (400, 2)
    assert np.abs(result[:, 1] - scores).max() < 3e-7
    assert np.allclose(result.sum(axis=1), 1)


def test_the_file_is_valid_onnx_without_metadata_of_its_origin(tmp_path: Path) -> None:
    model_proto = onnx.load_from_string(fitted(tmp_path).onnx())
    onnx.checker.check_model(model_proto, full_check=True)
    assert {opset.domain: opset.version for opset in model_proto.opset_import} == {"": 18, "ai.onnx.ml": 3}
    assert (len(model_proto.metadata_props), model_proto.doc_string, model_proto.graph.doc_string) == (0, "", "")
    assert not any(node.doc_string or node.name for node in model_proto.graph.node)


@pytest.mark.parametrize("before", [1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK])
def test_a_resumed_training_ends_in_the_same_bytes(before: int, tmp_path: Path) -> None:
    unbroken = fitted(tmp_path / "unbroken", 2 * CHUNK + 5).onnx()
    fitted(tmp_path / "resumed", before)
    assert fitted(tmp_path / "resumed", 2 * CHUNK + 5).onnx() == unbroken
    assert fitted(tmp_path / "resumed", before).onnx() == fitted(tmp_path / "short", before).onnx() != unbroken


def test_finished_chunks_are_not_grown_again_and_damaged_ones_are(tmp_path: Path) -> None:
    uninterrupted = fitted(tmp_path, 2 * CHUNK).onnx()
    first, second = sorted(tmp_path.iterdir())
    times = first.stat().st_mtime_ns
    second.write_bytes(second.read_bytes()[:-9])
    assert fitted(tmp_path, 2 * CHUNK).onnx() == uninterrupted
    assert first.stat().st_mtime_ns == times


def test_checkpoints_of_another_training_are_not_used(tmp_path: Path) -> None:
    fitted(tmp_path, num_leaves=5)
    assert fitted(tmp_path, num_leaves=6).onnx() == fitted(tmp_path / "fresh", num_leaves=6).onnx()


def test_the_number_of_threads_does_not_change_the_model(tmp_path: Path) -> None:
    of_one_thread, of_two_threads = (fitted(tmp_path / str(count), workers=count).onnx() for count in (1, 2))
    assert of_one_thread == of_two_threads


def test_another_seed_gives_another_model(tmp_path: Path) -> None:
    models = [Trees().fit(ROWS, SIGNATURE, VARIED, 5, tmp_path / str(seed), seed=seed).onnx() for seed in (1, 2, 2**31 - 1)]
    assert len({hashlib.sha256(model_content).hexdigest() for model_content in models}) == 3


def test_rows_without_any_split_give_the_share_of_the_class(tmp_path: Path) -> None:
    trained = fitted(tmp_path, min_data_in_leaf=10_000)
    share = 1 / (1 + math.exp(-trained.start))
    assert np.allclose(trained.scores(ROWS.tensors), share)
    assert np.allclose(run(trained.onnx(), ROWS.tensors)[:, 1], share)


def test_missing_and_new_values_are_trained(tmp_path: Path) -> None:
    """The score of a new carrier lies between others; untrained, it is the score of the carrier with the smallest share."""
    trained = Trees().fit(rows(4_000), SIGNATURE, {"min_data_in_leaf": 5}, 54, tmp_path, seed=7)
    first_rows = {name: tensor[:500] for name, tensor in ROWS.tensors.items()}
    means = {
        name: float(trained.scores({**first_rows, "carrier": np.full((500, 1), name, object)}).mean())
        for name in (*(f"C{n}" for n in range(9)), "new")
    }
    new = means.pop("new")
    assert min(means.values()) + 0.01 < new < max(means.values()) - 0.01


def test_categories_are_ordered_by_their_share_and_ties_by_their_name() -> None:
    names = np.array([["b"], ["a"], ["c"], ["c"], ["d"], ["a\0"], ["a\0"]], object)
    outcomes = np.array([1, 1, 0, 1, 0, 0, 0], np.int8)
    signature = Signature((TensorInput("s", "string", (InputField("s", "string"),)),), SIGNATURE.outputs)
    result = learned({"s": names}, outcomes, signature)
    assert result.columns[0].names == ("a\0", "d", "c", "a", "b")
    assert result.matrix({"s": np.array([["b"], ["x"], ["a\0"]], object)}).tolist() == [[4], [-1], [0]]


def test_gaps_are_the_optional_fields_and_every_category() -> None:
    replacements = {gap.field: (gap.columns, gap.value) for gap in gaps(SIGNATURE)}
    assert replacements.pop("delay")[0] == (0,)
    assert replacements == {"carrier": ((3,), -1.0), "from": ((4,), -1.0), "to": ((5,), -1.0), "rain": ((6,), 0.0)}


FLOATS = st.floats(width=32, allow_infinity=False)


def numbers(dtype: str) -> tuple[Signature, MatrixEncoding]:
    field = InputField("a", dtype, False, NAN if dtype.startswith("float") else 0)
    signature = Signature((TensorInput("a", dtype, (field,)),), (Output(None, "p"),))
    return signature, learned({"a": np.zeros((1, 1))}, np.zeros(1, np.int8), signature)


@given(st.lists(FLOATS, min_size=2, max_size=9), st.floats(allow_nan=False, allow_infinity=False), st.booleans(), st.booleans())
def test_every_number_takes_the_branch_of_double_arithmetic(
    values: list[float], near: float, default_left: bool, nan_learned: bool
) -> None:
    """Thresholds lie between two floats, and NaN takes the branch that LightGBM takes."""
    signature, encoding = numbers("float32")
    column = np.array(values, np.float32)[:, np.newaxis]
    finite = [value for value in values if not math.isnan(value)]
    threshold = near if len(finite) < 2 else (finite[0] + finite[1]) / 2
    node = {
        "split_feature": 0,
        "threshold": threshold,
        "default_left": default_left,
        "missing_type": "NaN" if nan_learned else "None",
        "left_child": {"leaf_value": -2.0},
        "right_child": {"leaf_value": 2.0},
    }
    result = run(model(signature, ZERO_OR_ONE, encoding, np.array(0.5), [node]), {"a": column})
    goes_left = [
        (default_left if nan_learned else threshold >= 0) if math.isnan(number) else float(np.float32(number)) <= threshold
        for number in values
    ]
    expected = [1 / (1 + math.exp(-(0.5 + (-2.0 if left else 2.0)))) for left in goes_left]
    assert np.allclose(result[:, 0], expected, atol=1e-6)


@given(st.data())
@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
def test_onnx_and_lightgbm_agree_on_any_event(data: st.DataObject) -> None:
    drawn = {
        "x": st.tuples(FLOATS, FLOATS.filter(lambda single: not math.isnan(single))),
        "at": st.tuples(st.integers(-(2**63), 2**63 - 1)),
        "carrier": st.tuples(st.sampled_from(["C1", "C8"]) | st.text()),
        "places": st.tuples(st.text(), st.sampled_from(["D1", "D29", ""])),
        "rain": st.tuples(st.booleans()),
    }
    rows_ = data.draw(st.lists(st.fixed_dictionaries(drawn), min_size=1, max_size=20))
    dtypes = {single.tensor: object if single.dtype == "string" else single.dtype for single in SIGNATURE.inputs}
    tensors = {name: np.array([row[name] for row in rows_], dtype) for name, dtype in dtypes.items()}
    assert np.abs(answers(TRAINED[1], tensors)[:, 1] - TRAINED[0].scores(tensors)).max() < 3e-7


@pytest.fixture(scope="module", autouse=True)
def trained(tmp_path_factory: pytest.TempPathFactory) -> None:
    model_proto = fitted(tmp_path_factory.mktemp("trained"))
    TRAINED[:] = [model_proto, onnxruntime.InferenceSession(model_proto.onnx(), providers=["CPUExecutionProvider"])]


TRAINED: list[Any] = []


def outputs(output: Output, **stated: Any) -> Signature:
    return Signature(SIGNATURE.inputs, (output,), **stated)


@pytest.mark.parametrize(
    ("signature", "row"),
    [
        (outputs(Output(None, "p", 1), decision=DECISION), (2,)),
        (outputs(Output(None, "p", 0), decision=DECISION), (1,)),
        (outputs(Output(None, "p")), (1,)),
        (outputs(Output(None, "p", shape=())), ()),
        (outputs(Output(None, "p", shape=(2,))), (2,)),
        (outputs(Output(None, "p"), labels=("a", "b")), (2,)),
        (outputs(Output(None, "p"), labels=("a", "b"), decision=Argmax()), (2,)),
        (outputs(Output(None, "p", top=1, labels=("a", "b"))), (2,)),
    ],
)
def test_the_output_has_the_shape_that_the_signature_reads(signature: Signature, row: tuple[int, ...]) -> None:
    model_proto: FittedTrees = replace(TRAINED[0], signature=signature)
    result = run(model_proto.onnx(), ROWS.tensors)
    assert result.shape == (600, *row)
    assert np.abs(result.reshape(600, -1)[:, -1] - model_proto.scores(ROWS.tensors)).max() < 3e-7


def test_shapes_and_constants_of_inputs_are_those_of_the_signature(tmp_path: Path) -> None:
    field = InputField("image", "float32", array=6, shape=(2, 3))
    inputs = (
        TensorInput("image", "float32", (field,), (2, 3)),
        TensorInput("names", "string", (InputField("n", "string", array=2, shape=(1, 2)),), (1, 2)),
        TensorInput("size", "int64", (), (1,), 3, batch=False),
    )
    signature = Signature(inputs, (Output(None, "p"),))
    flat = {
        "image": np.random.default_rng(1).random((600, 6), np.float32),
        "names": ROWS.tensors["places"],
    }
    model_proto = Trees().fit(replace(ROWS, tensors=flat), signature, {}, 9, tmp_path, seed=1)
    shaped = {"image": flat["image"].reshape(-1, 2, 3), "names": flat["names"].reshape(-1, 1, 2), "size": np.array([3])}
    assert np.abs(run(model_proto.onnx(), shaped)[:, 0] - model_proto.scores(flat)).max() < 3e-7


VARYING = TensorInput("v", "float32", (InputField("v", "float32", array=9, shape=(-1,)),), (-1,))


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        (Signature((VARYING,), SIGNATURE.outputs), "tensor 'v' has a variable length"),
        (
            Signature((TensorInput("b", "string", (InputField("b", "string", raw=True),)),), SIGNATURE.outputs),
            "field 'b' is bytes",
        ),
        (
            Signature((TensorInput("a", "float32", (InputField("a", "float32"),), (), batch=False),), SIGNATURE.outputs),
            "tensor 'a' has no batch dimension",
        ),
        (Signature(SIGNATURE.inputs, (Output("a", "a"), Output("b", "b"))), "it has 2 outputs: 'a', 'b'"),
        (outputs(Output(None, "p", 2)), "output 'p' is read at column 2, but there are two classes"),
        (outputs(Output(None, "p", shape=(3,))), "output 'p' has the shape [3]; it may be [], [1] or [2]"),
        (outputs(Output(None, "p"), labels=("a", "b", "c")), "it has 3 labels, but there are two classes"),
        (
            outputs(Output(None, "p", 0), labels=("a", "b")),
            "output 'p' is read at column 0, but the score is that of the second class",
        ),
    ],
)
def test_signatures_that_are_not_served_are_refused_by_name(signature: Signature, message: str) -> None:
    with pytest.raises(Fatal) as raised:
        check_signature.check(signature, ZERO_OR_ONE, "trees")
    assert str(raised.value) == f"recipe trees does not support this signature: {message}"
    assert raised.value.exit_code == USAGE


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"depth": 3}, "parameters.depth: recipe trees has no such parameter"),
        ({"num_leaves": "many"}, "parameters.num_leaves: 'many' is not a number"),
        ({"num_leaves": 1}, "LightGBM rejects the parameters"),
    ],
)
def test_invalid_parameters_are_refused_by_name(stated: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(Fatal, match=message) as raised:
        fitted(tmp_path, **stated)
    assert raised.value.exit_code == USAGE
