"""Programs that tests build with Go, once."""

import os
import subprocess
import sys
from pathlib import Path

from platformdirs import user_cache_path


def program(module: str) -> Path:
    """The program of a module such as `example.org/x/cmd/x@v1.2.3`, built unless that was done before.

    Raises OSError where there is no Go, CalledProcessError where it does not build.
    """
    path, _, version = module.partition("@")
    folder = user_cache_path("scorestream") / "go" / module.replace("/", "_")
    name = next(part for part in reversed(path.split("/")) if part != version.partition(".")[0])
    if not (folder / name).exists():
        print(f"building {name} {version}", file=sys.stderr)
        command = ["nice", "-n", "15", "go", "install", module]
        subprocess.run(command, env=os.environ | {"GOBIN": str(folder)}, check=True)
    return folder / name
