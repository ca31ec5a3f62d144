"""A model that another tool saved as a folder, after it was converted into an ONNX file that `draft_package` can read."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from model_registry import atomic_files
from model_registry.atomic_files import is_confined
from model_registry.errors import Refused
from model_registry.untrusted_input import json_documents
from model_registry.untrusted_input.files import open_regular

EXAMPLES = "examples.jsonl"
LABELS = "labels.txt"


@dataclass(frozen=True, slots=True)
class ImportedModel:
    """A converted model.

    Attributes:
        model: The ONNX file.
        example: A file with example events, one JSON object a line; None without examples.
        labels: A file with the class names, one on each line; None if the model has none.
        columns: The names of the fields that form a row of the model's only input, in this order; empty if each input has a
            field of its own.
        optional: The names of the fields that events may lack.
        domains: The operator domains that the converted model uses in addition to the standard ones.
        notes: Messages about the choices that were made.
    """

    model: Path
    example: Path | None = None
    labels: Path | None = None
    columns: tuple[str, ...] = ()
    optional: frozenset[str] = frozenset()
    domains: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)


def read_member(folder: Path, name: object, limit: int) -> bytes:
    """Return the content of a file in a folder.

    Args:
        folder: The folder, whose files are untrusted.
        name: The path of the file below the folder. Another file of the folder names it, so it is untrusted.
        limit: The largest size in bytes.

    Raises:
        Refused: The path is not a relative path of plain names, or the file is missing or too large.
        Unreachable: The file cannot be read.
    """
    path = member(folder, name)
    with atomic_files.report_os_errors(f"the model {folder}"), open_regular(path) as stream:
        data: bytes = stream.read(limit + 1)
    if len(data) > limit:
        raise Refused(f"{path} has more than {limit} bytes", "check that the folder is a saved model")
    return data


def member(folder: Path, name: object) -> Path:
    """Return the path of a file in a folder.

    Raises Refused if the name is not a plain path inside the folder, or if there is no such file.
    """
    path = folder / str(name)
    if not isinstance(name, str) or not is_confined(name):
        raise Refused(f"a file of {folder} refers to {name!r:.100}, which is not inside the folder", "save the model again")
    if path.is_symlink() and folder.resolve() not in path.resolve().parents:
        hint = f"copy the folder with its files: `cp -rL {folder} NEW` (the cache of Hugging Face contains only links)"
        raise Refused(f"{path} is a link to a file outside the folder", hint)
    if folder.resolve() not in path.resolve().parents:
        raise Refused(f"a file of {folder} refers to {name!r:.100}, which is not inside the folder", "save the model again")
    if not path.is_file():
        raise Refused(f"{folder} has no file {name}", "copy the whole folder of the saved model")
    return path


def read_json(folder: Path, name: object, limit: int = 64 << 20) -> Any:
    """Return the document in a JSON file of a folder. Raises the errors of `read_member`, and Refused for invalid JSON."""
    try:
        return json_documents.DocumentDecoder(Any, max_bytes=limit).decode(read_member(folder, name, limit))
    except json_documents.UnreadableDocument as error:
        raise Refused(f"{folder / str(name)} is not valid JSON: {error}", "save the model again") from None


def write_examples(scratch: Path, events: Iterable[dict[str, Any]]) -> Path | None:
    """Write example events into the scratch folder, and return the file; None if there are no events."""
    lines = [msgspec.json.encode(event) + b"\n" for event in events]
    if not lines:
        return None
    (scratch / EXAMPLES).write_bytes(b"".join(lines))
    return scratch / EXAMPLES


def write_labels(scratch: Path, labels: Iterable[str]) -> Path:
    """Write class names into the scratch folder, and return the file."""
    (scratch / LABELS).write_text("".join(f"{label}\n" for label in labels), encoding="utf-8")
    return scratch / LABELS
