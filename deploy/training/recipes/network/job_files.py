"""The files in the folder of a training: the job and the rows, which the worker processes read, and the checkpoints.

`<epoch>.npz` is the checkpoint after this number of epochs. Files are written atomically.
"""

# A checkpoint has the flat weights, both moments of the optimizer, and the digest of the job. All random numbers derive from
# (seed, epoch, step, shard), so no other state is stored.

import hashlib
import io
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from model_registry import atomic_files
from publisher.errors import REFUSED, Fatal
from training.recipes.network.encoding import TensorEncodings
from training.recipes.network.head import BINARY, Head
from training.recipes.network.model import Parameters, Shape, first, shapes

JOB = "job.json"
ROWS = "rows.npz"
LOCK = ".lock"
CHECKPOINT = ".npz"


class Job(msgspec.Struct, frozen=True):
    """A training job: all inputs that determine the weights, except the rows.

    Attributes:
        digest: A digest of these inputs and the rows.
        gpus: Whether GPUs are used.
        head: Interprets the outputs of the network: as log odds, logits or a number.
    """

    digest: str
    seed: int
    parameters: Parameters
    encoding: TensorEncodings
    gpus: bool = False
    head: Head = BINARY

    @property
    def shapes(self) -> list[Shape]:
        return shapes(self.encoding, self.parameters, self.head.outputs)


class Encoded(NamedTuple):
    """The encoded rows: the inputs of the network, and the labels.

    Attributes:
        numbers: (B, n) float32, the standardized values of the numeric columns.
        names: (B, c) int64, the indices that stand for the strings of the c string columns.
        outcomes: (B,), the labels in the form that the loss reads: class indices, or standardized numbers.
    """

    numbers: NDArray[np.float32]
    names: NDArray[np.int64]
    outcomes: NDArray[Any]


class State(NamedTuple):
    """The state of a training after `epoch` epochs and `steps` optimizer steps.

    `weights` are all weights as one flat vector; `mean` and `square` are the first and second moments of their gradient.
    """

    epoch: int
    steps: int
    weights: NDArray[np.float32]
    mean: NDArray[np.float32]
    square: NDArray[np.float32]


def of(
    rows: Encoded, encoding: TensorEncodings, parameters: Parameters, seed: int, head: Head = BINARY, *, gpus: bool = False
) -> Job:
    """Create a job; its digest covers all arguments, because all of them determine the weights."""
    digest = hashlib.sha256(msgspec.json.encode((seed, parameters, encoding, head, gpus)))
    for array in rows:
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return Job(digest.hexdigest(), seed, parameters, encoding, gpus, head)


def write(folder: Path, job: Job, rows: Encoded) -> None:
    """Write a job and its rows to the folder, for the processes that train there. Raises OSError."""
    _replace(folder / ROWS, rows._asdict())
    atomic_files.replace(folder / JOB, [msgspec.json.encode(job)])


def read(folder: Path) -> tuple[Job, Encoded]:
    """Read the job and the rows that `write` has written."""
    job = msgspec.json.decode((folder / JOB).read_bytes(), type=Job)
    with np.load(folder / ROWS, allow_pickle=False) as archive:
        return job, Encoded(**archive)


def begun(folder: Path, job: Job, epochs: int) -> State:
    """Return the newest checkpoint after at most `epochs` epochs, or the initial state if there is none.

    Raises Fatal (exit code 3) if the checkpoint cannot be read or belongs to another job.
    """
    done = [int(path.stem) for path in folder.glob(f"*{CHECKPOINT}") if path.stem.isdecimal()]
    newest = max((epoch for epoch in done if epoch <= epochs), default=0)
    if not newest:
        weights = first(job.shapes, len(job.encoding.vocabularies), job.seed)
        return State(0, 0, weights, np.zeros_like(weights), np.zeros_like(weights))
    return _read(folder / f"{newest}{CHECKPOINT}", job)


def keep(folder: Path, job: Job, state: State) -> None:
    """Write the state as a checkpoint. Raises OSError."""
    _replace(folder / f"{state.epoch}{CHECKPOINT}", {**state._asdict(), "job": job.digest})


def forget(folder: Path, epoch: int) -> None:
    """Remove a checkpoint that a newer one replaces."""
    (folder / f"{epoch}{CHECKPOINT}").unlink(missing_ok=True)


def _read(path: Path, job: Job) -> State:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = dict(archive)
        state = State(int(arrays["epoch"]), int(arrays["steps"]), arrays["weights"], arrays["mean"], arrays["square"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise Fatal(
            f"the checkpoint {path} cannot be read: {error}", "remove this file; its epochs are then trained again", REFUSED
        ) from None
    if str(arrays["job"]) != job.digest:
        message = f"the checkpoint {path} belongs to a training with other rows, parameters or seed"
        raise Fatal(message, f"remove the folder {path.parent}; the training then starts again from the beginning", REFUSED)
    return state


def _replace(path: Path, arrays: dict[str, object]) -> None:
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]
    atomic_files.replace(path, [content.getvalue()])
