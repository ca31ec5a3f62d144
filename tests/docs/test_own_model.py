"""The instructions of the pages on models: train, package, push and promote your own model; sign and verify a version."""

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from model_registry.cli import app
from model_registry.signing import predicates
from tests.docs import pages, tutorial
from tests.support import warm
from tests.support.environment import ROOT
from tests.support.processes import command

SIGNING, ATTESTATIONS = "model_registry/docs/signing.md", "model_registry/docs/attestations.md"


@dataclass(frozen=True)
class Finished:
    """A folder in which the tutorial was followed, and the outputs of the tutorial's commands."""

    folder: Path
    printed: list[str]


@pytest.fixture(scope="module")
def with_scikit_learn(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("scikit-learn")
    return Finished(folder, tutorial.follow(folder, "scikit-learn"))


def assert_version_was_promoted(finished: Finished) -> None:
    assert "prod: nothing -> 1.0.0 (revision 1)" in finished.printed[-1]
    examples = (finished.folder / "fraud-1.0.0" / "golden.jsonl").read_text().splitlines()
    assert {json.loads(line)["score"] > 0.2 for line in examples} == {True, False}


def test_the_tutorial_makes_a_version_with_scikit_learn(with_scikit_learn: Finished) -> None:
    assert_version_was_promoted(with_scikit_learn)


def test_the_tutorial_makes_a_version_with_lightgbm(tmp_path: Path) -> None:
    assert_version_was_promoted(Finished(tmp_path, tutorial.follow(tmp_path, "lightgbm")))


def test_the_lightgbm_recipe_installs_packaging() -> None:
    """onnxmltools imports packaging without requiring it."""
    (installed,) = re.findall(r"`pip install (lightgbm [^`]*)`", (ROOT / tutorial.PAGE).read_text())
    assert {"onnxmltools", "packaging"} <= set(installed.split())


def test_init_leaves_the_points_open_that_the_tutorial_shows(with_scikit_learn: Finished) -> None:
    _, drafted, *_ = with_scikit_learn.printed
    page = (ROOT / tutorial.PAGE).read_text()
    shown = [line.partition(" ...")[0] for line in page.splitlines() if line.startswith("open  ")]
    printed = [line for line in drafted.splitlines() if line.startswith("open")]
    assert [line.startswith(begin) for line, begin in zip(printed, shown, strict=True)] == [True] * 5


MISTAKES = [
    ("signature.json", '"index": 1', '"index": "FILL IN"', "is not complete: signature.json: "),
    ("signature.json", '"index": 1', '"index": 2', "the signature reads column 2, but the model gives 2"),
    ("signature.json", '"probabilities"', '"label"', "has shape (50,), but the signature reads column 1"),
    ("signature.json", '"tensor": "amount"', '"tensor": "amounts"', "the signature feeds the inputs ["),
    ("signature.json", '["amount"]', '["amountt"]', "event field 'amountt': it is required, but missing or null"),
    ("golden.jsonl", '"amount": 86.15', '"amount": "12"', "event field 'amount': '12' is not a finite float32"),
    ("golden.jsonl", '"score": 0.', '"score": 0.9', "golden example 1 must score 0."),
    ("README.md", "2,000", "3,000", "exists with other content"),
]


def test_mistakes_have_the_messages_of_the_tutorial(with_scikit_learn: Finished, tmp_path: Path) -> None:
    """Each mistake, made in the finished package, is rejected by `push` with the message of the page's table."""
    shutil.copytree(with_scikit_learn.folder, tmp_path, dirs_exist_ok=True)
    table = (ROOT / tutorial.PAGE).read_text().partition("## Your mistake")[2]
    for file, right, wrong, message in MISTAKES:
        package = tmp_path / "fraud-1.0.0"
        text = (package / file).read_text()
        assert right in text
        (package / file).write_text(text.replace(right, wrong, 1))
        pushed = warm.run([command("model-registry"), "push", str(package), f"oci:{tmp_path}/registry/fraud:1.0.0"])
        (package / file).write_text(text)
        assert pushed.returncode != 0
        assert message in pushed.stderr.decode()
        assert message in table


def test_the_pages_commands_work_with_its_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "scorer" / "demo" / "data" / "flight-delay-1.0.0", tmp_path / "flight-delay-1.0.0")
    (tmp_path / "password").write_text("secret\n")
    (tmp_path / "figures.json").write_text('{"dataset": "flights 2013", "metrics": {"auc": 0.93}}')
    (tmp_path / "policy.yaml").write_text(pages.blocks(SIGNING)["policy"])
    lines = [line.split() for line in pages.lines(SIGNING, "sign")]
    assert [line[1] for line in lines] == ["keygen", "push", "sign", "attest", "inspect", "verify"]
    assert "is signed by release-2026" in outputs(lines)[-1]
    (tmp_path / "policy.yaml").write_text(pages.blocks(SIGNING)["policy-moves"])
    *_, verified, history = outputs([line.split() for line in pages.lines(SIGNING, "moves")])
    assert "is signed by release-2026; prod was moved to it by operators" in verified
    assert "operators" in history


def outputs(lines: list[list[str]]) -> list[str]:
    """Run these commands of model-registry, and return their outputs."""
    results = []
    for program, *arguments in lines:
        assert program == "model-registry"
        results.append(CliRunner().invoke(app, arguments))
        assert results[-1].exit_code == 0, results[-1].output
    return [result.stdout for result in results]


def test_the_comparison_on_the_page_is_valid() -> None:
    comparison = json.loads(pages.blocks(ATTESTATIONS)["comparison"])
    predicates.check(predicates.COMPARISON, comparison, comparison["challenger"]["digest"])
