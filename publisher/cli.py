"""The `publisher` command. stdout is data, stderr is talk; exit codes: 0 ok, 1 a finding, 2 usage or configuration, 3 refused,
4 unreachable. What a command needs is imported when it runs, so that `--help` is quick."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from publisher.failover.command import failover
from publisher.process import command_line
from publisher.process.command_line import talk
from publisher.process.time_window import HELP as TIME_HELP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from publisher.audit.ledger import Report
    from publisher.kafka.clients import KafkaSettings
    from publisher.relay.commands.checkpoint import Move

app = typer.Typer(
    help="Write to Kafka exactly once, and count that it was so.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
positions = typer.Typer(help="Positions at the destination: show, set, reset.", no_args_is_help=True)
app.add_typer(positions, name="checkpoint")

Topics = list[str] | None
Config = Annotated[Path, typer.Argument(help="The relay's configuration, a YAML file.", show_default=False)]
Set = Annotated[list[str] | None, typer.Option("--set", help="Override a setting: --set lanes=8")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]


@app.callback()
def publisher() -> None:
    """Write to Kafka exactly once, and count that it was so."""


@app.command()
def run(config: Config, settings: Set = None, log_level: Annotated[str, typer.Option()] = "INFO") -> None:
    """Copy topics into this region, each record exactly once, until SIGTERM."""
    from publisher.process import logs
    from publisher.relay import service as relay_service
    from publisher.relay.settings import load

    loaded = load(config, settings or [])
    logs.configure({"publisher": loaded.settings.name}, log_level.upper())
    relay_service.run(loaded.settings)


@app.command()
def check(
    config: Config,
    settings: Set = None,
    create: Annotated[bool, typer.Option("--create", help="Make what is missing at the destination.")] = False,
    as_json: Json = False,
) -> None:
    """Say what is wrong before anything is copied: clusters, topics, checkpoints."""
    from publisher.relay.commands.check import check as checks
    from publisher.relay.settings import load

    found = command_line.tell(checks(load(config, settings or []).settings, create=create), silently=as_json)
    if as_json:
        _json(found)
    if not found["ok"]:
        raise typer.Exit(1)


@app.command()
def status(
    config: Config,
    settings: Set = None,
    live: Annotated[bool, typer.Option("--live", help="Go on until Ctrl-C; with --json a line each time.")] = False,
    every: Annotated[float, typer.Option(help="Seconds between two looks of --live.", min=0.1)] = 1.0,
    metrics: Annotated[
        str | None, typer.Option(help="HOST:PORT at which its process serves metrics; default: http.listen.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show how far each partition is copied and how far behind it is; of a process that answers, also what its lanes do."""
    import msgspec

    from publisher.relay.commands import status_view as relay_view
    from publisher.relay.commands.status import Observer
    from publisher.relay.settings import load
    from publisher.relay.sides import now_ms

    console = Console(highlight=False)
    if live and not as_json and not console.is_terminal:
        raise typer.BadParameter("stdout is no terminal; add --json for a line each time", param_hint="--live")
    loaded = load(config, settings or []).settings
    observer = Observer(loaded, metrics or loaded.http.listen)
    if live:
        relay_view.lines(observer, every) if as_json else relay_view.live(observer, every, console)
    elif as_json:
        _json(msgspec.to_builtins(observer.look(now_ms())))
    else:
        console.print(relay_view.tables(observer.look(now_ms())))


@positions.command("show")
def show_positions(config: Config, settings: Set = None, as_json: Json = False) -> None:
    """Show the positions, as `publisher status` does."""
    status(config, settings, as_json=as_json)


@positions.command("set")
def set_positions(
    config: Config,
    topic: Annotated[str, typer.Option(help="The source topic.", show_default=False)],
    to: Annotated[str, typer.Option(help="earliest, latest or an offset of the source.", show_default=False)],
    partition: Annotated[int | None, typer.Option(help="Only this partition.", min=0)] = None,
    settings: Set = None,
    as_json: Json = False,
) -> None:
    """Go on from another offset, with the topics as they are now. Ends a relay that runs; start it again."""
    from publisher.relay.commands.checkpoint import move
    from publisher.relay.settings import load

    _moves(move(load(config, settings or []).settings, topic, partition, to), as_json)


@positions.command("reset")
def reset_positions(
    config: Config,
    topic: Annotated[str | None, typer.Option(help="Only this source topic.")] = None,
    settings: Set = None,
    as_json: Json = False,
) -> None:
    """Forget the positions: the relay begins as if it had never run. Ends a relay that runs."""
    from publisher.relay.commands.checkpoint import forget
    from publisher.relay.settings import load

    _moves(forget(load(config, settings or []).settings, topic), as_json)


@app.command("audit")
def audit_command(
    config: Annotated[
        Path | None, typer.Argument(help="A relay's configuration: count its copies, not scores.", show_default=False)
    ] = None,
    settings: Set = None,
    bootstrap_servers: Annotated[str, typer.Option(help="The cluster: host:port,...")] = "",
    inputs: Annotated[Topics, typer.Option("--input", help="Input topic; repeatable.")] = None,
    outputs: Annotated[Topics, typer.Option("--output", help="Score topic; repeatable.")] = None,
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
    kafka_config: Annotated[
        Path | None, typer.Option(help="Client properties for librdkafka (TLS, SASL): a file of key=value lines.")
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds that the broker may take to answer.", min=0.1)] = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
) -> None:
    """Count what was lost, doubled, invented or reordered: between inputs and scores, or between regions (CONFIG)."""
    if config is not None:
        _audit_relay(config, settings or [], timeout, as_json)
        return
    from publisher.audit import view as audit_view
    from publisher.audit.topics import Plan

    if not (inputs and outputs):
        raise typer.BadParameter("give --bootstrap-servers, --input and --output, or a relay's CONFIG")
    plan = Plan(inputs, outputs, dead or (), swaps or (), group, *command_line.time_window(start, end))
    kafka = _settings(bootstrap_servers, [*_lines(kafka_config), *(properties or [])])
    _audited(audit_view.audited(kafka, plan, timeout, talk), as_json)


def _audited(report: "Report", as_json: bool) -> None:
    """Print the count; exit code 1 where something is wrong."""
    from publisher.audit import view as audit_view

    if as_json:
        _json(report.to_dict())
    else:
        Console(highlight=False).print(audit_view.table(report))
        talk.print(audit_view.verdict(report))
    if not report.clean:
        raise typer.Exit(1)


app.command()(failover)


def _audit_relay(config: Path, flags: list[str], timeout: float, as_json: bool) -> None:
    from dataclasses import asdict

    from rich.progress import Progress

    from publisher.relay.commands import audit as relay_audit
    from publisher.relay.settings import load

    with Progress(console=talk, transient=True, disable=not talk.is_terminal) as bar:
        task = bar.add_task("reading partitions")
        report = relay_audit.audit(
            load(config, flags).settings, lambda done, total: bar.update(task, completed=done, total=total), timeout
        )
    if as_json:
        _json({"clean": report.clean, **asdict(report)})
    else:
        Console(highlight=False).print(relay_audit.table(report))
        talk.print("[green]clean[/]" if report.clean else "[red]not clean[/]")
    if not report.clean:
        raise typer.Exit(1)


def _lines(file: Path | None) -> list[str]:
    """The properties in a file, without empty lines and comments. Secrets in it are never repeated."""
    try:
        lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()] if file else []
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"cannot read {file}: {error}", param_hint="--kafka-config") from None
    for number, line in enumerate(lines, 1):
        if line and not line.startswith("#") and "=" not in line:
            raise typer.BadParameter(f"{file}:{number} has no '='; write key=value", param_hint="--kafka-config")
    return [line for line in lines if line and not line.startswith("#")]


def _settings(bootstrap_servers: str, properties: list[str]) -> "KafkaSettings":
    from publisher.kafka.clients import KafkaSettings

    extra: dict[str, str | int | float | bool] = {}
    for item in properties:
        key, equals, value = item.partition("=")
        if not (key and equals):
            raise typer.BadParameter(f"{item!r} is not key=value", param_hint="-X")
        extra[key.strip()] = value.strip()
    if not bootstrap_servers.strip():
        raise typer.BadParameter("empty; expected host:port,...", param_hint="--bootstrap-servers")
    return KafkaSettings(bootstrap_servers=bootstrap_servers, extra=extra)


def _json(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")


def _moves(moves: "Sequence[Move]", as_json: bool) -> None:
    from dataclasses import asdict

    from rich.table import Table

    if as_json:
        _json({"positions": [asdict(move) for move in moves]})
        return
    shown = Table("partition", "before", "after")
    for move in moves:
        shown.add_row(f"{move.topic}[{move.partition}]", str(move.before), str(move.after))
    Console(highlight=False).print(shown)


def main() -> None:
    """Entry point: errors become one line and a hint."""
    command_line.run(app)
