"""Go programs that tests need, built once per user and version."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

from platformdirs import user_cache_path


def program(module: str) -> Path:
    """Return the path of the program of a Go module, such as `example.org/x/cmd/x@v1.2.3`; build it if it is missing.

    Raises OSError if Go is not installed, CalledProcessError if the build fails.
    """
    path, _, version = module.partition("@")
    folder = user_cache_path("scorestream") / "go" / module.replace("/", "_")
    name = next(part for part in reversed(path.split("/")) if part != version.partition(".")[0])
    if (folder / name).exists():
        return folder / name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes, and one of them builds
        if not (folder / name).exists():
            print(f"building {name} {version}", file=sys.stderr)
            command = ["nice", "-n", "15", "go", "install", module]
            subprocess.run(command, env=os.environ | {"GOBIN": str(folder)}, check=True)
    return folder / name
