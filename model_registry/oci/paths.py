"""File paths that strangers name: only those that stay inside the folder they are written to, on every file system."""

from collections.abc import Iterable
from pathlib import PurePosixPath

from model_registry.errors import Corrupt


def check(paths: Iterable[str]) -> None:
    """Relative paths that stay inside the folder they are written to, on every file system. Raises Corrupt.

    Two paths that differ in case only, or of which one is a folder of the other, cannot both be written everywhere.
    """
    seen: set[str] = set()
    folders: set[str] = set()
    for path in paths:
        if not is_confined(path):
            raise Corrupt(f"the file path {path!r:.200} leads out of the folder, or is no plain relative path")
        folded = path.casefold()
        parents = {str(parent) for parent in PurePosixPath(folded).parents if str(parent) != "."}
        if folded in seen or folded in folders or parents & seen:
            raise Corrupt(f"the file path {path!r:.200} stands in the way of another one")
        seen.add(folded)
        folders |= parents


def is_confined(path: str) -> bool:
    """Whether a path is relative, without `.`, `..`, backslash, colon and control characters, its names at most 255 bytes."""
    if not path or not path.isprintable() or {"\\", ":"} & set(path) or len(path.encode("utf-8", "replace")) > 1024:
        return False
    return all(part not in ("", ".", "..") and len(part.encode("utf-8", "replace")) <= 255 for part in path.split("/"))
