"""`python -m tests.proofs.gpu.wheel`: the real `onnxruntime-gpu[cuda,cudnn]` refuses a GPU that is missing.

Installs what deploy/requirements/gpu.txt pins, and the project, into an environment of their own in the user's cache (2.6 GB,
once).
Exit codes: 0 as promised, 1 not, 2 on a machine with an NVIDIA driver, where there is nothing to refuse.
"""

import ctypes
import subprocess
import sys
import tempfile
from pathlib import Path

from scorer.backends.onnx.gpu import DRIVER
from tests.integration.backends.servers import environment
from tests.support import models

PROMISED = {"cpu": (0, "events/s"), "cuda": (2, "libcuda.so.1"), "tensorrt": (2, "libcuda.so.1")}
"""Exit code of `scorer bench` by device, and what it says."""


def main() -> int:
    """Try each device; the exit code."""
    try:
        ctypes.CDLL(DRIVER)
    except OSError:
        scorer = environment("gpu").parent / "scorer"
    else:
        print("an NVIDIA driver is here; python -m tests gpu measures what it drives", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="scorestream-wheel-") as name:
        package = models.linear_package(Path(name) / "linear", 2.0)
        kept = [_as_promised(scorer, package, device) for device in PROMISED]
        return int(not all(kept))


def _as_promised(scorer: Path, package: Path, device: str) -> bool:
    code, said = PROMISED[device]
    settings = ["--set", f"model.device={device}", "--set", "batching.max_events=8"]
    done = subprocess.run([scorer, "bench", str(package), *settings], capture_output=True, text=True, check=False)
    kept = done.returncode == code and said in done.stdout + done.stderr
    print(f"{'ok  ' if kept else 'FAIL'} {device}: exit code {done.returncode}: {(done.stderr or done.stdout).strip()}")
    return kept


if __name__ == "__main__":
    sys.exit(main())
