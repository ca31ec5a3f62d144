"""The `scorer` command. stdout is data, stderr is talk; exit codes: 0 ok, 1 a finding, 2 usage or configuration, 3 refused,
4 unreachable. What a command needs is imported when it runs, so that `--help` is quick."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from publisher.process import command_line
from publisher.process.command_line import talk
from publisher.process.time_window import HELP as TIME_HELP
from scorer.commands.audit import audit
from scorer.commands.contract import contract
from scorer.commands.printing import Config, Json, Set, print_data, print_json, table
from scorer.console.command import console
from scorer.demo.command import demo
from scorer.rollout.command import promote, rollback

if TYPE_CHECKING:
    from publisher.process.configuration import Loaded
    from scorer.settings import Settings

app = typer.Typer(
    help="Score events from Kafka to Kafka, exactly once, with model versions swapped while they flow.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

From = Annotated[str | None, typer.Option("--from", help=f"From this time on: {TIME_HELP}.")]
To = Annotated[str | None, typer.Option("--to", help=f"Before this time: {TIME_HELP}.")]


@app.command()
def run(
    config: Config,
    settings: Set = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes in the consumer group; default: as many as cores are allowed.", min=1)
    ] = None,
    log_level: Annotated[str, typer.Option()] = "INFO",
) -> None:
    """Score events until SIGTERM."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when numpy is imported: threads that no scorer would use
    from publisher.process import logs
    from scorer.process import cores, service, supervisor

    loaded = _load(config, settings)
    logs.configure({"scorer": loaded.settings.owner}, log_level.upper())
    supervisor.run(loaded.settings, workers or cores.allowed(), service.run, log_level.upper())


@app.command("config")
def show_config(config: Config, settings: Set = None, json: Json = False) -> None:
    """Show the effective settings and where each comes from."""
    from publisher.process.configuration import flatten, shown

    loaded = _load(config, settings)
    rows = {
        key: {"value": shown(key, value), "from": loaded.origins.get(key, "default")}
        for key, value in flatten(loaded.settings.model_dump(mode="json"))
    }
    print_data(
        json,
        rows,
        lambda: table(["setting", "value", "from"], [(k, str(r["value"]), r["from"]) for k, r in rows.items()]),
    )


@app.command()
def check(
    config: Config,
    settings: Set = None,
    create: Annotated[bool, typer.Option("--create", help="Create the topics that are missing.")] = False,
    partitions: Annotated[int, typer.Option(help="Partitions of input topics that --create makes.", min=1)] = 6,
    json: Json = False,
) -> None:
    """Say what is wrong before anything runs: broker, topics, model, golden examples, a sample of the events."""
    from scorer.commands.check import check as checks

    loaded = _load(config, settings)
    found = command_line.tell(checks(loaded.settings, create=create, partitions=partitions), silently=json)
    if json:
        print_json(found)
    if not found["ok"]:
        raise typer.Exit(1)


@app.command()
def status(
    config: Config,
    settings: Set = None,
    wide: Annotated[bool, typer.Option("--wide", help="Every column, on lines as long as they get.")] = False,
    json: Json = False,
) -> None:
    """Show the fleet: who runs, which version, how far behind."""
    import time

    import msgspec

    from scorer.commands import status as fleet_status

    loaded = _load(config, settings)
    now = time.time_ns() // 1_000_000
    scorers = fleet_status.fleet(loaded.settings)
    rows = [msgspec.to_builtins(s) | {"state": fleet_status.state(s, now)} for s in scorers]
    print_data(json, {"scorers": rows}, lambda: fleet_status.table(loaded.settings.name, scorers, now, wide=wide), wide=wide)


@app.command()
def emit(
    config: Config,
    settings: Set = None,
    file: Annotated[Path | None, typer.Option(help="Events, one JSON object a line; default: stdin.")] = None,
    topic: Annotated[str | None, typer.Option(help="Another topic than the first input topic.")] = None,
    key: Annotated[str | None, typer.Option(help="Key as a template over the event: '{carrier}-{flight}'.")] = None,
    header: Annotated[list[str] | None, typer.Option(help="name=value, on every event; repeatable.")] = None,
    rate: Annotated[float | None, typer.Option(help="Events a second; default: as fast as they come.", min=0.001)] = None,
    json: Json = False,
) -> None:
    """Write events to the input topic."""
    from scorer.commands.emit import emit as write

    loaded = _load(config, settings)
    pairs = [(name, value) for name, _, value in (item.partition("=") for item in header or [])]
    with open(file, "rb") if file else sys.stdin.buffer as lines:  # noqa: PTH123 - one of two open streams
        count = write(loaded.settings, lines, topic=topic, key=key, headers=pairs, rate=rate)
    print_data(json, {"written": count}, lambda: f"{count} events written")


@app.command()
def tail(
    config: Config,
    settings: Set = None,
    dead: Annotated[bool, typer.Option("--dead", help="Dead letters instead of scores.")] = False,
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="From the oldest record on.")] = False,
    follow: Annotated[bool, typer.Option(help="Wait for more; --no-follow reads what there is and ends.")] = True,
    events: Annotated[int | None, typer.Option(help="End after so many.", min=1)] = None,
) -> None:
    """Read scores (read_committed), one JSON object a line."""
    from itertools import islice

    from scorer.commands.tail import tail as read

    loaded = _load(config, settings)
    for line in islice(read(loaded.settings, dead=dead, from_beginning=from_beginning, follow=follow), events):
        sys.stdout.buffer.write(line + b"\n")
        sys.stdout.flush()


@app.command()
def offsets(
    config: Config,
    settings: Set = None,
    to: Annotated[str | None, typer.Option(help="Move the group: earliest, latest or an offset. No scorer may run.")] = None,
    topic: Annotated[str | None, typer.Option(help="Only this input topic.")] = None,
    partition: Annotated[int | None, typer.Option(help="Only this partition.", min=0)] = None,
    json: Json = False,
) -> None:
    """Show where the consumer group stands, or move it on purpose."""
    from dataclasses import asdict

    from scorer.commands import offsets as group

    loaded = _load(config, settings)
    rows = group.move(loaded.settings, to, topic, partition) if to else group.standing(loaded.settings)
    columns = ["topic", "partition", "committed", "low", "high"]
    print_data(
        json,
        {"offsets": [asdict(row) for row in rows]},
        lambda: table(columns, [[str(getattr(row, column)) for column in columns] for row in rows]),
    )


@app.command()
def replay(
    config: Config,
    settings: Set = None,
    reason: Annotated[list[str] | None, typer.Option(help="Only dead letters of this reason; repeatable.")] = None,
    start: From = None,
    end: To = None,
    rate: Annotated[float | None, typer.Option(help="Events a second at most.", min=0.001)] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be replayed; write nothing.")] = False,
    json: Json = False,
) -> None:
    """Put dead letters back to where they came from, each once. They come later than their neighbours of the same key."""
    from scorer.dead_letters.letter import Selection
    from scorer.dead_letters.replay import replay as put_back

    loaded = _load(config, settings)
    selection = Selection(_reasons(reason or []), command_line.time_window(start, end))
    summary = put_back(loaded.settings, selection, rate=rate, dry_run=dry_run)
    rows = [(name, str(count)) for name, count in sorted(summary.replayed.items())]
    print_data(json, summary.to_dict(), lambda: table(["reason", "would be replayed" if dry_run else "replayed"], rows))
    told = f"{summary.before} replayed before, {summary.others} not selected, {summary.unfit} unfit"
    talk.print(f"{told}, {summary.late} without their deadline, which has passed", markup=False)
    for example in summary.examples:
        talk.print(f"unfit: {example}", markup=False)


@app.command()
def bench(
    model: Annotated[str, typer.Argument(help="A package folder, or a version: REPOSITORY:TAG.", show_default=False)],
    config: Annotated[Path | None, typer.Option(help="Take device, backend, batching from this configuration.")] = None,
    settings: Set = None,
    json: Json = False,
) -> None:
    """Measure what a model costs here, by batch size, and what a scorer reaches with it. Needs no broker."""
    from scorer.commands import bench as measure
    from scorer.commands.bench_view import shown

    report = measure.bench(*measure.settings_for(model, config, settings or []))
    print_data(json, report.to_dict(), lambda: shown(report))


app.command()(demo)
app.command()(audit)
app.command()(contract)
app.command()(console)
app.command()(promote)
app.command()(rollback)


def main() -> None:
    """Entry point: errors become one line and a hint."""
    from model_registry.errors import RegistryError

    command_line.run(app, RegistryError)


def _load(config: Path, flags: list[str] | None) -> "Loaded[Settings]":
    from scorer.settings import load

    return load(config, flags or [])


def _reasons(names: list[str]) -> list[str]:
    from publisher.process.configuration import nearest
    from scorer.events.decoder import Reason

    for name in names:
        if name not in list(Reason):
            raise typer.BadParameter(f"{name!r} is no reason; {nearest(name, list(Reason))}", param_hint="--reason")
    return names
