"""Another distribution that installs a package `model_registry` into the same environment, such as Kubeflow's client."""

import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from scorer import entry_points
from tests.packaging.conftest import install, site_packages
from tests.packaging.test_wheel import PROJECT
from tests.support.environment import ROOT

COMMANDS = sorted(PROJECT["scripts"])
OURS = f"scorestream {PROJECT['version']}"
REMEDY = "both install the Python package model_registry; install each into an environment of its own"


@pytest.fixture(scope="module")
def rival(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel like Kubeflow's, with its own `__init__.py`, which imports a package that is not installed."""
    path = tmp_path_factory.mktemp("rival") / "model_registry-0.3.18-py3-none-any.whl"
    info = "model_registry-0.3.18.dist-info"
    files = {
        "model_registry/__init__.py": "from ._client import ModelRegistry\n",
        "model_registry/_client.py": "import mr_openapi\n\nclass ModelRegistry: ...\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: model-registry\nVersion: 0.3.18\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
        archive.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"]))
    return path


@pytest.fixture(scope="module")
def overwritten(wheel: Path, rival: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of an environment into which the other distribution was installed after ours."""
    return install(tmp_path_factory.mktemp("overwritten"), wheel, rival)


@pytest.fixture
def intact(wheel: Path, tmp_path: Path) -> Path:
    """The `bin` folder of an environment with our distribution alone."""
    return install(tmp_path / "intact", wheel)


def call(command: list[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", [*([name] for name in COMMANDS), ["python3", "-m", "scorer"], ["scorer", "train"]])
def test_a_command_whose_modules_were_overwritten_reports_it_in_one_line(
    overwritten: Path, tmp_path: Path, command: list[str | Path]
) -> None:
    completed = call([overwritten / command[0], *command[1:], "--help"], tmp_path)
    files = "the distribution model-registry 0.3.18 has overwritten model_registry/__init__.py"
    assert (completed.returncode, completed.stdout) == (2, "")
    assert completed.stderr == f"error: {files} of {OURS}: {REMEDY}\n"


def test_commands_that_have_overwritten_the_other_warn_and_run(wheel: Path, rival: Path, tmp_path: Path) -> None:
    commands = install(tmp_path / "environment", rival, wheel)
    for command in COMMANDS:
        completed = call([commands / command, "--help"], tmp_path)
        assert completed.returncode == 0
        assert f"Usage: {command}" in completed.stdout
        assert completed.stderr == (
            f"warning: {OURS} has overwritten model_registry/__init__.py of model-registry 0.3.18: {REMEDY}\n"
        )


def test_an_editable_installation_is_hidden_by_the_other(rival: Path, tmp_path: Path) -> None:
    commands = install(tmp_path / "environment", rival)
    packages = site_packages(commands)
    info = packages / f"scorestream-{PROJECT['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: scorestream\nVersion: {PROJECT['version']}\n")
    (info / "RECORD").write_text("_scorestream.pth,,\n")
    (packages / "_scorestream.pth").write_text(str(ROOT))
    completed = call([commands / "python3", "-c", "from scorer.entry_points import scorer; scorer()"], tmp_path)
    message = f"the distribution model-registry 0.3.18 hides the package model_registry of {OURS}"
    assert (completed.returncode, completed.stderr) == (2, f"error: {message}: {REMEDY}\n")


def test_a_module_that_a_person_changed_is_no_conflict(intact: Path, tmp_path: Path) -> None:
    with (site_packages(intact) / "model_registry" / "__init__.py").open("a") as stream:
        stream.write("# changed\n")
    completed = call([intact / "model-registry", "--help"], tmp_path)
    assert (completed.returncode, completed.stderr) == (0, "")


def test_a_distribution_of_any_name_is_reported(intact: Path, tmp_path: Path) -> None:
    packages = site_packages(intact)
    module = packages / "model_registry" / "__init__.py"
    module.write_text("raise ImportError\n")
    info = packages / "other-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1\n")
    (info / "RECORD").write_text(f"model_registry/__init__.py,sha256={entry_points._digest(module)},\n")
    completed = call([intact / "scorer", "--help"], tmp_path)
    assert completed.returncode == 2
    assert completed.stderr.startswith(
        "error: the distribution other 1 has overwritten model_registry/__init__.py of scorestream"
    )


def test_only_the_standard_library_is_imported_before_the_check(intact: Path, tmp_path: Path) -> None:
    shutil.rmtree(site_packages(intact) / "model_registry")
    shutil.rmtree(site_packages(intact) / "publisher")
    (site_packages(intact) / "dependencies.pth").unlink()
    completed = call([intact / "python3", "-c", "import scorer.entry_points as e; e.check_packages()"], tmp_path)
    assert (completed.returncode, completed.stderr) == (0, "")
