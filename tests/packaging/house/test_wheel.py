"""The wheel: it installs, its commands run without the sources, and the version that stands elsewhere is its own."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.environment import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FILES = ("scorer/demo/data/flight-delay-1.0.0/model.onnx", "scorer/console/templates/base.html", "scorer/py.typed")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built and installed into a folder of its own; what it needs comes from this environment."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    assert wheel.name == f"{PROJECT['name']}-{PROJECT['version']}-py3-none-any.whl"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(folder / "site")]
    subprocess.run([*pip, str(wheel)], check=True, capture_output=True)
    return folder / "site"


@pytest.mark.parametrize("program", sorted(PROJECT["scripts"]))
def test_a_command_of_the_wheel_runs(installed: Path, program: str) -> None:
    environment = os.environ | {"PYTHONPATH": str(installed)}
    run = [str(installed / "bin" / program), "--help"]
    done = subprocess.run(run, cwd=installed, env=environment, check=True, capture_output=True, text=True)
    assert "Usage:" in done.stdout


def test_the_wheel_carries_what_its_programs_read(installed: Path) -> None:
    assert [name for name in FILES if not (installed / name).is_file()] == []
    assert not (installed / "tests").exists()


def test_the_version_of_the_deployed_image_is_that_of_the_project() -> None:
    overlays = sorted((ROOT / "deploy" / "kubernetes" / "overlays").glob("*/kustomization.yaml"))
    tags = {tag for path in overlays for tag in re.findall(r"newTag: (\S+?)-(?:cpu|gpu)\b", path.read_text())}
    assert tags == {PROJECT["version"]}


def test_the_extra_all_has_every_extra_that_fits_beside_the_others() -> None:
    extras = PROJECT["optional-dependencies"]
    (names,) = re.findall(r"^scorestream\[(.*)\]$", extras["all"][0])
    assert set(names.split(",")) == set(extras) - {"all", "gpu", "test"}
