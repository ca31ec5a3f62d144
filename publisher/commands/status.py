"""`publisher status`: what the observer sees as tables, once or live in a terminal; or as JSON, live an object a line."""

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated

import msgspec
import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from model_registry.untrusted_input.text import printable_json
from publisher.errors import UNREACHABLE, Fatal
from publisher.relay.lag_report import Observer, Status
from publisher.relay.settings import load
from publisher.runtime.command_line import Config, Json, Set, print_data
from publisher.runtime.context import now_ms
from publisher.runtime.terminal import PlainConsole


def status(
    path: Config,
    flags: Set = None,
    live: Annotated[bool, typer.Option("--live", help="Go on until Ctrl-C; with --json a line each time.")] = False,
    every: Annotated[float, typer.Option(help="Seconds between two looks of --live.", min=0.1)] = 1.0,
    metrics: Annotated[
        str | None, typer.Option(help="HOST:PORT at which its process serves metrics; default: http.listen.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show how far each partition is copied and how far behind it is; of a relay that runs, also what its lanes do."""
    console = PlainConsole()
    if live and not as_json and not console.is_terminal:
        raise typer.BadParameter("stdout is no terminal; add --json for a line each time", param_hint="--live")
    settings = load(path, flags or []).settings
    observer = Observer(settings, metrics or settings.http.listen)
    if live and as_json:
        for found in _looks(observer, every):
            sys.stdout.write(printable_json(msgspec.json.encode(found)).decode() + "\n")
            sys.stdout.flush()
    elif live:
        with Live(console=console, auto_refresh=False, screen=False) as shown:
            for found in _looks(observer, every):
                shown.update(tables(found), refresh=True)
    else:
        found = observer.look(now_ms())
        print_data(as_json, msgspec.to_builtins(found), lambda: tables(found))


def tables(found: Status) -> Group:
    """What the process says, by lane; and by partition what the clusters say."""
    last, process = found.last, found.process
    title = f"relay {found.name}"
    if last is not None:
        title += f": {last.what} on {last.host} (pid {last.pid}), {last.lanes} lanes"
    lines = [Text(title, style="bold")]
    if found.error:
        lines.append(Text(found.error, style="red"))
    if not found.source_answers:
        lines.append(Text("the source does not answer: what waits there is unknown", style="red"))
    if process is None:
        lines.append(Text("its process does not answer here: lanes, transactions and errors are unknown", style="dim"))
        return Group(*lines, _partitions(found))
    lines.append(Text(f"{'copying' if process.copying else 'not copying'}, began anew {process.restarts} times"))
    if process.last_error is not None:
        ago = max(0, found.at_ms - (process.last_error_ms or 0)) / 1_000
        lines.append(Text(f"last error, {ago:,.0f} s ago: {process.last_error}", style="yellow"))
    lines += [Text(why, style="bold red") for why in process.stopped]
    return Group(*lines, _lanes(found), _partitions(found))


def _looks(observer: Observer, seconds: float) -> Iterator[Status]:
    """Look again and again; while the destination does not answer, the last that was seen, with `error`. Raises Fatal: 4 where
    nothing was seen yet, 3 where it is refused."""
    last: Status | None = None
    while True:
        try:
            last = observer.look(now_ms())
            yield last
        except Fatal as error:
            if last is None or error.exit_code != UNREACHABLE:
                raise
            yield replace(last, error=f"the destination does not answer: {error}")
        time.sleep(seconds)


def _lanes(found: Status) -> Table:
    shown = Table("lane", "lag", "lag s", "records/s", "records", "transactions", "aborts", "refused", "checkpoint s ago")
    for lane in found.process.lanes if found.process else ():
        lag = lane.lag_records, lane.lag_seconds, lane.records_per_second
        counts = lane.records, lane.transactions, lane.aborts, lane.refused, lane.checkpoint_age_seconds
        shown.add_row(str(lane.lane), *map(_or_unknown, (*lag, *counts)), style="bold" if lane.lag_records else "")
    return shown


def _partitions(found: Status) -> Table:
    shown = Table("partition", "lane", "next", "end", "lag", "lag s", "records/s", "checkpoint s ago")
    for row in found.partitions:
        lag = row.next, row.end, row.lag_records, row.lag_seconds, row.records_per_second, row.age_seconds
        place = f"{row.topic}[{row.partition}]", str(row.lane)
        shown.add_row(*place, *map(_or_unknown, lag), style="bold" if row.lag_records else "")
    return shown


def _or_unknown(value: float | None) -> str:
    return "?" if value is None else f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"
