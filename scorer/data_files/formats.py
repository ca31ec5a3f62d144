"""The formats of table files, and the suffixes of file names that stand for them."""

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
    """Return the format that the suffix of a file stands for; None if `path` is None or the suffix is unknown."""
    return None if path is None else SUFFIXES.get(path.suffix.lower())
