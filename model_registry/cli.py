"""The `model-registry` command. stdout is data, stderr is talk; exit codes: 0 ok, 1 not in time, 2 usage, 3 refused or not
there, 4 unreachable. What a command needs is imported when it runs, so that `--help` is quick."""

import sys
from typing import Any

import typer
from typer.core import TyperGroup

from model_registry.commands import channels, fleet, pruning, trust, versions
from model_registry.commands.push import push

INTERRUPTED = 130


class Commands(TyperGroup):
    """The commands, their errors as one line and a hint."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command. Ends with the error's exit code."""
        from model_registry.commands.output import talk
        from model_registry.errors import RegistryError

        try:
            return super().invoke(ctx)
        except RegistryError as error:
            talk(f"error: {error}")
            if error.hint:
                talk(f"hint: {error.hint}")
            raise typer.Exit(error.exit_code) from None


app = typer.Typer(
    cls=Commands,
    help="Store model versions in OCI registries, and move the channels that serve them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(push)
app.command()(versions.pull)
app.command("list")(versions.list_versions)
app.command()(versions.inspect)
app.command()(channels.promote)
app.command()(channels.rollback)
app.command()(channels.history)
app.command()(channels.watch)
app.command()(fleet.status)
app.command()(pruning.prune)
for verb in (trust.keygen, trust.sign, trust.verify, trust.attest):
    app.command()(verb)


def main() -> None:
    """The console entry point."""
    try:
        app(prog_name="model-registry")
    except (BrokenPipeError, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
