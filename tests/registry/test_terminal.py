"""What the commands draw on a terminal, and only there."""

import os
import pty
import subprocess
import sysconfig
from pathlib import Path

import pytest

from tests.unit.registry.conftest import MakePackage, onnx_bytes

pytestmark = pytest.mark.debian("docker-registry")

COMMAND = str(Path(sysconfig.get_path("scripts")) / "model-registry")


def test_bars_are_drawn_on_a_terminal_and_nothing_elsewhere(repository: str, make_package: MakePackage, tmp_path: Path) -> None:
    model = onnx_bytes(os.urandom(4 << 20).hex().encode())
    folder = make_package(model=model)
    push = [COMMAND, "push", str(folder), f"{repository}:1.0.0", "--plain-http"]
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        done = subprocess.run(push, stdout=subprocess.PIPE, stderr=theirs, check=True, env=os.environ | {"TERM": "xterm"})
        os.close(theirs)
        drawn = terminal.read(1 << 16)
    assert b"sha256:" in drawn
    assert done.stdout.startswith(b"m")
    pull = [COMMAND, "pull", f"{repository}:1.0.0", str(tmp_path / "out"), "--plain-http"]
    quiet = subprocess.run(pull, capture_output=True, check=True)
    assert quiet.stderr == b""
    assert (tmp_path / "out" / "model.onnx").read_bytes() == model
