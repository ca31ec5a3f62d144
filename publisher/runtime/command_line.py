"""The command-line interface that `scorer` and `publisher` share: commands, common options, output and exit codes.

stdout is for data, stderr for messages. Exit codes are in `publisher.errors`.
"""

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from typer.core import TyperGroup

from model_registry.redaction import redacted
from model_registry.standard_output import accept_any_text, ended_by_closed_pipe
from model_registry.untrusted_input.terminal_text import printable_json
from publisher.errors import FINDING, INTERRUPTED, USAGE, Fatal
from publisher.runtime.terminal import ConsoleLogHandler, PlainConsole
from publisher.runtime.time_range import HELP as TIME_HELP
from publisher.runtime.time_range import TimeRange, parse_time, seconds

WIDE = 10_000  # columns, so that no line is folded
err_console = PlainConsole(stderr=True, soft_wrap=True)

Config = Annotated[Path, typer.Argument(metavar="CONFIG", help="The configuration file (YAML).", show_default=False)]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a setting of the configuration; repeatable.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
LogLevel = Annotated[
    str | None, typer.Option(help="The lowest level to log: debug, info, warning or error.", show_default="log.level")
]
From = Annotated[str | None, typer.Option("--from", help=f"Only events from this time on: {TIME_HELP}.")]
Last = Annotated[str | None, typer.Option("--last", help="Only events of the last DURATION: 90s, 15m, 1h, 7d.")]
To = Annotated[str | None, typer.Option("--to", help=f"Only events before this time: {TIME_HELP}.")]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check: the name of the check, whether it succeeded (`ok`), and details.

    `hint` is the remedy if the check failed.
    """

    check: str
    ok: bool
    detail: str
    hint: str = ""


def print_findings(findings: Iterable[Finding], as_json: bool) -> None:
    """Print the findings of a command. Raises typer.Exit with code 1 if a finding is not ok.

    Args:
        findings: the findings. An iterator may compute them one after another.
        as_json: whether to print all findings at the end as one JSON document. Otherwise each finding is printed as a line as
            soon as the iterator has computed it.
    """
    printed = []
    for unredacted in findings:
        finding = replace(unredacted, detail=redacted(unredacted.detail), hint=redacted(unredacted.hint))
        printed.append(finding)
        if not as_json:
            err_console.print("ok  " if finding.ok else "FAIL", style="green" if finding.ok else "red", end=" ")
            err_console.print(f"{finding.check}: {finding.detail}")
            if finding.hint and not finding.ok:
                err_console.print(f"     hint: {finding.hint}", markup=False)
    ok = all(finding.ok for finding in printed)
    if as_json:
        print_json({"ok": ok, "checks": [asdict(finding) for finding in printed]})
    if not ok:
        raise typer.Exit(FINDING)


def print_json(value: object) -> None:
    """Print the value as indented JSON on stdout."""
    import orjson

    sys.stdout.buffer.write(printable_json(orjson.dumps(value, option=orjson.OPT_INDENT_2)) + b"\n")
    sys.stdout.flush()


def print_data(as_json: bool, value: object, render: Callable[[], Any], *, wide: bool = False) -> None:
    """Print a result: `value` as JSON, or the text or table that `render` returns.

    Args:
        as_json: whether to print JSON.
        value: the result as a JSON value.
        render: returns the result as a renderable of rich.
        wide: whether to print long lines in full instead of wrapping them at the width of the terminal.
    """
    if as_json:
        print_json(value)
    else:
        PlainConsole(width=WIDE if wide else None).print(render())


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Return a table of these columns and rows."""
    rich_table = Table(*columns)
    for row in rows:
        rich_table.add_row(*map(str, row))
    return rich_table


def time_range(start: str | None, end: str | None, last: str | None = None) -> TimeRange:
    """Return the time range of the options --from and --to, or of --last.

    Raises:
        BadParameter: for a text that is not a time or duration, an empty range, or --last together with --from or --to.
    """
    if last is not None:
        return _since(last, alone=not (start or end))
    window = TimeRange(_unix_ms("--from", start), _unix_ms("--to", end))
    if window.from_ms is not None and window.to_ms is not None and window.from_ms >= window.to_ms:
        raise typer.BadParameter(f"--from {start} is not before --to {end}")
    return window


def parse_share(text: str | float) -> float:
    """Parse a share, written as 0.05 or 5%, for an option. Raises BadParameter if it is not from 0 to 1."""
    percent = str(text)  # Typer passes the default as a number
    try:
        value = float(percent[:-1]) / 100 if percent.endswith("%") else float(percent)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise typer.BadParameter(f"{percent!r} is not a valid share; write 5% or 0.05, for instance")
    return value


def _since(last: str, *, alone: bool) -> TimeRange:
    if not alone:
        raise typer.BadParameter("--last cannot be combined with --from or --to")
    try:
        return TimeRange(round((time.time() - seconds(last)) * 1_000))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--last") from None


def _unix_ms(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return parse_time(text)
    except ValueError:
        raise typer.BadParameter(f"{option} {text!r} is not a valid time: {TIME_HELP}") from None


class LazyCommands(Mapping[str, Any]):
    """The commands of a program by name. Each command is imported on first use.

    `targets` names the function, or the Typer application, of each command as `module:name`.
    """

    # For example, `scorer status` does not load the modules of `scorer bench`.

    def __init__(self, targets: Mapping[str, str]) -> None:
        self._targets = targets

    def __getitem__(self, name: str) -> Any:
        module, _, attribute = self._targets[name].partition(":")
        target = getattr(import_module(module), attribute)
        if not isinstance(target, typer.Typer):
            app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
            app.command(name)(target)
            target = app
        command = typer.main.get_command(target)
        command.name = name
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(self._targets)

    def __len__(self) -> int:
        return len(self._targets)


class DefaultCommandGroup(TyperGroup):
    """A group of commands. If the first argument names no command of the group, the first command runs."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments. Insert the name of the first command unless the first argument names a command or is --help."""
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = [next(iter(self.commands)), *args]
        return super().parse_args(ctx, args)


def program(about: str, verbs: Mapping[str, str]) -> typer.Typer:
    """Return the Typer application of these commands (see `LazyCommands`), with shell completion and `--version`.

    `about` is its help text.
    """

    class Group(TyperGroup):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.commands = LazyCommands(verbs)  # type: ignore[assignment]  # read only

        def invoke(self, ctx: Any) -> Any:
            with ended_by_closed_pipe():
                return super().invoke(ctx)

    app = typer.Typer(cls=Group, help=about, no_args_is_help=True, pretty_exceptions_enable=False)

    @app.callback()
    def options(
        _: Annotated[
            bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
        ] = False,
    ) -> None: ...

    return app


def run(app: typer.Typer, *others: type[Exception]) -> None:
    """Run an application. Print an expected error as one line and a hint, and end the process with its exit code.

    A long-running command that logs JSON lines logs the error as one of them.

    Args:
        app: the application.
        *others: expected error classes besides Fatal. Their instances may have the attributes `hint` and `exit_code` of Fatal.
    """
    from publisher.runtime.configuration import SettingsError

    accept_any_text()
    expected: tuple[type[Exception], ...] = (Fatal, *others)
    logging.basicConfig(handlers=[ConsoleLogHandler(err_console)])
    # errors are printed in one line; long-running commands configure logging themselves
    logging.getLogger("librdkafka").setLevel(logging.CRITICAL)
    try:
        app()
    except SettingsError as error:
        _end(USAGE, str(error).splitlines())
    except expected as error:
        _end(getattr(error, "exit_code", Fatal("").exit_code), [str(error)], getattr(error, "hint", ""))
    except (BrokenPipeError, KeyboardInterrupt):
        sys.exit(INTERRUPTED)


def _show_version(requested: bool) -> None:
    from importlib.metadata import version

    if requested:
        print(version("scorestream"))
        raise typer.Exit


def _end(code: int, errors: Iterable[str], hint: str = "") -> None:
    from publisher.runtime import logs

    if logs.are_json():
        for error in errors:
            logs.log_fatal(error, hint, code)
        sys.exit(code)
    for error in errors:
        err_console.print(f"error: {error}", markup=False)
    if hint:
        err_console.print(f"hint: {hint}", markup=False)
    sys.exit(code)
