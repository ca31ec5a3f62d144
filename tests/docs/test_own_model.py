"""A model of one's own, from the page: trained, converted, packaged, pushed and promoted. A scorer serves it in
tests/docs/test_readme.py."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs import pages

PAGE = "model_registry/README.md"


@pytest.mark.parametrize("library", ["scikit-learn", "lightgbm"])
def test_a_model_becomes_a_version(library: str, tmp_path: Path) -> None:
    blocks = pages.blocks(PAGE)
    (tmp_path / "train.py").write_text(blocks[library] + blocks["package"])
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    said = [
        subprocess.run(
            ["sh", "-c", line], cwd=tmp_path, env=os.environ | {"PATH": path}, check=True, capture_output=True, text=True
        )
        for line in pages.lines(PAGE, "wine")
    ]
    assert "prod: nothing -> 1.0.0 (revision 1)" in said[-1].stdout
    examples = (tmp_path / "wine-1.0.0" / "golden.jsonl").read_text().splitlines()
    assert {json.loads(line)["score"] > 0.5 for line in examples} == {True, False}
