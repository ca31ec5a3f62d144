"""What the page on models says, done: a model of one's own trained, packaged, pushed, promoted; a version signed, verified."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from model_registry.cli import app
from model_registry.signing import predicates
from tests.docs import pages
from tests.support.environment import ROOT

OWN_MODEL, SIGNING = "model_registry/docs/your-own-model.md", "model_registry/docs/signing.md"


@pytest.mark.parametrize("library", ["scikit-learn", "lightgbm"])
def test_a_model_becomes_a_version(library: str, tmp_path: Path) -> None:
    blocks = pages.blocks(OWN_MODEL)
    (tmp_path / "train.py").write_text(blocks[library] + blocks["package"])
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    said = [
        subprocess.run(
            ["sh", "-c", line], cwd=tmp_path, env=os.environ | {"PATH": path}, check=True, capture_output=True, text=True
        )
        for line in pages.lines(OWN_MODEL, "wine")
    ]
    assert "prod: nothing -> 1.0.0 (revision 1)" in said[-1].stdout
    examples = (tmp_path / "wine-1.0.0" / "golden.jsonl").read_text().splitlines()
    assert {json.loads(line)["score"] > 0.5 for line in examples} == {True, False}


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
    """What these commands of model-registry print."""
    results = []
    for program, *arguments in lines:
        assert program == "model-registry"
        results.append(CliRunner().invoke(app, arguments))
        assert results[-1].exit_code == 0, results[-1].output
    return [result.stdout for result in results]


def test_the_pages_comparison_is_one() -> None:
    said = json.loads(pages.blocks(SIGNING)["comparison"])
    predicates.check(predicates.COMPARISON, said, said["challenger"]["digest"])
