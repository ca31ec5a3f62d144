"""`scorer rollout`: take a candidate through the steps of a plan. See scorer/rollout/controller/."""

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from model_registry.channels.move_request import current_actor
from publisher.errors import FINDING, REFUSED, USAGE, Aborted, Fatal, retriable_as_fatal
from publisher.kafka import groups
from publisher.kafka.connection import connect
from publisher.runtime.command_line import Config, Json, LogLevel, Set, err_console, print_data, print_json
from publisher.runtime.log_settings import flags_with_level
from scorer.rollout.controller import controller, log_topic, preconditions, reproduce_verdict
from scorer.rollout.controller import plan as plans
from scorer.rollout.controller.log_records import Verb
from scorer.rollout.controller.next_action import NextAction
from scorer.rollout.controller.reproduce_verdict import Verification
from scorer.rollout.controller.rollout_state import Rollout, RolloutLog
from scorer.rollout.controller.rollout_tables import rollout_document, rollout_tables, silence_warning
from scorer.settings import load

ANSWER_SECONDS = 10.0
Reason = Annotated[str, typer.Option(help="The reason, which is recorded in the log of the rollout.")]
Name = Annotated[str | None, typer.Option("--rollout", help="The id of the rollout.", show_default="the newest")]
app = typer.Typer(
    help="Roll out a candidate by a plan: compare, shadow, canary, promote or roll back. Every decision is logged.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command()
def start(
    path: Config,
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="The plan of the rollout, a YAML file.", show_default=False)],
    flags: Set = None,
    reason: Reason = "",
    as_json: Json = False,
) -> None:
    """Start a rollout, which a controller (`scorer rollout run`) carries out. Exit code 3 if another rollout is running."""
    settings = load(path, flags or []).settings
    rollout_plan = plans.read(plan)
    name, rivals = preconditions.start(settings, rollout_plan, current_actor(), reason)
    text = f"{name}: candidate {rivals.candidate.version}, champion {rivals.champion.version}, {len(rollout_plan.steps)} steps"
    print_data(as_json, {"rollout": name, **{side: each._asdict() for side, each in rivals._asdict().items()}}, lambda: text)


@app.command()
def status(path: Config, flags: Set = None, name: Name = None, as_json: Json = False) -> None:
    """Print a rollout: its steps, what it waits for, its analysis and its log."""
    settings = load(path, flags or []).settings
    with log_topic.open_log(settings) as ledger:
        rollout = _select(ledger, name)
        print_data(as_json, rollout_document(rollout), lambda: rollout_tables(rollout, time.time()))


def _select(ledger: RolloutLog, name: str | None) -> Rollout:
    """Return the rollout with the id `name`, or the newest if None. Raises Fatal with exit code 2 if there is none."""
    rollout = ledger.newest if name is None else ledger.rollouts.get(name)
    if rollout is None:
        ids = ", ".join(ledger.rollouts) or "none"
        raise Fatal(
            f"there is no rollout {name!r}" if name else "there is no rollout yet",
            f"rollouts: {ids}; `scorer rollout start` starts one",
            USAGE,
        )
    return rollout


@app.command()
def pause(path: Config, flags: Set = None, reason: Reason = "") -> None:
    """Pause promotions until `resume`. Automatic rollback stays active."""
    _request(path, flags, Verb.PAUSE, reason)


@app.command()
def resume(path: Config, flags: Set = None, reason: Reason = "") -> None:
    """Resume promotions after `pause`."""
    _request(path, flags, Verb.RESUME, reason)


@app.command()
def approve(path: Config, flags: Set = None, reason: Reason = "") -> None:
    """Pass the current step, even if its conditions are not met. Automatic rollback stays active."""
    _request(path, flags, Verb.APPROVE, reason)


@app.command()
def abort(path: Config, flags: Set = None, reason: Reason = "") -> None:
    """End the rollout and restore the channel."""
    _request(path, flags, Verb.ABORT, reason)


def _request(path: Path, flags: list[str] | None, verb: Verb, reason: str) -> None:
    settings = load(path, flags or []).settings
    with log_topic.open_log(settings, writes=True) as ledger:
        rollout = _select(ledger, None)
    if rollout.outcome is not None:
        raise Fatal(f"the rollout {rollout.id} has ended: {rollout.outcome}", "see `scorer rollout status`", REFUSED)
    log_topic.send_command(settings, rollout, verb, current_actor(), reason)
    step = rollout.at()
    err_console.print(f"requested to {verb} {rollout.id}" + ("" if step is None else f", at the step {step}"), markup=False)
    if warning := silence_warning(rollout, time.time()):
        err_console.print(warning, markup=False)


@app.command()
def verify(
    path: Config,
    seq: Annotated[
        int,
        typer.Argument(metavar="SEQ", help="The number of the decision in the rollout log.", min=0, show_default=False),
    ],
    flags: Set = None,
    name: Name = None,
    as_json: Json = False,
) -> None:
    """Reproduce a logged decision from the topics, bit for bit. Exit code 1 if it differs."""
    settings = load(path, flags or []).settings
    with log_topic.open_log(settings) as ledger:
        rollout = _select(ledger, name)
    verification = reproduce_verdict.verify(settings, rollout, seq)
    print_data(as_json, verification.to_dict(), lambda: _verification_lines(verification))
    if verification.differs:
        raise typer.Exit(FINDING)


def _verification_lines(verification: Verification) -> Group:
    attached = "" if verification.evidence is None else f"; the registry holds it with revision {verification.evidence}"
    if verification.differs:
        return Group(*(Text.assemble(("differs", "red"), f": {line}") for line in verification.differs))
    reasons = "; ".join(verification.entry.why)
    return Group(Text.assemble(("the same", "green"), f": {reasons}, from {verification.pairs:,} pairs{attached}"))


@app.command()
def run(path: Config, flags: Set = None, log_level: LogLevel = None) -> None:
    """Run the controller of rollouts until SIGTERM. One of several controllers leads; another takes over when it ends."""
    from publisher.runtime import logs
    from scorer.rollout.controller import process

    logs.configure({})  # an error of the configuration is also a log line
    process.run(load(path, flags_with_level(flags, log_level)).settings, path, flags or [])


@app.command()
def step(
    path: Config,
    flags: Set = None,
    seconds: Annotated[float, typer.Option(help="The time limit of the step, in seconds.", min=1.0)] = 600.0,
    as_json: Json = False,
) -> None:
    """Run one step of the controller, for a CronJob. Exit code 3 if a controller is running."""
    settings = load(path, flags or []).settings
    name = f"{settings.name}.rollout.step"
    controller.check_access(settings, name)
    consumer_groups = groups.ConsumerGroups(connect(settings.kafka, name), settings.kafka, "the broker", ANSWER_SECONDS)
    with retriable_as_fatal("try again"):
        members = consumer_groups.members(settings.rollout_group)
    if members:
        raise Fatal(
            f"a controller is running: {', '.join(members)}", "the running controller takes the step by itself", REFUSED
        )
    try:
        action = controller.run_once(settings, path, flags or [], seconds)
    except Aborted as error:
        raise Fatal(
            f"another controller has taken over: {error}", "the running controller takes the step by itself", REFUSED
        ) from error
    if as_json:
        print_json({"act": None if action is None else action.act, "why": [] if action is None else action.reasons})
    else:
        err_console.print(_action_line(action), markup=False)


def _action_line(action: NextAction | None) -> str:
    return "no rollout is running" if action is None else f"{action.act}: {'; '.join(action.reasons)}"
