"""Suggests the valid name that is most similar to a misspelt name of a topic, setting, file or folder, for error messages."""

import difflib
from collections.abc import Callable, Iterable
from pathlib import Path

CUTOFF = 0.6


def name(misspelt: str, valid: Iterable[str], cutoff: float = CUTOFF) -> str | None:
    """Return the valid name most similar to a misspelt name; None if every similarity (0 to 1) is below `cutoff`."""
    return next(iter(difflib.get_close_matches(misspelt, list(valid), n=1, cutoff=cutoff)), None)


def question(misspelt: str, valid: Iterable[str]) -> str:
    """Return `did you mean 'flights'?` with the most similar valid name; an empty string if no valid name is similar."""
    near = name(misspelt, valid)
    return f"did you mean {near!r}?" if near else ""


def file_question(path: Path) -> str:
    """Return `did you mean 'scorer.yaml'?` for a path that does not exist; an empty string if no similar path exists.

    Only the first part of the path that does not exist is corrected.
    """
    return _path_question(path, Path.exists)


def folder_question(path: Path) -> str:
    """Return the same question as `file_question`, for a path that must be a folder."""
    return _path_question(path, Path.is_dir)


def _path_question(path: Path, is_valid: Callable[[Path], bool]) -> str:
    missing = next((part for part in (*reversed(path.parents), path) if not _holds(Path.exists, part)), None)
    if missing is None:
        return ""
    try:
        rest = path.relative_to(missing)
        beside = [entry.name for entry in missing.parent.iterdir() if _holds(is_valid, entry / rest)]
    except OSError:
        return ""
    near = name(missing.name, beside)
    return f"did you mean {str(missing.parent / near / rest)!r}?" if near else ""


def _holds(condition: Callable[[Path], bool], path: Path) -> bool:
    try:
        return condition(path)
    except OSError:
        return False
