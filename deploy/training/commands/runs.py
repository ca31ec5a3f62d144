"""The commands `list` and `show`: all runs, and one run in full."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from model_registry.channels import channel
from publisher.errors import USAGE, Fatal
from publisher.runtime.command_line import Config, Json, Set, print_data, table
from training.commands import run_report
from training.pipeline.journal import Journal
from training.pipeline.run import Run
from training.pipeline.run_dirs import STEPS, runs
from training.publish.verify_lineage import evidence as attested
from training.settings import load

COLUMNS = ("began", "run", "version", "outcome", "because")
Name = Annotated[str | None, typer.Argument(metavar="RUN", help="The run's id, version or folder.", show_default="the newest")]

Evident = Annotated[
    bool,
    typer.Option("--evidence", help="Show what trusted keys attest about RUN, which is then a version, a channel or a digest."),
]


def list_(path: Config, flags: Set = None, as_json: Json = False) -> None:
    """List the runs in the folder, newest first, with outcome and reason."""
    training, _ = load(path, flags or [])
    document = [run_report.document(folder) for folder in reversed(runs(training.folder))]
    rows = [{name: row[name] for name in (*COLUMNS, "folder")} for row in document]
    print_data(as_json, rows, lambda: table(COLUMNS, [[row[name] or "" for name in COLUMNS] for row in rows]))


def show(path: Config, name: Name = None, evidence: Evident = False, flags: Set = None, as_json: Json = False) -> None:
    """Show one run: its rows, its search, the rules of its evaluation, and the time of every step."""
    training, settings = load(path, flags or [])
    if evidence:
        run = Run(training, settings, training.folder, lambda _action, _done, _of: None)
        lineage = attested(run.store, channel.resolve(run.store, name or run.channel).digest, run.trusted, datetime.now(UTC))
        print_data(as_json, msgspec.to_builtins(lineage), lambda: run_report.evidence(lineage))
        return
    document = run_report.document(find_run(training.folder, name))
    print_data(as_json, document, lambda: run_report.shown(document))


def find_run(folder: Path, name: str | None, step: str = "plan") -> Path:
    """Return the folder of the newest run that has completed `step`. Raises Fatal (exit code 2) if there is none.

    `name` is the run's id, version or folder name; None for any run.
    """
    matching = [run_folder for run_folder in reversed(runs(folder)) if Journal(run_folder / STEPS).entry(step)]
    if name is None and matching:
        return matching[0]
    for run_folder in matching:
        document = run_report.document(run_folder)
        if name in (run_folder.name, document["run"], document["version"]):
            return run_folder
    names = ", ".join(run_folder.name for run_folder in matching[:10]) or "none"
    raise Fatal(f"no run {name!r} in {folder}" if name else f"no run in {folder}", f"runs: {names}", USAGE)
