"""`scorer rollout`: a candidate, step by step, by a plan. See scorer/rollout/controller/."""

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from model_registry.commands import options
from publisher.errors import FINDING, REFUSED, USAGE, Aborted, Fatal, answered
from publisher.kafka import groups
from publisher.kafka.connection import connect
from publisher.runtime.command_line import Config, Json, LogLevel, Set, print_data, print_json, talk
from scorer.rollout.controller import controller, log_topic, preconditions, reproduce_verdict
from scorer.rollout.controller import plan as plans
from scorer.rollout.controller.decide import NextAction
from scorer.rollout.controller.event_log import Rollout, RolloutLog
from scorer.rollout.controller.log_records import Verb
from scorer.rollout.controller.reproduce_verdict import Verification
from scorer.rollout.controller.rollout_tables import rollout_document, rollout_tables, silence_warning
from scorer.settings import load

ANSWER_SECONDS = 10.0
Reason = Annotated[str, typer.Option(help="Why; it stands in the log.")]
Name = Annotated[str | None, typer.Option("--rollout", help="An older one, by its id.", show_default="the newest")]
app = typer.Typer(
    help="Take a candidate through a plan: compared, shadowed, a canary, promoted, or rolled back; each decision recorded.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command()
def start(
    path: Config,
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="The plan, a YAML file.", show_default=False)],
    flags: Set = None,
    reason: Reason = "",
    as_json: Json = False,
) -> None:
    """Begin a rollout. A controller (`scorer rollout run`) does the rest. Exit code 3 where another one runs."""
    settings, wanted = load(path, flags or []).settings, plans.read(plan)
    name, rivals = preconditions.start(settings, wanted, options.actor(), reason)
    text = f"{name}: {rivals.candidate.version} beside {rivals.champion.version}, in {len(wanted.steps)} steps"
    print_data(as_json, {"rollout": name, **{side: each._asdict() for side, each in rivals._asdict().items()}}, lambda: text)


@app.command()
def status(path: Config, flags: Set = None, name: Name = None, as_json: Json = False) -> None:
    """Show a rollout: its steps, what it waits for, its rules, and its log."""
    settings = load(path, flags or []).settings
    with log_topic.open_log(settings) as ledger:
        rollout = _found(ledger, name)
        print_data(as_json, rollout_document(rollout), lambda: rollout_tables(rollout, time.time()))


def _found(ledger: RolloutLog, name: str | None) -> Rollout:
    """Raises Fatal (2) where there is none."""
    found = ledger.newest if name is None else ledger.rollouts.get(name)
    if found is None:
        known = ", ".join(ledger.rollouts) or "none"
        raise Fatal(
            f"no rollout {name!r}" if name else "no rollout yet", f"rollouts: {known}; begin one: scorer rollout start", USAGE
        )
    return found


@app.command()
def pause(path: Config, flags: Set = None, reason: Reason = "") -> None:
    """Promote nothing until `resume`. What is worse is rolled back all the same."""
    _ask(path, flags, Verb.PAUSE, reason)


@app.command()
def resume(path: Config, flags: Set = None, reason: Reason = "") -> None:
    """Go on after `pause`."""
    _ask(path, flags, Verb.RESUME, reason)


@app.command()
def approve(path: Config, flags: Set = None, reason: Reason = "") -> None:
    """Let the step that it is at pass, whatever is missing. What is worse is rolled back all the same."""
    _ask(path, flags, Verb.APPROVE, reason)


@app.command()
def abort(path: Config, flags: Set = None, reason: Reason = "") -> None:
    """End it, and go back to where the channel was before."""
    _ask(path, flags, Verb.ABORT, reason)


def _ask(path: Path, flags: list[str] | None, verb: Verb, reason: str) -> None:
    settings = load(path, flags or []).settings
    with log_topic.open_log(settings, writes=True) as ledger:
        rollout = _found(ledger, None)
    if rollout.outcome is not None:
        raise Fatal(f"{rollout.id} has ended: {rollout.outcome}", "see scorer rollout status", REFUSED)
    log_topic.ask(settings, rollout, verb, options.actor(), reason)
    step = rollout.at()
    talk.print(f"asked to {verb} {rollout.id}" + ("" if step is None else f", which is at the step {step}"), markup=False)
    if warning := silence_warning(rollout, time.time()):
        talk.print(warning, markup=False)


@app.command()
def verify(
    path: Config,
    seq: Annotated[int, typer.Argument(metavar="SEQ", help="The number of an entry in the log.", min=0, show_default=False)],
    flags: Set = None,
    name: Name = None,
    as_json: Json = False,
) -> None:
    """Make a decision again from the topics, bit for bit. Exit code 1 where it differs."""
    settings = load(path, flags or []).settings
    with log_topic.open_log(settings) as ledger:
        rollout = _found(ledger, name)
    found = reproduce_verdict.verify(settings, rollout, seq)
    print_data(as_json, found.to_dict(), lambda: _verified(found))
    if found.differs:
        raise typer.Exit(FINDING)


def _verified(found: Verification) -> Group:
    kept = "" if found.evidence is None else f"; the registry keeps it with revision {found.evidence}"
    if found.differs:
        return Group(*(Text.assemble(("differs", "red"), f": {line}") for line in found.differs))
    why = "; ".join(found.entry.why)
    return Group(Text.assemble(("the same", "green"), f": {why}, from {found.pairs:,} pairs{kept}"))


@app.command()
def run(path: Config, flags: Set = None, log_level: LogLevel = "INFO") -> None:
    """Take rollouts through their plans until SIGTERM. Of several such processes one acts, and another takes over."""
    from scorer.rollout.controller import process

    process.run(load(path, flags or []).settings, path, flags or [], log_level.upper())


@app.command()
def step(
    path: Config,
    flags: Set = None,
    seconds: Annotated[float, typer.Option(help="For so long at most.", min=1.0)] = 600.0,
    as_json: Json = False,
) -> None:
    """Look once, and do what is to be done, as `run` does: for a CronJob. Exit code 3 where a `run` is there."""
    settings = load(path, flags or []).settings
    name = f"{settings.name}.rollout.step"
    controller.check_access(settings, name)
    asked = groups.ConsumerGroups(connect(settings.kafka, name), settings.kafka, "the broker", ANSWER_SECONDS)
    with answered("try again"):
        members = asked.members(settings.rollout_group)
    if members:
        raise Fatal(f"a controller runs: {', '.join(members)}", "leave it to that one", REFUSED)
    try:
        found = controller.run_once(settings, path, flags or [], seconds)
    except Aborted as error:
        raise Fatal(f"another controller has taken over: {error}", "leave it to that one", REFUSED) from error
    if as_json:
        print_json({"act": None if found is None else found.act, "why": [] if found is None else found.why})
    else:
        talk.print(_said(found), markup=False)


def _said(found: NextAction | None) -> str:
    return "no rollout runs" if found is None else f"{found.act}: {'; '.join(found.why)}"
