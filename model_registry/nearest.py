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
    """Return `did you mean 'scorer.yaml'?` by the folder of a file that does not exist, or nothing."""
    try:
        beside = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return ""
    near = name(path.name, beside)
    return f"did you mean {str(path.parent / near)!r}?" if near else ""
