"""The commands `list` and `show`: all runs, or one run in full, from the records of the topic of runs."""

import time
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import typer
from rich.table import Table

from model_registry.channels import channel
from publisher.runtime.command_line import Config, Json, Set, print_data
from training.commands import run_report
from training.pipeline.run import Run
from training.publish.verify_lineage import evidence as attested
from training.runs_topic.read_history import find_run, read_history
from training.settings import load

COLUMNS = ("began", "run", "outcome", "seconds", "because")
Name = Annotated[str | None, typer.Argument(metavar="RUN", help="The run's id, version or key.", show_default="the newest")]

Evident = Annotated[
    bool,
    typer.Option("--evidence", help="Show what trusted keys attest about RUN, which is then a version, a channel or a digest."),
]
Log = Annotated[bool, typer.Option("--log", help="Show the events of the run as they happened, and the logs of what failed.")]


def list_(path: Config, flags: Set = None, as_json: Json = False) -> None:
    """List all runs on the topic `<name>.runs`, newest first, with outcome, cost in seconds and reason."""
    _, settings = load(path, flags or [])
    rows = [run_report.listed(run, time.time()) for run in read_history(settings).newest_first()]
    print_data(as_json, rows, lambda: _listed(rows))


def _listed(rows: list[dict[str, Any]]) -> Table:
    """Return the rows as a table in which the name of a run is complete: its version, or else its key."""
    listed = Table(*COLUMNS)
    listed.columns[COLUMNS.index("run")].no_wrap = True
    for row in rows:
        began = row["began"][:16].replace("T", " ")
        listed.add_row(began, row["version"] or row["key"], row["outcome"], str(row["seconds"]), row["because"])
    return listed


def show(
    path: Config,
    name: Name = None,
    log: Log = False,
    evidence: Evident = False,
    flags: Set = None,
    as_json: Json = False,
) -> None:
    """Show one run: its rows, its search, the rules of its evaluation, and the time of every step."""
    training, settings = load(path, flags or [])
    if evidence:
        run = Run(training, settings, training.folder, lambda _action, _done, _of: None)
        lineage = attested(run.store, channel.resolve(run.store, name or run.channel).digest, run.trusted, datetime.now(UTC))
        print_data(as_json, msgspec.to_builtins(lineage), lambda: run_report.evidence(lineage))
        return
    recorded = find_run(read_history(settings), name, settings.runs_topic)
    now = time.time()
    if log:
        print_data(as_json, run_report.log_document(recorded, now), lambda: run_report.log_text(recorded, now), wide=True)
    else:
        print_data(as_json, run_report.recorded_document(recorded, now), lambda: run_report.recorded_tables(recorded, now))
