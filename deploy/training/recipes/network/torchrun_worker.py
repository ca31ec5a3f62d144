"""Run one process of a training: `torchrun ... -m training.recipes.network.torchrun_worker FOLDER EPOCHS`.

PYTHONPATH must contain deploy/. With another launcher, which sets RANK, WORLD_SIZE and MASTER_ADDR, the processes can run on
several nodes; FOLDER must then be on a volume that all nodes share.
"""

# Rank 0 holds the lock of the folder, reads the newest checkpoint, sends it to the other ranks, and writes a checkpoint after
# each epoch. If a rank dies, torchrun restarts all ranks, and they continue from the newest checkpoint.

import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from model_registry import atomic_files
from publisher.errors import USAGE, Fatal
from training.recipes.network import job_files, train_loop
from training.recipes.network.model import SHARDS, settled
from training.recipes.network.torchrun_launch import die_with_parent
from training.recipes.network.train_loop import Share


def main(arguments: Sequence[str]) -> None:
    """Train the job in a folder up to a number of epochs; the arguments are FOLDER and EPOCHS.

    Raises Fatal (exit code 2) if the number of processes is not 1, 2, 4 or 8.
    """
    die_with_parent()
    folder = Path(arguments[0])
    epochs = int(arguments[1])
    share = Share(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    if train_loop.processes(share.processes) != share.processes:
        raise Fatal(f"{share.processes} processes cannot share a batch", f"start 1, 2, 4 or {SHARDS} processes", USAGE)
    torch = settled()
    from torch import distributed

    job, rows = job_files.read(folder)
    device = f"cuda:{os.environ['LOCAL_RANK']}" if job.gpus else "cpu"
    if job.gpus:
        torch.cuda.set_device(device)
    distributed.init_process_group("nccl" if job.gpus else "gloo", store=_meeting(), rank=share.rank, world_size=share[1])
    with atomic_files.hold_lock(folder / job_files.LOCK) if share.rank == 0 else nullcontext():
        state = _sent(torch, job_files.begun(folder, job, epochs), device)
        train_loop.train(folder, job, rows, state, epochs, share, device)
    distributed.destroy_process_group()


def _meeting() -> Any:
    """Create a rendezvous store for the processes that torchrun has just started."""
    # After a restart, torchrun's agent keeps the same store. A process could read from it the address of a process that was
    # killed before the restart, and would wait half an hour for that process.
    from torch import distributed

    store, *_ = next(distributed.rendezvous("env://"))
    return distributed.PrefixStore(f"start {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)


def _sent(torch: Any, state: job_files.State, device: str) -> job_files.State:
    """Broadcast the state of rank 0 to all processes, and return it in each of them."""
    counts = torch.tensor(state[:2], device=device)
    vectors = [torch.tensor(vector, device=device) for vector in state[2:]]
    for tensor in (counts, *vectors):
        torch.distributed.broadcast(tensor, 0)
    return job_files.State(*counts.tolist(), *(vector.cpu().numpy() for vector in vectors))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Fatal as error:
        print(f"error: {error}\nhint: {error.hint}", file=sys.stderr)
        sys.exit(error.exit_code)
