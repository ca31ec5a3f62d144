"""`publisher failover`: print the plan, ask for confirmation, carry out the plan. `publisher/failover` makes the decisions."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from publisher.errors import REFUSED
from publisher.failover import plan as planning
from publisher.failover.plan import FailoverPlan
from publisher.relay.settings import load
from publisher.runtime.command_line import Config, Json, Set, err_console, print_json
from publisher.runtime.context import now_ms
from publisher.runtime.terminal import PlainConsole


def failover(
    path: Config,
    to: Annotated[
        str,
        typer.Option(
            help="The region in which the scorers will continue: destination.region of the relay.", show_default=False
        ),
    ],
    flags: Set = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan of the failover; move no consumer group.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Move the consumer groups without asking for confirmation.")] = False,
    as_json: Json = False,
) -> None:
    """Let the scorers at the destination continue at the positions where the scorers of the source (source.groups) stopped.

    For the failback use the configuration of the relay that copies in the other direction.
    """
    settings = load(path, flags or []).settings
    now = now_ms()
    plan = planning.plan(settings, to, now)
    if not as_json:
        _print_plan(plan, now)
    if not dry_run:
        if not (yes or plan.active_members) and not _is_confirmed(plan):
            err_console.print("no consumer group was moved")
            raise typer.Exit(REFUSED)
        planning.commit_plan(settings, plan)
        err_console.print(f"the consumer groups were moved; start the scorers in {plan.destination}")
    if as_json:
        print_json({"moved": not dry_run, "now_ms": now, **asdict(plan)})


def _is_confirmed(plan: FailoverPlan) -> bool:
    question = f"No scorer runs in {plan.source} and none will be started there? Type {plan.destination} to continue"
    try:
        answer: str = typer.prompt(question, default="", show_default=False, err=True)
    except typer.Abort:
        return False
    return answer == plan.destination


def _print_plan(plan: FailoverPlan, now: int) -> None:
    table = Table("group", "partition", "before", "after", "waiting", "because", title=f"{plan.source} to {plan.destination}")
    for move in plan.moves:
        before = "none" if move.before is None else f"{move.before:,}"
        because = f"{move.source_next:,} in {move.source_topic}"
        partition = f"{move.topic}[{move.partition}]"
        table.add_row(move.group, partition, before, f"{move.after:,}", f"{move.waiting:,}", because)
    PlainConsole().print(table)
    for region, members in plan.active_members.items():
        err_console.print(f"scorers in {region} must be stopped first: {', '.join(members)}", markup=False)
    if plan.source_answers:
        rescored = f"; {plan.lag_scored:,} of them were scored there and will be scored again" if plan.lag_scored else ""
        err_console.print(f"{plan.source} answers: {plan.lag_records:,} of its records are not copied yet{rescored}")
        return
    last_answer = f"at its last answer, {_duration(plan.seen_ms, now)} ago, {plan.lag_records:,} records were not copied"
    err_console.print(f"{plan.source} does not answer; {last_answer}")
    if plan.complete_ms:
        received = f"the records that {plan.source} received in the last {_duration(plan.complete_ms, now)}"
        err_console.print(f"the copy in {plan.destination} lacks at most {received}")
    else:
        err_console.print(
            f"the number of records that the copy in {plan.destination} lacks is unknown: "
            f"{plan.source} was never completely copied"
        )


def _duration(since_ms: int, now: int) -> str:
    return f"{max(0, now - since_ms) / 1_000:.1f} s"
