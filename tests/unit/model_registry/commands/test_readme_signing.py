"""What the README says about signatures, done."""

import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from model_registry.cli import app
from tests.support.environment import ROOT

SECTION = (ROOT / "README.md").read_text().partition("### Models\n")[2].partition("\n### ")[0]


def block(language: str) -> str:
    """The one code block of a language."""
    (found,) = re.findall(rf"```{language}\n(.*?)```", SECTION, flags=re.S)
    return str(found)


def test_the_readmes_commands_work_with_its_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "scorer" / "demo" / "data" / "flight-delay-1.0.0", tmp_path / "flight-delay-1.0.0")
    (tmp_path / "password").write_text("secret\n")
    (tmp_path / "figures.json").write_text('{"dataset": "flights 2013", "metrics": {"auc": 0.93}}')
    (tmp_path / "policy.yaml").write_text(block("yaml"))
    lines = [line.partition("#")[0].split() for line in block("sh").replace("\\\n", "").splitlines()]
    assert [line[1] for line in lines] == ["keygen", "push", "sign", "attest", "inspect", "verify"]
    for program, *arguments in lines:
        assert program == "model-registry"
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
    assert "is signed by release-2026" in result.stdout
