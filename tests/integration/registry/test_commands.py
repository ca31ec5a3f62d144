"""The model-registry command on a real registry: a version goes in, is listed, and comes out as it was."""

import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.integration.registry.server import DockerRegistry
from tests.unit.model_registry.conftest import MakePackage, onnx_bytes

pytestmark = pytest.mark.debian("docker-registry")


def model_registry(*arguments: str, code: int = 0) -> tuple[str, str]:
    """The stdout and stderr of the installed command, which asks a registry without TLS."""
    command = [str(Path(sys.executable).with_name("model-registry")), "--plain-http", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr


def test_content_is_mounted_from_a_neighbour(
    registry: DockerRegistry, repository: str, make_package: MakePackage, tmp_path: Path
) -> None:
    model = onnx_bytes(uuid.uuid4().hex.encode())
    staging = f"{registry.address}/team/staging{uuid.uuid4().hex[:8]}"
    model_registry("push", str(make_package("v1", model=model)), f"{staging}:1.0.0")
    before = len((registry.folder / "log").read_text())
    model_registry("push", str(tmp_path / "v1"), f"{repository}:1.0.0", "--mount-from", staging)
    said = (registry.folder / "log").read_text()[before:].splitlines()
    assert len([line for line in said if "POST" in line and "mount=" in line and '" 201 ' in line]) >= 4
    _, talk = model_registry(
        "push", str(tmp_path / "v1"), f"{repository}:1.0.0", "--mount-from", "elsewhere.example.com/x", code=2
    )
    assert "elsewhere.example.com/x is not in the registry of" in talk


def test_what_is_wrong_is_one_line_and_a_hint(repository: str, make_package: MakePackage) -> None:
    model_registry("push", str(make_package(model=onnx_bytes())), f"{repository}:1.0.0")
    for arguments, code, error in (
        (["pull", f"{repository}:2.0.0", "x"], 3, "has no tag '2.0.0'"),
        (["list", "registry.example.com/x"], 2, "plain HTTP to registry.example.com"),
        (["--timeout", "0.1", "list", "localhost:1/x"], 4, "Connection refused"),
    ):
        out, talk = model_registry(*arguments, code=code)
        assert out == ""
        assert error in talk
        assert "hint: " in talk
