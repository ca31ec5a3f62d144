"""The folder of runs: one folder a run, named by the time when it began, and a lock, so that one process works in it."""

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from model_registry import atomic_files
from publisher.errors import REFUSED, Fatal

LOCK, STEPS = ".lock", "steps"


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Raises Fatal (3) where another process works in the folder, or it cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Fatal(f"{folder} cannot be made: {error.strerror}", "name another: folder", REFUSED) from None
    with atomic_files.locked_if_free(folder / LOCK) as free:
        if not free:
            raise Fatal(f"another run is under way in {folder}", "wait for its end, or set folder", REFUSED)
        yield


def runs(folder: Path) -> list[Path]:
    """The folders of runs, the oldest first."""
    return sorted(path.parent for path in folder.glob(f"*/{STEPS}"))


def named(folder: Path, now_ms: int) -> Path:
    """The folder of a run that begins now (Unix ms)."""
    stamp = datetime.fromtimestamp(now_ms / 1_000, UTC).strftime("%Y%m%dT%H%M%S")
    return folder / f"{stamp}{now_ms % 1_000:03}Z"


def iso(unix_ms: int) -> str:
    return datetime.fromtimestamp(int(unix_ms) / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
