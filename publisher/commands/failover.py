"""`publisher failover`: says what it will do, asks, does it."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from publisher.errors import REFUSED
from publisher.failover import plan as plans
from publisher.failover.plan import Plan
from publisher.relay.settings import load
from publisher.runtime.command_line import Config, Json, Set, err_console, print_json
from publisher.runtime.context import now_ms
from publisher.runtime.terminal import PlainConsole


def failover(
    path: Config,
    to: Annotated[str, typer.Option(help="The region whose scorers go on: the relay's destination.", show_default=False)],
    flags: Set = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Let the scorers of the destination go on where those of the source stopped (source.groups). Failback is the same with
    the relay of the other direction."""
    settings = load(path, flags or []).settings
    now = now_ms()
    found = plans.plan(settings, to, now)
    if not as_json:
        _show(found, now)
    if not dry_run:
        if not (yes or found.against) and not _confirmed(found):
            err_console.print("nothing was moved")
            raise typer.Exit(REFUSED)
        plans.carry_out(settings, found)
        err_console.print(f"moved; start the scorers in {found.destination}")
    if as_json:
        print_json({"moved": not dry_run, "now_ms": now, **asdict(found)})


def _confirmed(found: Plan) -> bool:
    question = f"No scorer runs in {found.source} and none will be started there? Type {found.destination} to go on"
    try:
        answer: str = typer.prompt(question, default="", show_default=False, err=True)
    except typer.Abort:
        return False
    return answer == found.destination


def _show(found: Plan, now: int) -> None:
    shown = Table("group", "partition", "before", "after", "waiting", "because", title=f"{found.source} to {found.destination}")
    for move in found.moves:
        before = "none" if move.before is None else f"{move.before:,}"
        because = f"{move.source_next:,} in {move.source_topic}"
        where = f"{move.topic}[{move.partition}]"
        shown.add_row(move.group, where, before, f"{move.after:,}", f"{move.waiting:,}", because)
    PlainConsole().print(shown)
    for region, members in found.against.items():
        err_console.print(f"in {region} there are scorers, to be stopped first: {', '.join(members)}", markup=False)
    if found.source_answers:
        again = f", and {found.lag_scored:,} of them, scored there, will be scored again here" if found.lag_scored else ""
        err_console.print(f"{found.source} answers: {found.lag_records:,} records of it are not copied yet{again}")
        return
    seen = f"when it answered last, {_ago(found.seen_ms, now)}, {found.lag_records:,} records were not copied"
    err_console.print(f"{found.source} does not answer; {seen}")
    if found.complete_ms:
        err_console.print(f"missing here is at most what {found.source} took in the last {_ago(found.complete_ms, now, '')}")
    else:
        err_console.print(f"how much of {found.source} is missing here is not known: the copy was never complete")


def _ago(at_ms: int, now: int, suffix: str = " ago") -> str:
    return f"{max(0, now - at_ms) / 1_000:.1f} s{suffix}"
