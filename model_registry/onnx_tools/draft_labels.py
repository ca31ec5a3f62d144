"""Reads the labels of the columns of a model's output from a file with one label per line."""

from pathlib import Path

from model_registry import atomic_files
from model_registry.errors import Refused
from model_registry.package.document_validation import check_unique

MAX_BYTES = 1 << 20


def read(path: Path) -> list[str]:
    """Return the labels in a file.

    Raises:
        Refused: The file does not hold valid labels; the message names the line.
        Unreachable: The file cannot be read.
    """
    with atomic_files.report_os_errors(f"the labels {path}"), path.open("rb") as stream:
        data = stream.read(MAX_BYTES + 1)
    try:
        if len(data) > MAX_BYTES:
            raise ValueError(f"the file has more than {MAX_BYTES} bytes")
        labels = [line.strip() for line in data.decode().splitlines()]
        if not labels or not all(labels):
            raise ValueError(f"line {labels.index('') + 1} is empty" if labels else "the file is empty")
        check_unique(labels, "label")
    except ValueError as error:
        raise Refused(f"{path}: {error}", "write one label a line, in the order of the model's columns") from None
    return labels
