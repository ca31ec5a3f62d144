"""What the README says about signatures, done."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from model_registry.cli import app
from tests.docs.blocks import block, lines
from tests.support.environment import ROOT


def test_the_readmes_commands_work_with_its_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "scorer" / "demo" / "data" / "flight-delay-1.0.0", tmp_path / "flight-delay-1.0.0")
    (tmp_path / "password").write_text("secret\n")
    (tmp_path / "figures.json").write_text('{"dataset": "flights 2013", "metrics": {"auc": 0.93}}')
    (tmp_path / "policy.yaml").write_text(block("policy"))
    commands = [line.partition("#")[0].split() for line in lines("sign")]
    assert [command[1] for command in commands] == ["keygen", "push", "sign", "attest", "inspect", "verify"]
    for program, *arguments in commands:
        assert program == "model-registry"
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
    assert "is signed by release-2026" in result.stdout
