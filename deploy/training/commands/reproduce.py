"""The command `reproduce`: train a version again from its own snapshot and signed provenance, and compare the digests."""

from typing import Annotated, Any

import typer

from publisher.errors import FINDING
from publisher.runtime.command_line import Config, Json, Set, err_console, print_data, table
from training.commands.run import progress
from training.pipeline import reproduction
from training.pipeline.run_dirs import alone
from training.settings import load

Version = Annotated[
    str,
    typer.Argument(metavar="VERSION", help="The version to train again: its name, a channel or a digest.", show_default=False),
]


def reproduce(path: Config, version: Version, flags: Set = None, as_json: Json = False) -> None:
    """Train a version again from its stored snapshot and compare the digests. Exit code 1 if the digests differ."""
    training, settings = load(path, flags or [])
    with alone(training.folder), progress() as shown:
        run, recorded = reproduction.begin(training, settings, version, shown)
        comparisons = reproduction.reproduced(
            run, recorded, lambda step, seconds: err_console.print(f"{step:<10}{seconds:8.1f} s")
        )
    print_data(as_json, comparisons, lambda: table(("", "recorded", "now", "same"), _rows(comparisons)))
    if reason := comparisons.get("because"):
        err_console.print(reason, markup=False)
    if not comparisons["same"]:
        raise typer.Exit(FINDING)


def _rows(comparisons: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    return [
        (name, values["recorded"], values["now"], "yes" if values["recorded"] == values["now"] else "NO")
        for name, values in comparisons["parts"].items()
    ]
