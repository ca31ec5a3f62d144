"""Follow the tutorial on your own model: train, draft, fill in, push and promote."""

import os
import subprocess
import sys
from pathlib import Path

from tests.docs import pages

PAGE = "model_registry/docs/your-own-model.md"


def follow(folder: Path, library: str) -> list[str]:
    """Run the tutorial's blocks in a folder up to the promotion.

    Args:
        folder: The working directory.
        library: The block that trains and exports: `scikit-learn` or `lightgbm`.

    Returns:
        The standard output of each command, in the order of the page.
    """
    blocks = pages.blocks(PAGE)
    (folder / "train.py").write_text("\n".join(blocks[name] for name in ("data", library, "write")))
    printed = [run_line(line, folder) for name in ("train", "init") for line in pages.lines(PAGE, name)]
    (folder / "fraud-1.0.0" / "signature.json").write_text(blocks["fraud-signature"])
    return printed + [run_line(line, folder) for name in ("complete", "publish") for line in pages.lines(PAGE, name)]


def run_line(line: str, folder: Path) -> str:
    """Run a line of a page in a folder, and return its standard output; it must succeed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    completed = subprocess.run(
        ["sh", "-c", line], cwd=folder, env=os.environ | {"PATH": path}, check=False, capture_output=True, text=True
    )
    assert completed.returncode == 0, f"{line}: {completed.stderr}"
    return completed.stdout
