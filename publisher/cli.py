"""The `publisher` command. stdout is data, stderr is talk; exit codes: 0 ok, 1 a finding, 2 usage or configuration, 3 refused,
4 unreachable. What a command needs is imported when it runs, so that `--help` is quick."""

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console

if TYPE_CHECKING:
    from publisher.audit import Report
    from publisher.audit_topics import Plan
    from publisher.kafka import KafkaSettings

app = typer.Typer(
    help="Write to Kafka exactly once, and count that it was so.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
talk = Console(stderr=True, highlight=False, soft_wrap=True)

Topics = list[str] | None
TIME_HELP = "ISO 8601 (UTC where it names no zone) or Unix ms"


@app.callback()
def publisher() -> None:
    """Write to Kafka exactly once, and count that it was so."""


@app.command("audit")
def audit_command(
    bootstrap_servers: Annotated[str, typer.Option(help="The cluster: host:port,...", show_default=False)],
    inputs: Annotated[list[str], typer.Option("--input", help="Input topic; repeatable.", show_default=False)],
    outputs: Annotated[list[str], typer.Option("--output", help="Score topic; repeatable.", show_default=False)],
    dead: Annotated[Topics, typer.Option("--dead", help="Dead-letter topic; repeatable.")] = None,
    swaps: Annotated[
        Topics, typer.Option("--swaps", help="Topic of swap records; without it versions rank by first appearance.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(help="The scorers' consumer group: what it has not committed is pending, not missing."),
    ] = None,
    start: Annotated[str | None, typer.Option("--from", help=f"Only inputs from this time on: {TIME_HELP}.")] = None,
    end: Annotated[str | None, typer.Option("--to", help=f"Only inputs before this time: {TIME_HELP}.")] = None,
    properties: Annotated[
        Topics, typer.Option("--property", "-X", help="Client property for librdkafka: key=value; repeatable.")
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds that the broker may take to answer.", min=0.1)] = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
) -> None:
    """Count what was lost, doubled, invented or reordered between inputs and scores."""
    from publisher.audit_topics import Plan

    plan = Plan(inputs, outputs, dead or (), swaps or (), group, _unix_ms("--from", start), _unix_ms("--to", end))
    if plan.from_ms is not None and plan.to_ms is not None and plan.from_ms >= plan.to_ms:
        raise typer.BadParameter(f"--from {start} is not before --to {end}")
    report = _audited(_settings(bootstrap_servers, properties or []), plan, timeout)
    if as_json:
        sys.stdout.write(json.dumps(report.to_dict()) + "\n")
    else:
        Console(highlight=False).print(_table(report))
        _say_verdict(report)
    if not report.clean:
        raise typer.Exit(1)


def _audited(settings: "KafkaSettings", plan: "Plan", timeout: float) -> "Report":
    """Run the audit, with progress bars where stderr is a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from publisher.audit_topics import audit

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=talk, transient=True, disable=not talk.is_terminal) as bars:
        tasks: dict[str, Any] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(f"reading {what}")
            bars.update(tasks[what], completed=done, total=total)

        return audit(settings, plan, show, timeout)


def _settings(bootstrap_servers: str, properties: list[str]) -> "KafkaSettings":
    from publisher.kafka import KafkaSettings

    extra: dict[str, str | int | float | bool] = {}
    for item in properties:
        key, equals, value = item.partition("=")
        if not (key and equals):
            raise typer.BadParameter(f"{item!r} is not key=value", param_hint="-X")
        extra[key] = value
    if not bootstrap_servers.strip():
        raise typer.BadParameter("empty; expected host:port,...", param_hint="--bootstrap-servers")
    return KafkaSettings(bootstrap_servers=bootstrap_servers, extra=extra)


def _unix_ms(option: str, text: str | None) -> int | None:
    """A point in time in Unix ms."""
    if text is None:
        return None
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no time: {TIME_HELP}", param_hint=option) from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000)


def _table(report: "Report") -> Any:
    """For people: each count, and where the first of each fault are."""
    from rich.table import Table

    from publisher.audit import FAULTS

    shown = Table("count", "", "first positions (topic/partition/offset)", title="audit")
    for name, value in report.to_dict().items():
        if name in ("clean", "examples"):
            continue
        style = "bold red" if name in FAULTS and value else ""
        shown.add_row(name, f"{value:,}", "\n".join(report.examples.get(name, [])), style=style)
    return shown


def _say_verdict(report: "Report") -> None:
    from publisher.audit import FAULTS

    found = [f"{name} {getattr(report, name):,}" for name in FAULTS if getattr(report, name)]
    talk.print(f"[red]not clean[/]: {', '.join(found)}" if found else "[green]clean[/]")


def main() -> None:
    """Entry point: errors become one line and a hint."""
    from publisher.errors import Fatal

    try:
        app()
    except Fatal as error:
        _end(error)


def _end(error: Any) -> NoReturn:
    talk.print(f"error: {error}", markup=False)
    if error.hint:
        talk.print(f"hint: {error.hint}", markup=False)
    raise SystemExit(error.exit_code)
