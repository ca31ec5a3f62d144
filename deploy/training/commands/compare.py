"""The command `compare`: compare two versions on the hold-out rows of a run."""

from typing import Annotated

import msgspec
import typer

from model_registry.channels import channel
from publisher.errors import FINDING
from publisher.runtime.command_line import Config, Json, Set, err_console, print_data
from training.commands import run_report
from training.commands.run import progress
from training.pipeline.evaluate_steps import compared
from training.pipeline.recorded_rows import open_rows
from training.pipeline.run import Run
from training.pipeline.step_results import ChampionState
from training.runs_topic.read_history import find_run, read_history
from training.settings import load

Version = Annotated[
    str, typer.Argument(metavar="VERSION", help="The version to compare: its name, a channel or a digest.", show_default=False)
]
Against = Annotated[
    str | None,
    typer.Option("--against", metavar="VERSION", help="The version to compare with.", show_default="the channel's champion"),
]
Name = Annotated[
    str | None,
    typer.Option("--run", help="The run whose held-out rows are scored: its id, version or key.", show_default="the newest"),
]


def compare(
    path: Config, version: Version, against: Against = None, name: Name = None, flags: Set = None, as_json: Json = False
) -> None:
    """Compare a version with another version by the rules of the validation gate, without moving a channel.

    The hold-out rows are read from the run's folder if it is on this host, otherwise from the snapshot that the registry stores
    for the run's version. Exit code 1 if the version is rejected.
    """
    training, settings = load(path, flags or [])
    with progress() as shown:
        recorded = find_run(read_history(settings), name, settings.runs_topic, "join")
        run = open_rows(training, settings, recorded, shown)
        comparison = compared(run, _resolve_version(run, version), _resolve_version(run, against or run.channel))
    document = msgspec.to_builtins(comparison)
    print_data(as_json, document, lambda: run_report.comparison(document))
    err_console.print(f"{comparison.verdict}: {comparison.because}", markup=False)
    if comparison.verdict == "refused":
        raise typer.Exit(FINDING)


def _resolve_version(run: Run, version: str) -> ChampionState:
    """Return the name, the digest and the channel revision of a version.

    `version` is a version name, a channel or a digest. The channel revision is 0 if `version` is not a channel. Raises
    RegistryError.
    """
    resolved = channel.resolve(run.store, version)
    return ChampionState(resolved.version, resolved.digest, resolved.revision)
