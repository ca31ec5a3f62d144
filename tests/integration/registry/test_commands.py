"""The model-registry command on a real registry; what it draws on a terminal and asks there, and only there."""

import json
import os
import pty
import subprocess
import uuid
from pathlib import Path

import pytest

from tests.integration.registry.server import DockerRegistry
from tests.support import warm
from tests.support.processes import command
from tests.unit.model_registry.conftest import MakePackage, onnx_bytes

pytestmark = pytest.mark.debian("docker-registry")

COMMAND = (command("model-registry"), "--plain-http")


def run(*arguments: str, code: int = 0, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end, forked; it must exit with this code. `environment` has further environment variables."""
    completed = warm.run([*COMMAND, *arguments], environment=os.environ | environment)
    out, err = completed.stdout.decode(), completed.stderr.decode()
    assert completed.returncode == code, err
    return subprocess.CompletedProcess(completed.args, completed.returncode, out, err)


def test_content_is_mounted_from_a_neighbour(
    registry: DockerRegistry, repository: str, make_package: MakePackage, tmp_path: Path
) -> None:
    model = onnx_bytes(uuid.uuid4().hex.encode())
    staging = f"{registry.address}/team/staging{uuid.uuid4().hex[:8]}"
    run("push", str(make_package("v1", model=model)), f"{staging}:1.0.0")
    before = len((registry.folder / "log").read_text())
    run("push", str(tmp_path / "v1"), f"{repository}:1.0.0", "--mount-from", staging)
    log_lines = (registry.folder / "log").read_text()[before:].splitlines()
    assert len([line for line in log_lines if "POST" in line and "mount=" in line and '" 201 ' in line]) >= 4
    refused = run("push", str(tmp_path / "v1"), f"{repository}:1.0.0", "--mount-from", "elsewhere.example.com/x", code=2)
    assert "elsewhere.example.com/x is not in the registry of" in refused.stderr


def test_bars_are_drawn_on_a_terminal_and_nothing_elsewhere(repository: str, make_package: MakePackage, tmp_path: Path) -> None:
    model = onnx_bytes(os.urandom(4 << 20).hex().encode())
    folder = make_package(model=model)
    push = [*COMMAND, "push", str(folder), f"{repository}:1.0.0"]
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        completed = subprocess.run(push, stdout=subprocess.PIPE, stderr=theirs, check=True, env=os.environ | {"TERM": "xterm"})
        os.close(theirs)
        drawn = terminal.read(1 << 16)
    assert b"sha256:" in drawn
    assert completed.stdout.startswith(b"m")
    assert run("pull", f"{repository}:1.0.0", str(tmp_path / "out")).stderr == ""
    assert (tmp_path / "out" / "model.onnx").read_bytes() == model


def test_prune_asks_on_a_terminal_before_it_deletes(repository: str, make_package: MakePackage) -> None:
    for version in ("1.0.0", "2.0.0"):
        folder = make_package(version, model=onnx_bytes(version.encode()))
        run("push", str(folder), f"{repository}:{version}")
        run("promote", repository, "--to", version)
    for reply, code, version_count in ((b"n\n", 3, 2), (b"y\n", 0, 1)):
        ours, theirs = pty.openpty()
        with os.fdopen(ours, "r+b", buffering=0) as terminal:
            terminal.write(reply)
            prune = [*COMMAND, "prune", repository, "--keep-revisions", "1"]
            completed = subprocess.run(prune, stdin=theirs, capture_output=True, check=False)
            os.close(theirs)
        assert completed.returncode == code, completed.stderr
        assert b"would be deleted: 1 versions" in completed.stderr
        assert len(json.loads(run("list", repository, "--json").stdout)["versions"]) == version_count


def test_accepted_scores_are_those_of_the_pushed_version(repository: str, make_package: MakePackage, tmp_path: Path) -> None:
    folder = make_package(
        model=onnx_bytes(b"accepted"), golden='{"event": {"a": 1.5}, "score": "FILL IN", "tolerance": 1e-4}\n'
    )
    assert "push with --accept" in run("push", str(folder), f"{repository}:1.0.0", code=3).stderr
    pushed = json.loads(run("push", str(folder), f"{repository}:1.0.0", "--accept", "--json").stdout)
    assert pushed["accepted"] == 1
    run("pull", f"{repository}:1.0.0", str(tmp_path / "out"))
    assert json.loads((tmp_path / "out" / "golden.jsonl").read_text())["score"] == 0.25
    inspected = json.loads(run("inspect", f"{repository}:1.0.0", "--json").stdout)
    assert [(field["name"], field["required"], field["default"]) for field in inspected["fields"]] == [
        ("a", True, None),
        ("b", False, "nan"),
    ]
