"""The wheel that people install: what is in it, that its commands run where no checkout is, and that what names its version or
its extras is right."""

import hashlib
import re
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.packaging.conftest import install
from tests.support.environment import ROOT

APACHE_2 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"  # apache.org/licenses/LICENSE-2.0.txt
PACKAGES = ("scorer", "publisher", "model_registry")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of a new environment with the wheel in it."""
    return install(tmp_path_factory.mktemp("environment"), wheel)


def test_it_is_named_after_the_project(wheel: Path) -> None:
    assert wheel.name.startswith(f"{PROJECT['name']}-{PROJECT['version']}-py3-none-")


def test_it_carries_the_licence_unmodified(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        found = {name: archive.read(name) for name in archive.namelist() if ".dist-info/" in name}
    licence = next(content for name, content in found.items() if name.endswith("/licenses/LICENSE"))
    assert hashlib.sha256(licence).hexdigest() == APACHE_2
    assert b"License-Expression: Apache-2.0" in next(text for name, text in found.items() if name.endswith("/METADATA"))


@pytest.mark.parametrize("command", sorted(PROJECT["scripts"]))
def test_its_commands_run_from_its_own_packages(installed: Path, tmp_path: Path, command: str) -> None:
    done = subprocess.run([installed / command, "--help"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"Usage: {command}" in done.stdout
    say = f"import {', '.join(PACKAGES)}; print(*(package.__file__ for package in ({', '.join(PACKAGES)})))"
    done = subprocess.run([installed / "python3", "-c", say], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert all(Path(file).is_relative_to(installed.parent) for file in done.stdout.split())


def test_it_holds_every_file_of_its_packages_and_of_nothing_else(wheel: Path) -> None:
    tracked = subprocess.run(["git", "ls-files", "-z", *PACKAGES], cwd=ROOT, capture_output=True, check=True).stdout
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
    assert set(names) - {"scorer/native/libscorestream.so"} == set(filter(None, tracked.decode().split("\0")))


def test_the_extra_all_has_every_extra_that_fits_beside_the_others() -> None:
    extras = PROJECT["optional-dependencies"]
    (names,) = re.findall(r"^scorestream\[(.*)\]$", extras["all"][0])
    assert set(names.split(",")) == set(extras) - {"all", "gpu", "test", "network"}, "network: 5 GB, for one of two recipes"
