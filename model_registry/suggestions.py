"""Names near a misspelt one, for error messages: of topics, settings, files and folders."""

import difflib
from collections.abc import Iterable
from pathlib import Path

CUTOFF = 0.6


def name(misspelt: str, valid: Iterable[str], cutoff: float = CUTOFF) -> str | None:
    """Return the valid name that is nearest, if one is near."""
    return next(iter(difflib.get_close_matches(misspelt, list(valid), n=1, cutoff=cutoff)), None)


def question(misspelt: str, valid: Iterable[str]) -> str:
    """Return `did you mean 'flights'?`, or nothing where no valid name is near."""
    near = name(misspelt, valid)
    return f"did you mean {near!r}?" if near else ""


def file_question(path: Path) -> str:
    """Return `did you mean 'scorer.yaml'?` for a file or folder that does not exist, or nothing.

    The first part of the path that does not exist is the misspelt one.
    """
    missing = next((part for part in (*reversed(path.parents), path) if not _exists(part)), None)
    if missing is None:
        return ""
    try:
        beside = [entry.name for entry in missing.parent.iterdir()]
    except OSError:
        return ""
    near = name(missing.name, beside)
    suggested = missing.parent / near / path.relative_to(missing) if near else path
    return f"did you mean {str(suggested)!r}?" if near and _exists(suggested) else ""


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False
