"""`scorer tail`: print score records or dead letters as JSON lines."""

import sys
from itertools import islice
from typing import Annotated

import typer

from publisher.runtime.command_line import Config, Set
from scorer.observability.read_output_topics import read_lines
from scorer.settings import load


def tail(
    path: Config,
    flags: Set = None,
    dead: Annotated[bool, typer.Option("--dead", help="Print dead letters instead of scores.")] = False,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Start at the oldest record instead of the newest.")
    ] = False,
    follow: Annotated[
        bool, typer.Option(help="Wait for further records. --no-follow prints all current records by time and ends.")
    ] = True,
    events: Annotated[int | None, typer.Option(help="End after printing this number of records.", min=1)] = None,
) -> None:
    """Print committed score records, one JSON object per line.

    With --no-follow the records are ordered by time. Otherwise only the records of one partition are in order.
    """
    settings = load(path, flags or []).settings
    for line in islice(read_lines(settings, dead=dead, from_beginning=from_beginning, follow=follow), events):
        sys.stdout.buffer.write(line + b"\n")
        sys.stdout.flush()
