"""`scorer replay`: puts dead letters back. See scorer/replay/replay.py."""

from typing import Annotated

import typer

from publisher.runtime.command_line import Config, From, Json, Set, To, print_data, table, talk, time_window
from publisher.runtime.configuration import nearest
from publisher.runtime.interruption import counted
from scorer.dead_letters.reasons import Reason
from scorer.replay.dead_letter import Selection
from scorer.replay.replay import Summary
from scorer.replay.replay import replay as put_back
from scorer.settings import load


def replay(
    path: Config,
    flags: Set = None,
    reason: Annotated[list[str] | None, typer.Option(help="Only dead letters of this reason; repeatable.")] = None,
    start: From = None,
    end: To = None,
    rate: Annotated[float | None, typer.Option(help="Events a second at most.", min=0.001)] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be replayed; write nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Put dead letters back to where they came from, each once. They come later than their neighbours of the same key."""
    settings = load(path, flags or []).settings
    selection = Selection(_known(reason or []), time_window(start, end))
    summary = Summary(dry_run)
    with counted(as_json, summary.to_dict, summary.progress) as interruption:
        put_back(settings, selection, summary, interruption, rate)
    columns = ["reason", "would be replayed" if dry_run else "replayed"]
    print_data(as_json, summary.to_dict(), lambda: table(columns, sorted(summary.replayed.items())))
    told = f"{summary.before} replayed before, {summary.others} not selected, {summary.unfit} unfit"
    talk.print(f"{told}, {summary.late} without their deadline, which has passed", markup=False)
    for example in summary.examples:
        talk.print(f"unfit: {example}", markup=False)


def _known(names: list[str]) -> list[str]:
    """The names, each a reason of dead letters. Raises BadParameter."""
    for name in names:
        if name not in list(Reason):
            raise typer.BadParameter(f"{name!r} is no reason; {nearest(name, list(Reason))}", param_hint="--reason")
    return names
