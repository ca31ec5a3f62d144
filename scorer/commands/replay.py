"""`scorer replay`: write dead letters back to their input topics. See scorer/replay/replay.py."""

from typing import Annotated

import typer

from publisher.runtime.command_line import Config, From, Json, Set, To, err_console, print_data, table, time_range
from publisher.runtime.configuration import nearest
from publisher.runtime.interruption import report_progress
from publisher.runtime.progress_bars import progress_bars
from scorer.dead_letters.reasons import Reason
from scorer.replay.replay import ReplaySummary
from scorer.replay.replay import replay as replay_dead_letters
from scorer.replay.selection import DeadLetterSelection
from scorer.settings import load


def replay(
    path: Config,
    flags: Set = None,
    reason: Annotated[list[str] | None, typer.Option(help="Replay only dead letters with this reason. Repeatable.")] = None,
    start: From = None,
    end: To = None,
    rate: Annotated[float | None, typer.Option(help="The maximum number of events per second.", min=0.001)] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count what would be replayed; write nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Write dead letters back to their input topics, each once. They arrive after newer events of the same key."""
    settings = load(path, flags or []).settings
    selection = DeadLetterSelection(_check_reasons(reason or []), time_range(start, end))
    summary = ReplaySummary(dry_run)
    with report_progress(as_json, summary.to_dict, summary.progress) as interruption, progress_bars() as show:
        replay_dead_letters(settings, selection, summary, interruption, rate, show)
    columns = ["reason", "would be replayed" if dry_run else "replayed"]
    print_data(as_json, summary.to_dict(), lambda: table(columns, sorted(summary.replayed.items())))
    counts = f"{summary.before} replayed before, {summary.others} not selected, {summary.unfit} unfit"
    err_console.print(f"{counts}, {summary.late} replayed without their expired deadline", markup=False)
    for example in summary.examples:
        err_console.print(f"unfit: {example}", markup=False)


def _check_reasons(names: list[str]) -> list[str]:
    """Return the names unchanged. Raises BadParameter if a name is not a reason of dead letters."""
    for name in names:
        if name not in list(Reason):
            raise typer.BadParameter(
                f"{name!r} is not a reason of dead letters; {nearest(name, list(Reason))}", param_hint="--reason"
            )
    return names
