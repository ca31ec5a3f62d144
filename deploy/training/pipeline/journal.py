"""The journal of a run: one JSON document per completed step. A step that has a document is not run again."""

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from model_registry import atomic_files
from publisher.errors import REFUSED, Fatal

T = TypeVar("T")


class Entry(msgspec.Struct, frozen=True):
    """The document of a completed step: its end (Unix ms), its duration in seconds, and its result as JSON."""

    step: str
    ended_ms: int
    seconds: float
    result: msgspec.Raw


class Journal:
    """The completed steps of one run: one document `STEP.json` per step, in the folder `steps` of the run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def entry(self, step: str) -> Entry | None:
        """Read the document of a step, or return None if the step is not complete.

        Raises Fatal (exit code 3) if the document cannot be read.
        """
        path = self._path(step)
        try:
            return msgspec.json.decode(path.read_bytes(), type=Entry)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            raise _damaged(path, error) from None

    def result(self, step: str, of: type[T]) -> T | None:
        """Return the result of a step as an object of type `of`, or None if the step is not complete.

        Raises Fatal (exit code 3) if the document cannot be read.
        """
        entry = self.entry(step)
        if entry is None:
            return None
        try:
            return msgspec.json.decode(entry.result, type=of)
        except msgspec.MsgspecError as error:
            raise _damaged(self._path(step), error) from None

    def write(self, step: str, result: object, seconds: float, now_ms: int) -> None:
        """Write the document of a completed step. Raises Fatal (exit code 3) if the file cannot be written."""
        write(self._path(step), Entry(step, now_ms, round(seconds, 3), msgspec.Raw(msgspec.json.encode(result))))

    def set_aside(self, steps: Iterable[str]) -> None:
        """Mark these steps as incomplete: rename their documents to `STEP.1.json`, `STEP.2.json` and so on."""
        for path in filter(Path.exists, map(self._path, steps)):
            number = 1 + len(list(self._folder.glob(f"{path.stem}.*.json")))
            path.rename(path.with_suffix(f".{number}.json"))

    def _path(self, step: str) -> Path:
        return self._folder / f"{step}.json"


def write(path: Path, value: object) -> None:
    """Write a JSON document atomically. Raises Fatal (exit code 3) if the file cannot be written."""
    with written(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_files.replace(path, [msgspec.json.format(msgspec.json.encode(value), indent=2), b"\n"])


@contextlib.contextmanager
def written(path: Path) -> Iterator[None]:
    """Raise Fatal (exit code 3) if the block raises an OSError; the message names `path`."""
    try:
        yield
    except OSError as error:
        raise Fatal(
            f"{path} cannot be written: {error.strerror}",
            "check the disk space and the permissions, and run again",
            REFUSED,
        ) from None


def _damaged(path: Path, error: Exception) -> Fatal:
    return Fatal(f"{path} cannot be read: {error}", f"remove {path.parents[1]}, or start a new run: run --new", REFUSED)
