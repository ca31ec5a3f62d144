"""`scorer score`: score a local file with one version, without Kafka. See scorer/offline."""

from pathlib import Path
from typing import Annotated

import typer

from publisher.errors import FINDING
from publisher.runtime.command_line import Config, Set, err_console
from publisher.runtime.interruption import report_progress
from publisher.runtime.progress_bars import progress_bars
from scorer.crash_isolation.open_version import find_package, open_version
from scorer.data_files.formats import TableFormat, format_of
from scorer.offline.score_file import FileSummary, score_file
from scorer.settings import load


def score(
    path: Config,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="The events: .parquet, .csv with a header, .jsonl (JSON lines), or - for JSON lines from stdin.",
            show_default=False,
        ),
    ],
    flags: Set = None,
    version: Annotated[
        str | None,
        typer.Option(help="A tag or digest in model.source, or a package folder.", show_default="the champion of model.tag"),
    ] = None,
    format_: Annotated[
        TableFormat | None,
        typer.Option("--format", help="The format of the result.", show_default="of the output file, or of FILE"),
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Write the result to this file.", show_default="stdout")] = None,
    prefix: Annotated[str, typer.Option(help="Put this text before the names of the added columns.")] = "",
) -> None:
    """Score the rows of a local file as a scorer would score them as events, and write them with their scores.

    Adds the columns score, decision, status and error. Exit code 1 if rows were rejected; their status is the reason.
    """
    settings = load(path, flags or []).settings
    named = find_package(settings, version)
    summary = FileSummary()
    with (
        open_version(settings, named) as loaded,
        report_progress(False, dict, lambda: (f"{summary.rows:,} rows were scored", "")),
        progress_bars() as show,
    ):
        score_file(
            loaded,
            settings,
            file,
            show,
            format_=format_ or format_of(output),
            output=output,
            prefix=prefix,
            summary=summary,
        )
    _report(summary, named.name)
    if summary.rejected:
        raise typer.Exit(FINDING)


def _report(summary: FileSummary, version: str) -> None:
    """Print the counts on stderr."""
    rejected = summary.rejected.total()
    err_console.print(f"{summary.rows - rejected:,} of {summary.rows:,} rows scored with {version}", markup=False)
    if summary.defaults:
        err_console.print(f"without a column, with their defaults: {', '.join(summary.defaults)}", markup=False)
    for reason, count in summary.rejected.most_common():
        err_console.print(f"rejected: {count:,} {reason}", markup=False)
    if summary.first:
        err_console.print(f"first: {summary.first}", markup=False)
