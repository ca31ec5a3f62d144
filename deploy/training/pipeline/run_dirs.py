"""The folder of runs: one folder per run, named after its start, and a lock that admits one process."""

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from model_registry import atomic_files
from publisher.errors import REFUSED, Fatal

LOCK = ".lock"
STEPS = "steps"


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold the lock of the folder of runs during the block, so that only one process runs there.

    Raises Fatal (exit code 3) if another process holds the lock, or the folder cannot be created.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Fatal(f"{folder} cannot be created: {error.strerror}", "set another folder in training.yaml", REFUSED) from None
    with atomic_files.try_lock(folder / LOCK) as free:
        if not free:
            raise Fatal(
                f"another run is active in {folder}",
                "wait until that run ends, or set another folder in training.yaml",
                REFUSED,
            )
        yield


def runs(folder: Path) -> list[Path]:
    """Return the folder of each run below `folder`, oldest first."""
    return sorted(path.parent for path in folder.glob(f"*/{STEPS}"))


def named(folder: Path, now_ms: int) -> Path:
    """Return the path of the folder for a run that starts at `now_ms` (Unix ms). Its name is this time in UTC."""
    stamp = datetime.fromtimestamp(now_ms / 1_000, UTC).strftime("%Y%m%dT%H%M%S")
    return folder / f"{stamp}{now_ms % 1_000:03}Z"


def iso(unix_ms: int) -> str:
    """Format a Unix time in milliseconds as ISO 8601 in UTC."""
    return datetime.fromtimestamp(int(unix_ms) / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
