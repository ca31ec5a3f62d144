"""Start torchrun's agent, which starts the workers and restarts them if one dies.

No process outlives its parent: each process asks the kernel to be killed when its parent dies (Linux).
"""

# Otherwise the workers of a killed agent would continue beside the workers of the next agent.

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

from publisher.errors import UNREACHABLE, Fatal

RESTARTS = 3
LOG = "log.txt"  # in the folder of the training, see `training.recipes.contract`
PR_SET_PDEATHSIG = 1
PARENT = "TRAINING_PARENT"
"""The environment variable by which a process passes its process id to its child processes."""
DEPLOY = Path(__file__).resolve().parents[3]


def launch(folder: Path, epochs: int, processes: int) -> None:
    """Train the job in the folder up to `epochs` epochs with `processes` processes on this machine, and wait until they end.

    Raises Fatal (exit code 4) if the processes fail.
    """
    path = os.pathsep.join([str(DEPLOY), str(DEPLOY.parent), os.environ.get("PYTHONPATH", "")])
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        PARENT: str(os.getpid()),
        "OMP_NUM_THREADS": "1",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",  # without this value cuBLAS results differ between runs
    }
    local_arguments = ("--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={processes}", f"--max-restarts={RESTARTS}")
    worker = ("-m", "training.recipes.network.torchrun_worker", str(folder), str(epochs))
    command = (sys.executable, "-m", "training.recipes.network.torchrun_agent", *local_arguments, *worker)
    code = subprocess.run(command, env=environment, stdout=sys.__stderr__, check=False).returncode
    if code != 0:
        outcome = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        message = f"the training in {folder} by {processes} processes {outcome}; the cause is in {folder.parent / LOG}"
        raise Fatal(message, "run again: the training continues from the last checkpoint", UNREACHABLE)


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies; end at once if the parent is dead."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if PARENT in os.environ and os.getppid() != int(os.environ[PARENT]):
        os._exit(1)
