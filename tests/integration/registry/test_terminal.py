"""What the commands draw on a terminal and ask there, and only there."""

import json
import os
import pty
import subprocess
import sysconfig
from pathlib import Path

import pytest

from tests.unit.model_registry.conftest import MakePackage, onnx_bytes

pytestmark = pytest.mark.debian("docker-registry")

COMMAND = (str(Path(sysconfig.get_path("scripts")) / "model-registry"), "--plain-http")


def test_bars_are_drawn_on_a_terminal_and_nothing_elsewhere(repository: str, make_package: MakePackage, tmp_path: Path) -> None:
    model = onnx_bytes(os.urandom(4 << 20).hex().encode())
    folder = make_package(model=model)
    push = [*COMMAND, "push", str(folder), f"{repository}:1.0.0"]
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        done = subprocess.run(push, stdout=subprocess.PIPE, stderr=theirs, check=True, env=os.environ | {"TERM": "xterm"})
        os.close(theirs)
        drawn = terminal.read(1 << 16)
    assert b"sha256:" in drawn
    assert done.stdout.startswith(b"m")
    pull = [*COMMAND, "pull", f"{repository}:1.0.0", str(tmp_path / "out")]
    quiet = subprocess.run(pull, capture_output=True, check=True)
    assert quiet.stderr == b""
    assert (tmp_path / "out" / "model.onnx").read_bytes() == model


def test_prune_asks_on_a_terminal_before_it_deletes(repository: str, make_package: MakePackage) -> None:
    def run(*arguments: str) -> str:
        command = [*COMMAND, arguments[0], repository, *arguments[1:]]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    for version in ("1.0.0", "2.0.0"):
        folder = make_package(version, model=onnx_bytes(version.encode()))
        subprocess.run([*COMMAND, "push", str(folder), f"{repository}:{version}"], check=True)
        run("promote", "--to", version)
    for said, code, left in ((b"n\n", 3, 2), (b"y\n", 0, 1)):
        ours, theirs = pty.openpty()
        with os.fdopen(ours, "r+b", buffering=0) as terminal:
            terminal.write(said)
            prune = [*COMMAND, "prune", repository, "--keep-revisions", "1"]
            done = subprocess.run(prune, stdin=theirs, capture_output=True, check=False)
            os.close(theirs)
        assert done.returncode == code, done.stderr
        assert b"would be deleted: 1 versions" in done.stderr
        assert len(json.loads(run("list", "--json"))["versions"]) == left
