"""The wheel of this checkout, and environments into which wheels are installed."""

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.support.environment import ROOT

OPTIONS = ("--no-index", "--no-deps", "--no-compile")
"""Options of pip. Compilation of all modules takes 2 s; the commands of the tests import few of them."""


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel of this checkout. `test_native.py` tests its native part."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


def install(folder: Path, *wheels: Path) -> Path:
    """Create an environment, install wheels into it in this order, and return its `bin` folder.

    Dependencies come from this interpreter's environment, by a path that does not lead to the checkout.
    """
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python3"
    for wheel in wheels:
        command = [sys.executable, "-m", "pip", "--python", str(python), "install", *OPTIONS, str(wheel)]
        subprocess.run(command, check=True, capture_output=True)
    (site_packages(python.parent) / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return python.parent


def site_packages(commands: Path) -> Path:
    """Return the folder of the packages of an environment, given its `bin` folder."""
    return Path(sysconfig.get_path("purelib", vars={"base": str(commands.parent)}))
