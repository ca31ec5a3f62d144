"""The wheel that people install: its files, its commands without a checkout, and the places that name its version or extras."""

import hashlib
import os
import re
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest

from model_registry.oci.digests import is_digest
from tests.packaging.conftest import install, site_packages
from tests.support.environment import ROOT
from training.cli import VERBS

APACHE_2 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"  # apache.org/licenses/LICENSE-2.0.txt
PACKAGES = ("scorer", "publisher", "model_registry")
TRAINING = ("deploy/training", "scorestream/training")
"""The folder of the package `training` in a checkout and in the wheel."""
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def call(command: list[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of a new environment with the wheel in it."""
    return install(tmp_path_factory.mktemp("environment"), wheel)


def test_it_is_named_after_the_project(wheel: Path) -> None:
    assert wheel.name.startswith(f"{PROJECT['name']}-{PROJECT['version']}-py3-none-")


def test_it_carries_the_licence_unmodified(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist() if ".dist-info/" in name}
    licence = next(content for name, content in files.items() if name.endswith("/licenses/LICENSE"))
    assert hashlib.sha256(licence).hexdigest() == APACHE_2
    assert b"License-Expression: Apache-2.0" in next(text for name, text in files.items() if name.endswith("/METADATA"))


@pytest.mark.parametrize("command", sorted(PROJECT["scripts"]))
def test_its_commands_run_from_its_own_packages(installed: Path, tmp_path: Path, command: str) -> None:
    completed = subprocess.run([installed / command, "--help"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    assert f"Usage: {command}" in completed.stdout
    script = f"import {', '.join(PACKAGES)}; print(*(package.__file__ for package in ({', '.join(PACKAGES)})))"
    completed = subprocess.run([installed / "python3", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert all(Path(file).is_relative_to(installed.parent) for file in completed.stdout.split())


def test_it_holds_every_file_of_its_packages_and_of_nothing_else(wheel: Path) -> None:
    command = ["git", "ls-files", "-z", *PACKAGES, TRAINING[0]]
    tracked = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    expected = {name.replace(*TRAINING) for name in filter(None, tracked.decode().split("\0"))}
    assert names - {"scorer/native/libscorestream.so"} == expected


@pytest.mark.parametrize("command", [["scorer"], ["python3", "-m", "scorer"]])
def test_the_verbs_of_training_come_from_the_wheel_and_not_from_the_folder_of_the_user(
    installed: Path, tmp_path: Path, command: list[str]
) -> None:
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "__init__.py").write_text("raise ImportError('the package of the user')\n")
    completed = call([installed / command[0], *command[1:], "train", "--help"], tmp_path)
    assert (completed.returncode, completed.stderr) == (0, "")
    assert all(f"{verb} " in completed.stdout for verb in VERBS)


def test_the_package_training_is_hidden_from_the_projects_of_users(installed: Path, tmp_path: Path) -> None:
    completed = call(
        [installed / "python3", "-c", "from importlib.util import find_spec; print(find_spec('training'))"], tmp_path
    )
    assert (completed.returncode, completed.stdout) == (0, "None\n")


def test_runs_of_the_wheel_and_of_a_checkout_have_the_same_environment(installed: Path, tmp_path: Path) -> None:
    script = "import sys; sys.path[:0] = sys.argv[1:]; from training import environment; print(environment.digest())"
    packages = site_packages(installed)
    ours = call([installed / "python3", "-c", script, packages, packages / "scorestream"], tmp_path)
    theirs = call([installed / "python3", "-c", script, ROOT, ROOT / "deploy"], tmp_path)
    assert (ours.stdout, ours.stderr) == (theirs.stdout, "")
    assert is_digest(ours.stdout.strip())


def test_without_the_extra_one_line_names_the_missing_packages_and_the_remedy(wheel: Path, tmp_path: Path) -> None:
    commands = install(tmp_path / "environment", wheel)
    dependencies = tmp_path / "dependencies"
    dependencies.mkdir()
    link = site_packages(commands) / "dependencies.pth"
    for path in Path(link.read_text()).iterdir():
        if not path.name.startswith("lightgbm"):
            (dependencies / path.name).symlink_to(path)
    link.write_text(str(dependencies))
    for arguments in (["train"], ["train", "--help"], ["train", "run", "training.yaml"]):
        completed = call([commands / "scorer", *arguments], tmp_path)
        assert (completed.returncode, completed.stdout) == (2, "")
        assert completed.stderr == (
            "error: scorer train needs packages that are not installed: lightgbm\n"
            "hint: pip install 'scorestream[cpu,training]'\n"
        )
    overview = call([commands / "scorer", "--help"], tmp_path)
    assert (overview.returncode, overview.stderr) == (0, "")
    assert " train " in overview.stdout


def test_the_extra_all_has_every_extra_that_fits_beside_the_others() -> None:
    extras = PROJECT["optional-dependencies"]
    (names,) = re.findall(r"^scorestream\[(.*)\]$", extras["all"][0])
    assert set(names.split(",")) == set(extras) - {"all", "gpu", "test", "network"}, "network: 5 GB, for one of two recipes"
