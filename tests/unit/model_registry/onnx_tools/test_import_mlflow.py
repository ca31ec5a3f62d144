"""Model folders of MLflow become packages; a pickle is loaded only with consent, and a part that cannot be used is named."""

import json
import pickle
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from skl2onnx import to_onnx
from sklearn.cluster import KMeans
from sklearn.ensemble import IsolationForest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.svm import LinearSVC
from skops import io

from model_registry.errors import Refused
from model_registry.onnx_tools import import_mlflow, mlflow_folder
from tests.support import mlflow_folders
from tests.unit.model_registry.conftest import answer, run

SAME_SCORES = "the converted model gives the scores of the original to the 3 rows of the input example"


def signature_of(folder: Path) -> Any:
    return json.loads((folder / "signature.json").read_text())


def completed(folder: Path) -> None:
    """Fill in the gaps of a drafted binary classifier: the score is column 1."""
    document = signature_of(folder)
    document["output"]["index"] = 1
    (folder / "signature.json").write_text(json.dumps(document))
    (folder / "README.md").write_text("# A model\n")


def test_a_pipeline_of_scikit_learn_becomes_a_version(folder: Path) -> None:
    model = mlflow_folders.sklearn(folder / "orders")
    drafted = answer("init", "orders")
    assert drafted["notes"][:3] == [
        SAME_SCORES,
        "the columns of the probabilities are the classes 0, 1",
        "columns of 64 bits are fed as float32: amount, items",
    ]
    package = folder / "orders-1.0.0"
    fields = [(tensor["tensor"], tensor["dtype"], tensor["fields"]) for tensor in signature_of(package)["inputs"]]
    assert fields == [
        ("amount", "float32", ["amount"]),
        ("items", "float32", ["items"]),
        ("country", "string", ["country"]),
    ]
    completed(package)
    run(*drafted["next"][0].split()[1:], "--accept")
    golden = [json.loads(line) for line in (package / "golden.jsonl").read_text().splitlines()]
    rows = mlflow_folders.table().head(3)
    assert [line["event"] for line in golden] == json.loads(rows.to_json(orient="records"))
    assert [line["score"] for line in golden] == pytest.approx(model.predict_proba(rows)[:, 1], abs=1e-5)


def test_more_than_two_classes_become_labels(folder: Path) -> None:
    mlflow_folders.sklearn(folder / "orders", classes=3)
    answer("init", "orders")
    drafted = signature_of(folder / "orders-1.0.0")
    assert drafted["output"] == {"tensor": "probabilities", "top": 3}
    assert (drafted["labels"], drafted["decision"]) == (["0", "1", "2"], {"argmax": True})


class Payload:
    """An object whose pickle creates a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_a_pickle_is_not_loaded_without_consent(folder: Path) -> None:
    mlflow_folders.sklearn(folder / "orders", pickled=True)
    assert SAME_SCORES in answer("init", "orders", "--trust-pickle")["notes"]
    (folder / "orders" / "model.pkl").write_bytes(pickle.dumps(Payload(folder / "loaded")))
    refused = run("init", "orders", "--into", "other", code=3).stderr
    assert "orders/model.pkl is a pickle, and loading a pickle runs any code that its author put into it" in refused
    assert "if you trust its author, add --trust-pickle" in refused
    assert not (folder / "loaded").exists()
    assert not (folder / "other").exists()
    run("init", "orders", "--into", "other", "--trust-pickle", code=3)
    assert (folder / "loaded").exists()


def test_types_that_only_mlmodel_trusts_are_refused(folder: Path) -> None:
    mlflow_folders.sklearn(folder / "orders")
    (folder / "orders" / "model.skops").write_bytes(io.dumps(Fraction()))
    mlmodel = folder / "orders" / "MLmodel"
    trusted = f"    skops_trusted_types: [{__name__}.Fraction]\n"
    mlmodel.write_text(mlmodel.read_text().replace("    sklearn_version", f"{trusted}    sklearn_version"))
    refused = run("init", "orders", code=3).stderr
    assert f"model.skops has objects of types that are not known to be safe: {__name__}.Fraction" in refused
    assert "add --trust-pickle" in refused or "repeat the command with --trust-pickle" in refused


class Fraction:
    """A type that skops does not trust."""


@pytest.mark.parametrize("booster", [True, False], ids=["booster", "classifier"])
def test_the_columns_of_a_lightgbm_model_keep_their_order(folder: Path, booster: bool) -> None:
    model = mlflow_folders.lightgbm_model(folder / "trees", booster=booster)
    drafted = answer("init", "trees")
    assert SAME_SCORES in drafted["notes"]
    package = folder / "trees-1.0.0"
    assert signature_of(package)["inputs"] == [{"tensor": "x", "dtype": "float32", "fields": ["amount", "items"]}]
    completed(package)
    run(*drafted["next"][0].split()[1:], "--accept")
    golden = [json.loads(line)["score"] for line in (package / "golden.jsonl").read_text().splitlines()]
    rows = mlflow_folders.table()[["amount", "items"]].head(3)
    assert golden == pytest.approx(model.predict_proba(rows)[:, 1], abs=1e-5)


def onnx_folder(path: Path, inputs: list[dict[str, Any]], example: Any) -> None:
    rows = mlflow_folders.table()[["amount", "items"]].to_numpy(np.float32)
    model = LogisticRegression().fit(rows, rows[:, 0] > 80)
    path.mkdir()
    (path / "model.onnx").write_bytes(to_onnx(model, rows[:1], options={"zipmap": False}).SerializeToString())
    mlflow_folders.write(path, "onnx", {"data": "model.onnx", "onnx_version": "1.23.2"}, example, inputs)


def test_an_onnx_model_is_copied_unchanged(folder: Path) -> None:
    tensor = {"name": "X", "type": "tensor", "tensor-spec": {"dtype": "float32", "shape": [-1, 2]}}
    onnx_folder(folder / "linear", [tensor], {"X": [[86.15, 2.0], [85.25, 5.0]]})
    answer("init", "linear")
    package = folder / "linear-1.0.0"
    assert signature_of(package)["inputs"] == [
        {"tensor": "X", "dtype": "float32", "fields": [{"name": "X", "array": True, "length": 2}]}
    ]
    assert (package / "model.onnx").read_bytes() == (folder / "linear" / "model.onnx").read_bytes()
    events = [json.loads(line)["event"] for line in (package / "golden.jsonl").read_text().splitlines()]
    assert events == [{"X": [86.15, 2.0]}, {"X": [85.25, 5.0]}]


def test_the_columns_of_a_table_feed_the_row_of_an_onnx_model(folder: Path) -> None:
    inputs = [{"type": "double", "name": "amount", "required": True}, {"type": "long", "name": "items", "required": False}]
    onnx_folder(folder / "linear", inputs, mlflow_folders.table(3)[["items", "amount"]])
    drafted = answer("init", "linear")
    (tensor,) = signature_of(folder / "linear-1.0.0")["inputs"]
    assert [field if isinstance(field, str) else field["name"] for field in tensor["fields"]] == ["amount", "items"]
    assert tensor["fields"][1]["required"] is False
    assert any("inputs[0].fields[1].default is 'FILL IN" in gap for gap in drafted["gaps"])


def test_a_conversion_that_changes_scores_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "steep"
    path.mkdir()
    (path / "model.skops").write_bytes(io.dumps(LinearRegression().fit([[1.0], [2.0]], [0.0, 1e7])))
    details = {"pickled_model": "model.skops", "serialization_format": "skops"}
    tensor = {"type": "tensor", "tensor-spec": {"dtype": "float64", "shape": [-1, 1]}}
    mlflow_folders.write(path, "sklearn", details, [[1.0], [1.00000004]], [tensor])  # the second is 1.0 in float32
    with pytest.raises(Refused, match=r"the original model scores row 2 of the input example .*, but the converted model .*"):
        import_mlflow.convert(path, tmp_path)


@pytest.mark.parametrize(
    ("model", "note"),
    [
        (LinearSVC(), "the columns of the scores are the classes 0, 1, 2"),
        (IsolationForest(n_estimators=5), "gives the scores of the original to the 3 rows"),
        (KMeans(2), "gives the scores of the original to the 3 rows"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_model_without_probabilities_gives_its_decision_function(tmp_path: Path, model: Any, note: str) -> None:
    path = tmp_path / "orders"
    path.mkdir()
    rows = mlflow_folders.table()[["amount", "items"]]
    (path / "model.pkl").write_bytes(pickle.dumps(model.fit(rows, np.digitize(rows["amount"], [80, 120]))))
    details = {"pickled_model": "model.pkl", "serialization_format": "cloudpickle"}
    mlflow_folders.write(path, "sklearn", details, rows.head(3), columns=mlflow_folders.NUMBERS)
    imported = import_mlflow.convert(path, tmp_path, trust_pickle=True)
    assert any(note in line for line in imported.notes)
    session = onnxruntime.InferenceSession(imported.model.read_bytes())
    scores = session.run(None, {"x": rows.to_numpy(np.float32)})[1]
    expected = model.transform(rows) if isinstance(model, KMeans) else model.decision_function(rows)
    assert scores == pytest.approx(expected.reshape(scores.shape), rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("example", [[[1.0], [1.0, 2.0]], [1.0, 2.0]])
def test_an_example_that_the_model_cannot_score_is_refused(tmp_path: Path, example: Any) -> None:
    path = tmp_path / "orders"
    path.mkdir()
    (path / "model.skops").write_bytes(io.dumps(LinearRegression().fit([[1.0, 2.0], [2.0, 1.0]], [0.0, 1.0])))
    details = {"pickled_model": "model.skops", "serialization_format": "skops"}
    tensor = {"type": "tensor", "tensor-spec": {"dtype": "float64", "shape": [-1, 2]}}
    mlflow_folders.write(path, "sklearn", details, example, [tensor])
    with pytest.raises(Refused, match="cannot be compared on the input example of"):
        import_mlflow.convert(path, tmp_path)


@pytest.mark.parametrize(
    ("original", "replacement", "message"),
    [
        ("  sklearn:", "  prophet:", "has the flavours prophet, python_function, none of which can be packaged"),
        ('"type": "string"', '"type": "datetime"', "column 'country' of the signature has the type 'datetime'"),
        ("flavors:", "flavours:", "MLmodel has no flavors"),
        ("flavors:", "- flavors: {", "MLmodel is not valid YAML"),
        ("model.skops", "../model.skops", "refers to '../model.skops', which is not inside the folder"),
        ("model.skops", "missing.skops", "has no file missing.skops"),
        ("input_example.json", "lost.json", "has no file lost.json"),
        ("inputs: '[", "inputs: '[{", "the signature in orders/MLmodel is not valid JSON"),
    ],
)
def test_a_fault_of_a_folder_is_named(folder: Path, saved: Path, original: str, replacement: str, message: str) -> None:
    shutil.copytree(saved, folder / "orders")
    mlmodel = folder / "orders" / "MLmodel"
    mlmodel.write_text(mlmodel.read_text().replace(original, replacement))
    assert message in run("init", "orders", code=3).stderr
    assert not (folder / "orders-1.0.0").exists()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a pipeline."""
    path = tmp_path_factory.mktemp("mlflow") / "orders"
    mlflow_folders.sklearn(path)
    return path


@pytest.mark.parametrize("missing", ["skl2onnx", "skops"])
def test_a_missing_library_is_named(saved: Path, tmp_path: Path, missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)  # for a child that is forked
    without = tmp_path / "without"
    without.mkdir()
    (without / f"{missing}.py").write_text(f"raise ImportError('no module {missing}')")
    monkeypatch.syspath_prepend(without)  # for a child that imports everything itself
    with pytest.raises(Refused, match=missing) as caught:
        import_mlflow.convert(saved, tmp_path)
    assert caught.value.hint.startswith("pip install ")
    assert missing in caught.value.hint


def test_examples_of_older_releases_are_read(tmp_path: Path) -> None:
    tensor = {"type": "tensor", "tensor-spec": {"dtype": "float32", "shape": [-1, 2]}}
    mlflow_folders.write(tmp_path, "onnx", {"data": "model.onnx"}, {"inputs": [[1.0, 2.0]]}, [tensor])
    assert mlflow_folder.read(tmp_path).example == ({"": [1.0, 2.0]},)
    assert mlflow_folder.read(tmp_path).width == 2
