"""The command `publisher failover`: says what it will do, asks, does it."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from publisher.process.command_line import talk

if TYPE_CHECKING:
    from publisher.failover.plan import Plan

NOT_CONFIRMED = 3


def failover(
    config: Annotated[Path, typer.Argument(help="The configuration of the relay into that region.", show_default=False)],
    to: Annotated[str, typer.Option(help="The region whose scorers go on: the relay's destination.", show_default=False)],
    settings: Annotated[list[str] | None, typer.Option("--set", help="Override a setting: --set lanes=8")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
) -> None:
    """Let the scorers of the destination go on where those of the source stopped (source.groups). Failback is the same with
    the relay of the other direction."""
    from publisher.failover import plan as moving
    from publisher.relay.settings import load
    from publisher.relay.sides import now_ms

    loaded = load(config, settings or []).settings
    now = now_ms()
    found = moving.plan(loaded, to, now)
    if not as_json:
        _show(found, now)
    if not dry_run:
        if not (yes or found.against) and not _confirmed(found):
            talk.print("nothing was moved")
            raise typer.Exit(NOT_CONFIRMED)
        moving.carry_out(loaded, found)
        talk.print(f"moved; start the scorers in {found.destination}")
    if as_json:
        sys.stdout.write(json.dumps({"moved": not dry_run, "now_ms": now, **asdict(found)}) + "\n")


def _confirmed(found: "Plan") -> bool:
    """By hand: the name of the region, typed."""
    question = f"No scorer runs in {found.source} and none will be started there? Type {found.destination} to go on"
    try:
        answer: str = typer.prompt(question, default="", show_default=False, err=True)
    except typer.Abort:
        return False
    return answer == found.destination


def _show(found: "Plan", now_ms: int) -> None:
    from rich.table import Table

    shown = Table("group", "partition", "before", "after", "waiting", "because", title=f"{found.source} to {found.destination}")
    for move in found.moves:
        before = "none" if move.before is None else f"{move.before:,}"
        because = f"{move.source_next:,} in {move.source_topic}"
        where = f"{move.topic}[{move.partition}]"
        shown.add_row(move.group, where, before, f"{move.after:,}", f"{move.waiting:,}", because)
    Console(highlight=False).print(shown)
    for region, members in found.against.items():
        talk.print(f"in {region} there are scorers, to be stopped first: {', '.join(members)}", markup=False)
    if found.source_answers:
        again = f", and {found.lag_scored:,} of them, scored there, will be scored again here" if found.lag_scored else ""
        talk.print(f"{found.source} answers: {found.lag_records:,} records of it are not copied yet{again}")
        return
    seen = f"when it answered last, {_ago(found.seen_ms, now_ms)}, {found.lag_records:,} records were not copied"
    talk.print(f"{found.source} does not answer; {seen}")
    if found.complete_ms:
        talk.print(f"missing here is at most what {found.source} took in the last {_ago(found.complete_ms, now_ms, '')}")
    else:
        talk.print(f"how much of {found.source} is missing here is not known: the copy was never complete")


def _ago(at_ms: int, now_ms: int, suffix: str = " ago") -> str:
    return f"{max(0, now_ms - at_ms) / 1_000:.1f} s{suffix}"
