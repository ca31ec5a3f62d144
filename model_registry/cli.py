"""The `model-registry` command. stdout is data, stderr is talk; exit codes: 0 ok, 1 not in time, 2 usage, 3 refused or not
there, 4 unreachable. What a command needs is imported when it runs, so that `--help` is quick."""

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from model_registry.commands import channels, fleet, trust, versions
from model_registry.commands.options import reaching
from model_registry.commands.pruning import prune
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


def _show_version(asked: bool) -> None:
    from importlib.metadata import version

    if asked:
        print(version("scorestream"))
        raise typer.Exit


app = typer.Typer(
    cls=Commands,
    help="Store model versions in OCI registries, and move the channels that serve them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def options(
    _: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None: ...


app.command()(reaching(push))
app.command()(reaching(versions.pull))
app.command("list")(reaching(versions.list_versions))
for verb in (versions.inspect, channels.promote, channels.rollback, channels.history, channels.watch, fleet.status, prune):
    app.command()(reaching(verb))
app.command()(trust.keygen)
for vouching in (trust.sign, trust.verify, trust.attest):
    app.command()(reaching(vouching))


def main() -> None:
    """The console entry point."""
    try:
        app(prog_name="model-registry")
    except (BrokenPipeError, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
