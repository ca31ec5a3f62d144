"""The verbs that make the demo's data, typed as a person would: on a slice of the flights, and on bad input."""

import csv
import json
import lzma
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer

from publisher.errors import Fatal
from tests.integration.training.test_packages import VERSIONS, check_golden, package, signature
from tests.support.environment import ROOT
from training.demo_dataset import model_package, models, source_data, train
from training.demo_dataset.extract import FILES, lines
from training.demo_dataset.features import late

PROGRAM = ROOT / "deploy" / "training" / "demo_dataset"
EVERY = 80  # one row of so many makes the slice


def run(verb: str, *arguments: str | Path, hash_seed: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROGRAM), verb, *map(str, arguments)]
    environment = os.environ | {"PYTHONHASHSEED": str(hash_seed)}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.fixture(scope="session")
def rows() -> list[dict[str, str]]:
    return [row for i, row in enumerate(source_data.rows(source_data.locate())) if i % EVERY == 0]


@pytest.fixture(scope="session")
def slice_csv(rows: list[dict[str, str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("slice") / "flights.csv"
    with path.open("w", newline="") as text:
        writer = csv.DictWriter(text, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.fixture(scope="session")
def trained(slice_csv: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder of packages trained on the slice, and the report of the verb."""
    out = tmp_path_factory.mktemp("packages")
    completed = run("train", "--data", slice_csv, "--out", out, "--months", "2-8", "--sample", "2000", "--json")
    assert completed.returncode == 0, completed.stderr
    return out, json.loads(completed.stdout)


@pytest.mark.parametrize("version", VERSIONS)
def test_training_makes_a_package_that_works(version: str, trained: tuple[Path, dict[str, Any]]) -> None:
    out, report = trained
    folder = package(version, out)
    assert {path.name for path in folder.iterdir()} == {"model.onnx", "signature.json", "golden.jsonl", "README.md"}
    assert (folder / "model.onnx").stat().st_size == report[version]["size"] <= train.MAX_BYTES
    assert signature(folder) == signature(package(version))
    assert any(event["dep_delay"] is None for event in check_golden(folder))
    assert report[version]["training_flights"] == 2000
    assert report[version]["parity"] <= 1e-5
    assert report[version]["auc"] > 0.8
    assert "--months 2-8 --sample 2000" in (folder / "README.md").read_text()


def test_training_again_gives_the_same_bytes(slice_csv: Path, trained: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """Whatever the process's string hashes are: a converter that walks a set must not show in the model."""
    out, _ = trained
    arguments = ("--data", slice_csv, "--out", tmp_path, "--months", "2-8", "--sample", "2000")
    completed = run("train", *arguments, hash_seed=2)
    assert (completed.returncode, completed.stdout) == (0, ""), completed.stderr
    paths = sorted(path.relative_to(out) for path in out.rglob("*") if path.is_file())
    assert len(paths) == 12
    assert [path for path in paths if (tmp_path / path).read_bytes() != (out / path).read_bytes()] == []


@pytest.mark.parametrize("months", ["8-9", "0", "5-3", "spring", "1-8-8", ""])
def test_held_out_months_and_invalid_months_are_refused(months: str) -> None:
    with pytest.raises(typer.BadParameter, match=re.escape(repr(months))):
        train.month_range(months)


@pytest.mark.parametrize(
    ("verb", "flag", "value"),
    [("train", "--months", "1-9"), ("train", "--data", "absent.csv"), ("extract", "--data", "absent.csv")],
)
def test_invalid_arguments_end_the_verb_before_it_writes(verb: str, flag: str, value: str, tmp_path: Path) -> None:
    completed = run(verb, flag, value, "--out", tmp_path / "out")
    assert completed.returncode == 2
    assert value in completed.stderr
    assert not list(tmp_path.iterdir())


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    weather = tmp_path / "weather.csv"
    weather.write_text("origin,temp\nEWR,39\n")
    with pytest.raises(Fatal, match=r"weather\.csv lacks the columns year, month"):
        list(source_data.rows(weather))


def test_the_parity_check_sees_another_model(rows: list[dict[str, str]]) -> None:
    flights = train.flights([row for row in rows if late(row) is not None], "the slice")
    for recipe in models.RECIPES:
        frame = recipe.frame(flights.events)
        half = len(frame) // 2
        model = recipe.fit(frame[:half].reset_index(drop=True), flights.late[:half])
        other_model = recipe.fit(frame[half:].reset_index(drop=True), flights.late[half:])
        session = model_package.open_session(models.to_onnx(model, recipe).SerializeToString())
        assert train.parity(session, model, recipe, flights.events) <= train.PARITY_TOLERANCE
        assert train.parity(session, other_model, recipe, flights.events) > 0.01


def test_a_model_that_is_too_large_does_not_ship(rows: list[dict[str, str]]) -> None:
    flights = train.flights([row for row in rows if late(row) is not None], "the slice")

    def many_trees(frame: Any, outcomes: Any) -> Any:
        pipeline = models.fit_trees(frame, outcomes)
        return pipeline.set_params(lgbmclassifier__n_estimators=400).fit(frame, outcomes)

    with pytest.raises(Fatal, match="bytes; the limit is 300000 bytes"):
        train.fitted(replace(models.RECIPES[1], fit=many_trees), flights, flights)


def test_the_extracts_are_what_the_verb_makes(rows: list[dict[str, str]], slice_csv: Path, tmp_path: Path) -> None:
    completed = run("extract", "--data", slice_csv, "--out", tmp_path)
    assert completed.returncode == 0, completed.stderr
    every = list(source_data.rows(source_data.locate()))
    for shipped, months in FILES.items():
        assert lzma.decompress((tmp_path / shipped.name).read_bytes()) == lines(rows, months)
        assert lzma.decompress(shipped.read_bytes()) == lines(every, months)
        assert shipped.stat().st_size <= 2_000_000
