"""The formats of table files, and how the name of a file states its format."""

from enum import StrEnum
from pathlib import Path


class TableFormat(StrEnum):
    """A format of table files."""

    PARQUET = "parquet"
    CSV = "csv"
    JSON = "json"
    """JSON lines: one object per line."""


SUFFIXES = {
    ".parquet": TableFormat.PARQUET,
    ".pq": TableFormat.PARQUET,
    ".csv": TableFormat.CSV,
    ".json": TableFormat.JSON,
    ".jsonl": TableFormat.JSON,
    ".ndjson": TableFormat.JSON,
}


def format_of(path: Path | None) -> TableFormat | None:
    """Return the format that the suffix of a file states; None without a file or with another suffix."""
    return None if path is None else SUFFIXES.get(path.suffix.lower())
