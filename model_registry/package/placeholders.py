"""Finds placeholders in a drafted package: texts that begin with FILL IN. A package with a placeholder cannot be pushed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from model_registry import atomic_files
from model_registry.errors import Refused
from model_registry.untrusted_input import json_documents
from model_registry.untrusted_input.files import open_regular

BLANK = "FILL IN"
MAX_BYTES = 1 << 20  # a file is searched up to this size
MAX_LISTED = 5


def is_placeholder(value: object) -> bool:
    """Return whether a value of a document is a placeholder."""
    return isinstance(value, str) and value.startswith(BLANK)


def find_in_document(document: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Yield the position (such as `inputs[0].fields[1]`) and the text of each placeholder in a JSON document.

    `place` is the position of the document itself.
    """
    if isinstance(document, dict):
        for key, value in document.items():
            yield from find_in_document(value, f"{place}.{key}" if place else str(key))
    elif isinstance(document, list):
        for at, value in enumerate(document):
            yield from find_in_document(value, f"{place}[{at}]")
    elif is_placeholder(document):
        yield place, document


def find_in_folder(folder: Path) -> list[str]:
    """Return a line with position and text for each placeholder in a package's signature.json and README.md.

    A signature.json that is no valid JSON is taken to have no placeholders.
    """
    return [
        *(f"signature.json: {place} is {text!r}" for place, text in _in_json(_start(folder / "signature.json"))),
        *(
            f"README.md line {number}: {line.strip()!r}"
            for number, line in enumerate(_start(folder / "README.md").decode("utf-8", "replace").splitlines(), start=1)
            if is_placeholder(line.strip())
        ),
    ]


def check(folder: Path) -> None:
    """Raise Refused if a package has placeholders; the message lists the first of them."""
    if placeholders := find_in_folder(folder):
        more = f"; and {len(placeholders) - MAX_LISTED} more" if len(placeholders) > MAX_LISTED else ""
        listed = "; ".join(placeholders[:MAX_LISTED])
        raise Refused(f"{folder} is not complete: {listed}{more}", f"replace each text that begins with {BLANK}")


def _in_json(data: bytes) -> list[tuple[str, str]]:
    try:
        return list(find_in_document(json_documents.ANY.decode(data)))
    except json_documents.UnreadableDocument:
        return []


def _start(path: Path) -> bytes:
    """Return the first MAX_BYTES bytes of a file; empty if the file does not exist."""
    with atomic_files.report_os_errors(f"the package {path.parent}"):
        if not path.is_file():
            return b""
        with open_regular(path) as stream:
            return stream.read(MAX_BYTES)
