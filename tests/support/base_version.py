"""The packages of an earlier commit, to run beside the present ones in one consumer group.

The file `base_version.txt` names the commit. It is the oldest version that may run beside the present version; the policy is in
deploy/upgrades.md. The packages use the dependencies of the present environment, and their own native part.
"""

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.support.environment import ROOT

PACKAGES = ("scorer", "publisher", "model_registry")
COMMIT = Path(__file__).with_name("base_version.txt").read_text().strip()
COMPILE = "from scorer.native import compiler; compiler.compile_to(compiler.OBJECT)"
"""Builds the native part beside its sources, as an editable installation does."""


class BaseVersion:
    """The packages of the base commit in a folder.

    Raises:
        AssertionError: The clone does not have the commit.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        archive = subprocess.run(["git", "archive", COMMIT, *PACKAGES], cwd=ROOT, capture_output=True, check=False)
        hint = "fetch the whole history: git fetch --unshallow"
        assert archive.returncode == 0, f"git archive {COMMIT}: {archive.stderr.decode().strip()}; {hint}"
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            files.extractall(folder, filter="data")
        subprocess.run([sys.executable, "-P", "-c", COMPILE], env={**os.environ, **self.environment}, check=True)

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables with which Python imports these packages."""
        return {"PYTHONPATH": str(self.folder)}

    def command(self, name: str) -> list[str]:
        """Return the start of a command line, to be run with `environment`. `name` is the package of the command."""
        return [sys.executable, "-P", "-m", name]

    def is_run_by(self, process: int) -> bool:
        """Return whether a process uses the native part of this version."""
        return str(self.folder / "scorer" / "native") in Path(f"/proc/{process}/maps").read_text()
