"""The commands of the page on saved models, run on folders of MLflow and Hugging Face."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from model_registry.cli import app
from tests.docs import pages
from tests.docs.tutorial import run_line
from tests.support import hugging_face, mlflow_folders

PAGE = "model_registry/docs/saved-models.md"


def outputs(name: str, folder: Path) -> list[str]:
    """Run the lines of a block, and return their outputs."""
    printed = []
    for line in pages.lines(PAGE, name):
        if not line.startswith("model-registry "):
            printed.append(run_line(line, folder))
            continue
        result = CliRunner().invoke(app, line.split()[1:])
        assert result.exit_code == 0, result.output
        printed.append(result.stdout)
    return printed


def test_a_folder_of_mlflow_becomes_a_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = mlflow_folders.sklearn(tmp_path / "orders")
    (drafted,) = outputs("mlflow", tmp_path)
    assert "the converted model gives the scores of the original to the 3 rows of the input example" in drafted
    outputs("fill", tmp_path)
    shown, _, document = outputs("accept", tmp_path)
    assert "country  string   event  required" in shown
    assert [field["name"] for field in json.loads(document)["fields"]] == ["amount", "items", "country"]
    golden = [json.loads(line) for line in (tmp_path / "orders-1.0.0" / "golden.jsonl").read_text().splitlines()]
    expected = model.predict_proba(mlflow_folders.table().head(3))[:, 1]
    assert [line["score"] for line in golden] == pytest.approx(expected, abs=1e-5)


def test_a_folder_of_hugging_face_becomes_a_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    hugging_face.folder(tmp_path / "reviews")
    *_, pushed = outputs("hugging-face", tmp_path)
    assert pushed.startswith("reviews:1.0.0@sha256:")
