"""Virtual environments with one pinned package, for commands that read the product's files with a program of others."""

import fcntl
import subprocess
import sys
from pathlib import Path

from platformdirs import user_cache_path

CACHE = user_cache_path("scorestream-tests")


def pinned_python(name: str, requirement: str) -> Path:
    """Return the Python of the cached virtual environment `name`, in which `requirement` is installed.

    The environment is created if it is missing. A changed requirement is installed again.
    """
    folder = CACHE / name
    folder.mkdir(parents=True, exist_ok=True)
    python, installed = folder / "bin" / "python", folder / "installed"
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not installed.is_file() or installed.read_text() != requirement:
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
            subprocess.run([python, "-m", "pip", "install", "-q", requirement], check=True)
            installed.write_text(requirement)
    return python
