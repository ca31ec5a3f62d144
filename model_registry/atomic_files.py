"""Atomic writes, file locks, conversion of operating system errors to registry errors, and checks of untrusted paths.

A new file is written in the folder of its target, synced and renamed to the target. Then the folder is synced, so that a
completed rename survives a power cut.
"""

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from model_registry import suggestions
from model_registry.errors import BadFile, Corrupt, DiskFailed


@contextlib.contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Wait for an exclusive flock on the file `path`, and hold the lock until the `with` block ends.

    The file is created if it is missing. The kernel releases the lock if the process dies.
    """
    descriptor = open_locked(path, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Try to lock the file `path` exclusively, without waiting. Yield True if this process got the lock."""
    try:
        descriptor = open_locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
        return
    try:
        yield True
    finally:
        os.close(descriptor)


def open_locked(path: Path, operation: int) -> int:
    """Lock the file `path` and return its descriptor; closing the descriptor releases the lock.

    The file is created if it is missing. `operation` is the operation of flock(2), such as LOCK_EX.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, operation)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def replace(path: Path, content: Iterable[bytes], *, newer_than_ns: int = 0) -> None:
    """Replace the file `path` atomically. If an error occurs while `content` is read or written, the previous file stays.

    The new file's modification time is later than `newer_than_ns` (Unix time in nanoseconds).
    """
    # If the clock does not show a later time yet (its resolution is often only 4 ms), the modification time is set to one
    # nanosecond after `newer_than_ns`.
    descriptor, name = tempfile.mkstemp(prefix=".", suffix=".part", dir=path.parent)
    part = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            for chunk in content:
                stream.write(chunk)
            stream.flush()
            os.fchmod(stream.fileno(), 0o644)
            if os.fstat(stream.fileno()).st_mtime_ns <= newer_than_ns:
                os.utime(stream.fileno(), ns=(newer_than_ns + 1, newer_than_ns + 1))
            os.fsync(stream.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def place(part: Path, path: Path) -> None:
    """Sync the temporary file `part`, and rename it to `path`, which must be in the same file system.

    Call `sync_directory` afterwards, so that the new name survives a power cut.
    """
    with part.open("rb") as stream:
        os.fsync(stream.fileno())
    part.replace(path)


def sync_directory(path: Path) -> None:
    """Sync a directory, so that files created or renamed in it keep their names after a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def report_os_errors(subject: str) -> Iterator[None]:
    """Convert an OSError in the `with` block to DiskFailed. The message names `subject` and the file."""
    try:
        yield
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        question = suggestions.file_question(Path(error.filename)) if isinstance(error, FileNotFoundError) and where else ""
        hint = question or "check the path, its permissions and the space left"
        raise DiskFailed(f"{subject}: {error.strerror}{where}", hint) from error


def read_named(description: str, path: Path, limit: int = 1 << 30) -> bytes:
    """Return the content of the file at a path that a user gave; `description` names the kind of file in messages.

    Raises BadFile if the file is unreadable or larger than `limit` bytes.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(limit + 1)
    except OSError as error:
        question = suggestions.file_question(path) if isinstance(error, FileNotFoundError) else ""
        raise BadFile(f"the {description} {path}: {error.strerror}", question or "check the path and its permissions") from None
    if len(data) > limit:
        raise BadFile(f"the {description} {path} has more than {limit} bytes", "check that it is the right file")
    return data


def check_paths(paths: Iterable[str]) -> None:
    """Check that paths are relative, stay inside their folder, and are valid on every file system.

    Raises Corrupt if a path is invalid, if two paths differ only in case, or if one path is a parent folder of another path.
    """
    checked: set[str] = set()
    folders: set[str] = set()
    for path in paths:
        if not is_confined(path):
            raise Corrupt(f"the file path {path!r:.200} leads out of the folder, or is not a plain relative path")
        folded = path.casefold()
        parents = {str(parent) for parent in PurePosixPath(folded).parents if str(parent) != "."}
        if folded in checked or folded in folders or parents & checked:
            raise Corrupt(
                f"the file path {path!r:.200} cannot exist beside another file path: only case differs, or one is a folder"
            )
        checked.add(folded)
        folders |= parents


def is_confined(path: str) -> bool:
    """Return whether a path is relative, stays inside its folder, and is valid on every file system.

    A valid path has no backslash, colon or control character, and at most 1024 bytes. No part of the path is empty, `.` or
    `..`, or longer than 255 bytes.
    """
    if not path or not path.isprintable() or {"\\", ":"} & set(path) or len(path.encode("utf-8", "replace")) > 1024:
        return False
    return all(part not in ("", ".", "..") and len(part.encode("utf-8", "replace")) <= 255 for part in path.split("/"))
