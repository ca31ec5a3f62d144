"""`scorer train`: train versions from labelled events. The package `training` implements the subcommands.

The package is in the folder `deploy` of a checkout, and in the folder `scorestream` of the wheel.
"""

# The folder is on Python's search path of this command only. As a package at the top of an environment, `training` would hide
# packages of that name in the projects of users, or would be hidden by them.

import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

PACKAGE = "training"
ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (ROOT / "scorestream", ROOT / "deploy")
"""The folders that can contain the package `training`: the first if the wheel is installed, the second in a checkout."""


class TrainingVerbs(TyperGroup):
    """The command group `scorer train`. It loads its subcommands when it is called, because they need the extra `training`."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Load the subcommands and parse the arguments.

        Raises Fatal (exit code 2) if a required package is not installed, unless a shell asks for completions.
        """
        completing = bool(extra.get("resilient_parsing"))
        self.commands = _verbs(completing=completing)  # type: ignore[assignment]  # read only
        return super().make_context(info_name, args, parent, **extra)


app = typer.Typer(cls=TrainingVerbs, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def train() -> None:
    """Train a version from labelled events and promote it: by hand, on schedule, or when labels arrive."""


def _verbs(*, completing: bool) -> Mapping[str, Any]:
    folder = next(folder for folder in FOLDERS if (folder / PACKAGE / "cli.py").is_file())
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    program = import_module(f"{PACKAGE}.cli")
    if completing:
        return {} if program.missing() else program.commands()
    program.prepare()
    commands: Mapping[str, Any] = program.commands()
    return commands
