"""`publisher status`: print the state of a relay once, or repeatedly with `--live`, as tables or as JSON.

`publisher/relay/lag_report.py` collects the state; nothing is decided here.
"""

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated

import msgspec
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from model_registry.untrusted_input.terminal_text import printable_json
from publisher.errors import UNREACHABLE, Fatal
from publisher.relay.lag_report import Observer, RelayStatus
from publisher.relay.settings import load
from publisher.runtime.command_line import Config, Json, Set, print_data
from publisher.runtime.context import now_ms
from publisher.runtime.terminal import PlainConsole

CHECKPOINT_AGE = "check-\npoint\ns ago"
DECIMAL_BELOW = 100.0


def status(
    path: Config,
    flags: Set = None,
    live: Annotated[bool, typer.Option("--live", help="Refresh until Ctrl-C; with --json print one line per refresh.")] = False,
    every: Annotated[float, typer.Option(help="Seconds between two refreshes of --live.", min=0.1)] = 1.0,
    metrics: Annotated[
        str | None, typer.Option(help="HOST:PORT at which the relay serves its metrics; default: http.listen.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the position and lag of each partition, and the lanes of a running relay."""
    console = PlainConsole()
    if live and not as_json and not console.is_terminal:
        raise typer.BadParameter("stdout is not a terminal; add --json to print one line per refresh", param_hint="--live")
    settings = load(path, flags or []).settings
    observer = Observer(settings, metrics or settings.http.listen)
    if live and as_json:
        for report in _observe_repeatedly(observer, every):
            sys.stdout.write(printable_json(msgspec.json.encode(report)).decode() + "\n")
            sys.stdout.flush()
    elif live:
        with Live(console=console, auto_refresh=False, screen=False) as display:
            for report in _observe_repeatedly(observer, every):
                display.update(tables(report), refresh=True)
    else:
        report = observer.observe(now_ms())
        print_data(as_json, msgspec.to_builtins(report), lambda: tables(report))


def tables(report: RelayStatus) -> Group:
    """Return the tables to print: the state of each copying thread (lane), and the position of each partition."""
    last = report.last
    process = report.process
    title = f"relay {report.name}"
    if last is not None:
        title += f": {last.command} on {last.host} (pid {last.pid}), {last.lanes} lanes"
    lines = [Text(title, style="bold")]
    if report.error:
        lines.append(Text(report.error, style="red"))
    if not report.source_answers:
        lines.append(Text("the source does not answer: its backlog is unknown", style="red"))
    if process is None:
        lines.append(Text("the relay process does not answer: lanes, transactions and errors are unknown", style="dim"))
        return Group(*lines, _partition_table(report))
    lines.append(Text(f"{'copying' if process.copying else 'not copying'}, restarted {process.restarts} times"))
    if process.last_error is not None:
        age = max(0, report.at_ms - (process.last_error_ms or 0)) / 1_000
        lines.append(Text(f"last error, {age:,.0f} s ago: {process.last_error}", style="yellow"))
    lines += [Text(reason, style="bold red") for reason in process.stopped]
    return Group(*lines, _lane_table(report), _partition_table(report))


def _observe_repeatedly(observer: Observer, seconds: float) -> Iterator[RelayStatus]:
    """Yield the state every `seconds`. While the destination does not answer, yield the last state with `error` set.

    Raises:
        Fatal: with exit code 4 if the destination does not answer at first, 3 if it rejects the request.
    """
    last: RelayStatus | None = None
    while True:
        try:
            last = observer.observe(now_ms())
            yield last
        except Fatal as error:
            if last is None or error.exit_code != UNREACHABLE:
                raise
            yield replace(last, error=f"the destination does not answer: {error}")
        time.sleep(seconds)


def _lane_table(report: RelayStatus) -> Table:
    table = _narrow_table(
        "lane", "lag", "lag s", "records\n/s", "records", "trans-\nactions", "aborts", "refused", CHECKPOINT_AGE
    )
    for lane in report.process.lanes if report.process else ():
        lag = lane.lag_records, lane.lag_seconds, lane.records_per_second
        counts = lane.records, lane.transactions, lane.aborts, lane.refused, lane.checkpoint_age_seconds
        table.add_row(str(lane.lane), *map(_format_number, (*lag, *counts)), style="bold" if lane.lag_records else "")
    return table


def _partition_table(report: RelayStatus) -> Table:
    table = _narrow_table("partition", "lane", "next", "end", "lag", "lag s", "records\n/s", CHECKPOINT_AGE)
    for row in report.partitions:
        numbers = row.next, row.end, row.lag_records, row.lag_seconds, row.records_per_second, row.age_seconds
        partition = f"{row.topic}[{row.partition}]", str(row.lane)
        table.add_row(*partition, *map(_format_number, numbers), style="bold" if row.lag_records else "")
    return table


def _narrow_table(first: str, *numbers: str) -> Table:
    """Return an empty table that fits a terminal of 80 columns.

    Args:
        first: the header of the first column. Only the texts of this column may take several lines.
        numbers: the headers of the further columns, which contain numbers.
    """
    table = Table(box=SIMPLE_HEAD, padding=0, show_edge=False)
    table.add_column(first, overflow="fold")
    for header in numbers:
        table.add_column(header, justify="right", no_wrap=True)
    return table


def _format_number(value: float | None) -> str:
    """Format a count in full, and another number with at most one decimal."""
    if value is None:
        return "?"
    return f"{value:,.1f}" if isinstance(value, float) and value < DECIMAL_BELOW else f"{round(value):,}"
