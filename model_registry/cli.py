"""The `model-registry` command: its subcommands and exit codes.

Results go to stdout, messages to stderr. Exit codes: 0 success, 2 usage, 3 refused or not found, 4 unreachable. Modules that
take time to import are imported when a command runs, so that `--help` is quick.
"""

import sys
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperGroup

from model_registry.cli_common import connection, print_message
from model_registry.commands import channels, signing, versions
from model_registry.commands.copy import copy
from model_registry.commands.init import init
from model_registry.commands.push import push
from model_registry.errors import RegistryError
from model_registry.standard_output import INTERRUPTED, accept_any_text, ended_by_closed_pipe


class Commands(TyperGroup):
    """The group of all commands. It prints a command's RegistryError as one line and a hint, and exits with its `exit_code`."""

    def invoke(self, ctx: Any) -> Any:
        try:
            with ended_by_closed_pipe():
                return super().invoke(ctx)
        except RegistryError as error:
            print_message(f"error: {error}")
            if error.hint:
                print_message(f"hint: {error.hint}")
            raise typer.Exit(error.exit_code) from None


app = typer.Typer(cls=Commands, no_args_is_help=True, pretty_exceptions_enable=False)
app.callback()(connection)
VERBS: dict[str, Callable[..., None]] = {
    "init": init,
    "push": push,
    "pull": versions.pull,
    "list": versions.list_versions,
    "inspect": versions.inspect,
    "promote": channels.promote,
    "rollback": channels.rollback,
    "history": channels.history,
    "watch": channels.watch,
    "status": channels.status,
    "prune": channels.prune,
    "copy": copy,
    "keygen": signing.keygen,
    "sign": signing.sign,
    "verify": signing.verify,
    "attest": signing.attest,
}
for name, verb in VERBS.items():
    app.command(name)(verb)


def main() -> None:
    """Run the `model-registry` command."""
    accept_any_text()
    try:
        app(prog_name="model-registry")
    except (BrokenPipeError, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
