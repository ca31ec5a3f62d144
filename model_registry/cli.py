"""The `model-registry` command. stdout is data, stderr is talk; exit codes: 0 ok, 2 usage, 3 refused or not
there, 4 unreachable. What takes time to import is imported when a command runs, so that `--help` is quick."""

import sys
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperGroup

from model_registry.cli_common import connection, print_message
from model_registry.commands import channels, signing, versions
from model_registry.commands.init import init
from model_registry.commands.push import push
from model_registry.errors import RegistryError
from model_registry.standard_output import INTERRUPTED, accept_any_text, ended_by_closed_pipe


class Commands(TyperGroup):
    """The commands, their errors as one line and a hint."""

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
    "keygen": signing.keygen,
    "sign": signing.sign,
    "verify": signing.verify,
    "attest": signing.attest,
}
for name, verb in VERBS.items():
    app.command(name)(verb)


def main() -> None:
    accept_any_text()
    try:
        app(prog_name="model-registry")
    except (BrokenPipeError, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
