"""Show audits: progress while reading, a table of counts with the first positions of each fault, and the verdict."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.table import Table
from rich.text import Text

from publisher.audit.report import Progress, Report
from publisher.errors import FINDING
from publisher.runtime.command_line import err_console, print_data
from publisher.runtime.progress_bars import progress_bars


@contextmanager
def progress() -> Iterator[Progress]:
    """Yield a function to call with the progress. It shows progress bars; see `progress_bars`."""
    with progress_bars() as show:
        yield lambda subject, done, total: show(f"reading {subject}", done, total)


def show(report: Report, as_json: bool) -> None:
    """Print the report on stdout: as JSON if `as_json`, otherwise as a table.

    With the table, the verdict and the notes of the report are printed on stderr.

    Raises:
        typer.Exit: with code 1 if there is a fault.
    """
    print_data(as_json, report.to_dict(), lambda: table(report))
    faults = [f"{name} {count:,}" for name, count in report.faults.items() if count]
    if not as_json:
        err_console.print(Text.assemble(("not clean", "red"), f": {', '.join(faults)}") if faults else Text("clean", "green"))
        for sentence in report.notes():
            err_console.print(sentence, markup=False)
    if faults:
        raise typer.Exit(FINDING)


def table(report: Report) -> Table:
    """Return the counts of a report with the first positions of each fault; faults are red."""
    shown = Table("count", "", f"first positions ({report.positions})", title=report.title)
    for name, count in report.rows().items():
        style = "bold red" if report.faults.get(name) else ""
        shown.add_row(name, f"{count:,}", "\n".join(report.examples.get(name, [])), style=style)
    return shown
