"""What the page says about signatures, done."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from model_registry.cli import app
from tests.docs import pages
from tests.support.environment import ROOT

PAGE = "model_registry/README.md"


def test_the_pages_commands_work_with_its_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "scorer" / "demo" / "data" / "flight-delay-1.0.0", tmp_path / "flight-delay-1.0.0")
    (tmp_path / "password").write_text("secret\n")
    (tmp_path / "figures.json").write_text('{"dataset": "flights 2013", "metrics": {"auc": 0.93}}')
    (tmp_path / "policy.yaml").write_text(pages.blocks(PAGE)["policy"])
    lines = [line.split() for line in pages.lines(PAGE, "sign")]
    assert [line[1] for line in lines] == ["keygen", "push", "sign", "attest", "inspect", "verify"]
    for program, *arguments in lines:
        assert program == "model-registry"
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
    assert "is signed by release-2026" in result.stdout
