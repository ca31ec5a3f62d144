"""`scorer read`: write the scores of a time range as a table. See scorer/read."""

from pathlib import Path
from typing import Annotated

import typer

from publisher.runtime import time_range as times
from publisher.runtime.command_line import Config, Set, err_console
from publisher.runtime.interruption import report_progress
from publisher.runtime.progress_bars import progress_bars
from publisher.runtime.time_range import resolve_time
from scorer.data_files.formats import TableFormat, format_of
from scorer.data_files.write import table_writer
from scorer.read.score_table import ScoreTable, window_of
from scorer.settings import load

TIME_HELP = f"a duration before now (15m, 1h, 7d), {times.HELP}"


def _check_time(text: str | None) -> str | None:
    """Return the text of a time unchanged. Raises BadParameter if it is not valid."""
    try:
        if text is not None:
            resolve_time(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return text


def read(
    path: Config,
    flags: Set = None,
    since: Annotated[
        str | None,
        typer.Option(help=f"Only events from this time on: {TIME_HELP}.", callback=_check_time, show_default="all retained"),
    ] = None,
    until: Annotated[
        str | None, typer.Option(help=f"Only events before this time: {TIME_HELP}.", callback=_check_time, show_default="now")
    ] = None,
    format_: Annotated[
        TableFormat | None,
        typer.Option("--format", help="The format of the table.", show_default="of the output file, or json"),
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Write the table to this file.", show_default="stdout")] = None,
    labels: Annotated[bool, typer.Option("--labels", help="Add the newest label of each event.")] = False,
    score_text: Annotated[
        bool, typer.Option("--score-text", help="Write scores as JSON text in Parquet, for scores of different forms.")
    ] = False,
) -> None:
    """Write the committed scores of a time range as a table with one row per score: JSON lines, CSV or Parquet."""
    settings = load(path, flags or []).settings
    try:
        window = window_of(since, until)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    chosen = format_ or format_of(output) or TableFormat.JSON
    is_parquet = chosen is TableFormat.PARQUET
    table = ScoreTable(settings, window, labels, score_text and is_parquet)
    count = 0
    with (
        report_progress(False, dict, lambda: (f"{count:,} scores were read", "")),
        progress_bars() as show,
        table_writer(chosen, output) as writer,
    ):
        for rows in table.typed_rows(show) if is_parquet else table.rows(show):
            writer.write(rows)
            count += len(rows)
    if output is not None:
        err_console.print(f"{count:,} scores written to {output}", markup=False)
