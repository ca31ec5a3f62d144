"""The command `run`: train a version from the topics, and promote it or report why it was rejected."""

import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from model_registry.errors import RegistryError
from publisher.errors import INTERRUPTED, USAGE, Fatal
from publisher.runtime import logs
from publisher.runtime.command_line import Config, Json, Set, err_console, print_data
from scorer.settings import Settings
from training.commands import run_report
from training.pipeline import model_lease, pipeline
from training.pipeline.run import Progress, Run
from training.pipeline.run_dirs import alone
from training.pipeline.step_results import RunOutcome
from training.runs_topic.log_tail import LogTail
from training.runs_topic.run_events import RunDescription, RunEvents
from training.runs_topic.topic_events import TopicEvents, run_key, topic_events
from training.settings import load

PLAN = "plan"
log = logging.getLogger(__name__)

Until = Annotated[
    str | None, typer.Option("--until", metavar="STEP", help=f"Stop after this step, one of: {', '.join(pipeline.STEPS)}.")
]
New = Annotated[
    bool, typer.Option("--new", help="Start a new run, even if the last run was interrupted or no new label has arrived.")
]


def run(path: Config, flags: Set = None, until: Until = None, new: New = False, as_json: Json = False) -> None:
    """Train a version from labelled events, and promote it if it passes the gate. An interrupted run continues.

    Exit code 1 if the version is rejected, or if too few events have a label. Exit code 3 while another run trains the model.
    """
    if until not in (None, *pipeline.STEPS):
        raise Fatal(f"there is no step {until!r}", f"the steps: {', '.join(pipeline.STEPS)}", USAGE)
    if logs.writes_json("auto"):
        logs.configure({})  # an error of the configuration is also a log line
    training, settings = load(path, flags or [])
    if logs.are_json() or logs.writes_json(settings.log.format):
        logs.configure({"training": settings.name}, settings.log.level, settings.log.format)
    opened: list[TopicEvents] = []
    with alone(training.folder), progress() as shown, LogTail() as tail, contextlib.ExitStack() as stack:

        def open_events(folder: Path) -> RunEvents:
            opened.append(topic_events(settings, run_key(folder)))
            return stack.enter_context(opened[-1])

        _publish_missed_end(training.folder, settings)
        active_run = pipeline.begin(training, settings, shown, open_events, force_new=new)
        if active_run.journal.entry(PLAN):
            log.info("continuing the run in %s; --new starts another run", active_run.folder)
        end = _follow(active_run, until, tail)
        document = run_report.document(active_run.folder)
    if end is not None and not any(events.dropped for events in opened):
        pipeline.mark_published(active_run.folder)
    print_data(as_json, document, lambda: run_report.shown(document))
    if end and (code := pipeline.CODES.get(end.outcome, 0)):
        _report_rejection(end.because, code)
        raise typer.Exit(code)


def _publish_missed_end(folder: Path, settings: Settings) -> None:
    """Publish the last events of the newest run again, if its process may have died before they were published."""
    try:
        if missed := pipeline.unpublished(folder):
            with topic_events(settings, run_key(missed)) as events:
                pipeline.publish_again(missed, events)
            if not events.dropped:
                pipeline.mark_published(missed)
    except Fatal as error:  # a damaged journal, or a client that cannot be created
        log.warning("the end of the last run is not published again: %s", error)


def _follow(run: Run, until: str | None, tail: LogTail) -> RunOutcome | None:
    """Run the remaining steps, and report the start and the end of this process as events of the run.

    Return None if the run stopped after the step `until`.
    """
    training = run.training
    run.events.run_started(
        RunDescription(
            folder=str(run.folder),
            recipe=training.recipe.label,
            metric=training.search.metric or "",
            seed=training.seed,
            workers=training.workers,
            gpus=training.gpus,
            channel=run.channel,
        )
    )

    def report(step: str, seconds: float) -> None:
        _report_step(step, seconds)
        if not logs.are_json():
            tail.write(f"step {step} took {seconds:.1f} s")

    try:
        pipeline.follow(run, PLAN, report)  # a wrong configuration fails without the broker
        end = None if until == PLAN else _train(run, until, report)
    except KeyboardInterrupt:
        run.events.run_ended("stopped", "the command was interrupted", INTERRUPTED, tail.text())
        raise
    except (Fatal, RegistryError) as error:
        hint = f"; {error.hint}" if error.hint else ""
        run.events.run_ended("failed", f"{error}{hint}", error.exit_code, tail.text())
        raise
    except BaseException as error:
        tail.write_error(error)
        run.events.run_ended("failed", f"unexpected error: {type(error).__name__}: {error}", 1, tail.text())
        raise
    if end is None:
        run.events.run_ended("stopped", f"the command stopped after the step {until}", 0, tail.text())
    else:
        run.events.run_ended(end.outcome, end.because, pipeline.CODES.get(end.outcome, 0), tail.text())
    return end


def _train(run: Run, until: str | None, report: Callable[[str, float], None]) -> RunOutcome | None:
    """Run the remaining steps while this process holds the lease of the model. Raises Fatal, RegistryError."""
    with model_lease.held(run.settings, run.training.folder) as check_lease:

        def step_ended(step: str, seconds: float) -> None:
            report(step, seconds)
            check_lease()

        return pipeline.follow(run, until, step_ended)


def _report_step(step: str, seconds: float) -> None:
    if logs.are_json():
        log.info("step %s took %.1f s", step, seconds)
    else:
        err_console.print(f"{step:<10}{seconds:8.1f} s")


def _report_rejection(reason: str, code: int) -> None:
    if logs.are_json():
        log.warning("%s", reason, extra={"code": code})
    else:
        err_console.print(reason, markup=False)


@contextlib.contextmanager
def progress() -> Iterator[Progress]:
    """Yield a function that reports progress, as a progress bar if stderr is a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*columns, console=err_console, transient=True, disable=not err_console.is_terminal) as bars:
        task = bars.add_task("")
        yield lambda action, done, of: bars.update(task, description=action, completed=done, total=of)
