"""The pipeline of a run: its steps in order, each completed once. An interrupted run continues where it stopped."""

import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from model_registry.errors import RegistryError
from publisher.errors import FINDING, Fatal
from scorer.settings import Settings
from training import environment
from training.pipeline import evaluate_steps, prepare_steps, publish_steps, train_steps
from training.pipeline.journal import Journal
from training.pipeline.run import Progress, Run, config
from training.pipeline.run_dirs import STEPS as FOLDER
from training.pipeline.run_dirs import named, runs
from training.pipeline.step_results import Moved, Outcome, Over, Promotion, RunOutcome, RunPlan
from training.runs_topic.run_events import RunEvents
from training.settings import TrainingSettings

STEPS: Mapping[str, Callable[[Run], object]] = {
    "plan": prepare_steps.plan,
    "freeze": prepare_steps.freeze,
    "copy": prepare_steps.copy,
    "join": prepare_steps.join,
    "search": train_steps.search,
    "train": train_steps.train,
    "export": train_steps.export,
    "push": publish_steps.push,
    "evaluate": evaluate_steps.evaluate,
    "gate": evaluate_steps.gate,
    "attest": publish_steps.attest,
    "sign": publish_steps.sign,
    "promote": publish_steps.promote,
}
COMMIT = "commit"
END = "end"
"""The last steps of every run are COMMIT and END. COMMIT commits the label offsets, whatever the outcome of the run is."""
AGAIN = ("evaluate", "gate", "attest", "sign", "promote")
"""The steps that are repeated if the channel was moved after `evaluate` recorded the champion."""
PUBLISHED = "published"
"""A file in the folder of a run that has ended. Without it, the last events of the run may be missing in the topic of runs."""
CODES: Mapping[Outcome, int] = {"refused": FINDING, "too-few-labels": FINDING}
"""Exit codes of the outcomes, if they are not 0."""


def begin(
    training: TrainingSettings,
    settings: Settings,
    progress: Progress,
    open_events: Callable[[Path], RunEvents],
    *,
    force_new: bool = False,
) -> Run:
    """Return the newest run if it can continue, else a new run.

    A run can continue if it has not ended, and if its plan has these settings, this signature and this environment. With
    `force_new`, the result is always a new run, which trains even if no new label has arrived. `open_events` takes the folder
    of the run and returns the receiver of its events.
    """
    newest = next(reversed(runs(training.folder)), None)
    if newest and not force_new and _goes_on(Journal(newest / FOLDER), training, settings):
        return Run(training, settings, newest, progress, open_events(newest))
    folder = named(training.folder, time.time_ns() // 1_000_000)
    return Run(training, settings, folder, progress, open_events(folder), force_new=force_new)


def unpublished(folder: Path) -> Path | None:
    """Return the newest run's folder if the run has ended, but its process may have died before it published the last events.

    `folder` is the folder of all runs. Return None if there is no such run. Raises Fatal (exit code 3) for a damaged journal.
    """
    newest = next(reversed(runs(folder)), None)
    if newest is None or (newest / PUBLISHED).exists() or Journal(newest / FOLDER).entry(END) is None:
        return None
    return newest


def publish_again(folder: Path, events: RunEvents) -> None:
    """Publish the results of all completed steps and the end of a run that has ended. Raises Fatal for a damaged journal."""
    journal = Journal(folder / FOLDER)
    for step in (*STEPS, COMMIT, END):
        if entry := journal.entry(step):
            events.step_ended(step, entry.seconds, entry.result)
    if end := journal.result(END, RunOutcome):
        events.run_ended(end.outcome, end.because, CODES.get(end.outcome, 0), "")


def mark_published(folder: Path) -> None:
    """Record that the events of this run need not be published again."""
    with contextlib.suppress(OSError):
        (folder / PUBLISHED).touch()


def follow(run: Run, until: str | None, done: Callable[[str, float], None]) -> RunOutcome | None:
    """Run the remaining steps up to `until`.

    Args:
        run: The run.
        until: The last step to run; None runs all of them.
        done: Called after each executed step with its name and its seconds.

    Returns:
        The outcome of the run, or None if the run stopped after `until`.

    Raises:
        Fatal: A step failed.
        RegistryError: The registry rejected a step or is unreachable.
    """
    try:
        for step in STEPS:
            _take(run, step, STEPS[step], done)
            if step == until:
                return None
        last = run.result("promote", Promotion)
        end = RunOutcome(last.outcome, str(last))
    except Moved:
        run.journal.set_aside(AGAIN)
        return follow(run, until, done)
    except Over as over:
        end = over.end
    _take(run, COMMIT, publish_steps.commit, done)
    _take(run, END, lambda _: end, done)
    return end


def _take(run: Run, step: str, take: Callable[[Run], Any], done: Callable[[str, float], None]) -> None:
    if entry := run.journal.entry(step):
        # The process that completed the step may have died before it published the event.
        run.events.step_ended(step, entry.seconds, entry.result)
    else:
        begin = time.monotonic()
        run.events.step_started(step)
        try:
            result = take(run)
        except (Fatal, RegistryError) as error:
            run.events.step_failed(step, time.monotonic() - begin, str(error))
            raise
        except (Over, Moved):
            run.events.step_ended(step, time.monotonic() - begin, None)
            raise
        seconds = time.monotonic() - begin
        run.journal.write(step, result, seconds, time.time_ns() // 1_000_000)
        run.events.step_ended(step, seconds, result)
        done(step, seconds)


def _goes_on(journal: Journal, training: TrainingSettings, settings: Settings) -> bool:
    planned = journal.result("plan", RunPlan)
    if planned is None or journal.entry(END):
        return False
    is_same = planned.config == config(training, settings) and planned.environment == environment.digest()
    return is_same and prepare_steps.has_planned_signature(planned, training.signature)
