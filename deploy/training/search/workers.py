"""Run trials in parallel: start their processes, follow their metrics, and read the results.

A process that breaks the file contract (`training.recipes.contract`) is ended. A trial that fails does not affect the others.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Protocol

import msgspec

from model_registry.package.signature import Signature
from training.recipes import BuiltIn, Params, contract, own
from training.recipes.contract import ContractViolation, Goal, Resources
from training.search.trial_process import BuiltInProcess, CommandProcess, ProcessDied, TrialProcess
from training.settings import RecipeSection, written
from training.snapshot.target import Target

ATTEMPTS = 3  # a trial of a built-in recipe fails after this many of its processes have died
POLL_SECONDS = 0.05
SPACE_SECONDS = 1.0  # between two measurements of a trial's folder


class TrialEvents(Protocol):
    """Receives the events of trials; `training.runs_topic.run_events.RunEvents` describes the calls."""

    def trial_started(self, trial: int, budget: int, parameters: Mapping[str, Any], *, final: bool = False) -> None: ...

    def metrics(self, trial: int, budget: int, values: Mapping[str, float], *, final: bool = False) -> None: ...

    def trial_ended(
        self, trial: int, budget: int, seconds: float, failure: str, log_tail: str, *, final: bool = False
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class Bench:
    """The inputs that all trials of a search, or of a final training, share.

    Attributes:
        rows: The folder with the Parquet files of the rows.
        recipe: The built-in recipe; for a command, the section `recipe` of the settings.
        code: The folder with the copied code of a command.
        resources: The resources of each trial.
        launched: Whether `recipe.launcher` starts the command.
        final: Whether this is the training of the final model.
    """

    rows: Path
    signature: Signature
    target: Target
    recipe: BuiltIn | RecipeSection
    code: Path
    seed: int
    metric: str
    goal: Goal
    resources: Resources = field(default_factory=Resources)
    launched: bool = False
    final: bool = False


@dataclass(frozen=True, slots=True)
class Task:
    """A trial to train up to a budget, from the checkpoints in its folder."""

    trial: int
    parameters: Params
    budget: int
    folder: Path


class TrialResult(msgspec.Struct, frozen=True):
    """The result of a trial at a budget.

    Attributes:
        score: The value of the metric; None if the trial failed, or if a final training wrote no metrics.
        reached: The budget at which the recipe stopped; at most the budget of the trial.
        failure: The reason of the failure; empty if the trial succeeded.
        log: The end of the log of a failed trial.
    """

    score: float | None
    reached: int
    failure: str = ""
    log: str = ""


class Workers:
    """Trains up to `count` trials at a time. All processes end when the `with` block ends.

    A process of a built-in recipe trains one trial after another. Use an instance in one thread. This thread must live as long
    as the instance, because the kernel ends a command when the thread that started it ends.
    """

    def __init__(self, bench: Bench, count: int, events: TrialEvents) -> None:
        self._bench = bench
        self._count = count
        self._events = events
        self._idle: list[BuiltInProcess] = []
        self._busy: list[_Attempt] = []

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        for attempt in self._busy:
            attempt.process.stop()
        for process in self._idle:
            process.stop()
        self._busy = []
        self._idle = []

    def results(self, tasks: Sequence[Task]) -> Iterator[tuple[Task, TrialResult]]:
        """Train the tasks; yield each task with its result as soon as it has ended.

        Raises:
            Fatal: Exit code 2 if a built-in recipe rejects the signature or parameters; 4 if its processes failed.
            OSError: The folder of a trial cannot be written.
        """
        waiting = list(reversed(tasks))
        deaths = dict.fromkeys((task.trial for task in tasks), 0)
        while waiting or self._busy:
            while waiting and len(self._busy) < self._count:
                self._busy.append(self._start(waiting.pop()))
            wait([attempt.process.handle for attempt in self._busy if attempt.process.handle], self._pause())
            for attempt in list(self._busy):
                try:
                    result = attempt.result(self._events)
                except ProcessDied as death:
                    self._busy.remove(attempt)
                    deaths[attempt.task.trial] += 1
                    if deaths[attempt.task.trial] < ATTEMPTS:
                        waiting.append(attempt.task)
                        continue
                    result = attempt.failed(f"{death}, {ATTEMPTS} times")
                else:
                    if result is None:
                        continue
                    self._busy.remove(attempt)
                    if isinstance(attempt.process, BuiltInProcess) and attempt.process.alive:
                        self._idle.append(attempt.process)
                self._report(attempt, result)
                yield attempt.task, result

    def _pause(self) -> float:
        return POLL_SECONDS if any(attempt.process.handle is None for attempt in self._busy) else 1.0

    def _start(self, task: Task) -> "_Attempt":
        bench = self._bench
        recipe = bench.recipe
        slot = next(number for number in range(self._count) if number not in {busy.slot for busy in self._busy})
        deadline = recipe.deadline / 1_000 if isinstance(recipe, RecipeSection) else None
        at = datetime.now(UTC) + timedelta(seconds=deadline) if deadline else None
        trial = contract.Trial(
            task.trial,
            task.budget,
            bench.final,
            bench.seed,
            bench.metric,
            bench.goal,
            at.isoformat(timespec="seconds").replace("+00:00", "Z") if at else None,
            bench.target,
        )
        contract.write_inputs(task.folder, bench.rows, bench.signature, task.parameters, trial, bench.resources)
        if bench.final:
            contract.remove_models(task.folder)
        metrics = _followed(task)
        self._events.trial_started(task.trial, task.budget, task.parameters, final=bench.final)
        process: TrialProcess
        if isinstance(recipe, RecipeSection):
            process = self._command(recipe, task, slot)
        else:
            process = self._idle.pop() if self._idle else BuiltInProcess(recipe)
            process.start(task.folder)
        return _Attempt(bench, task, process, metrics, slot, deadline)

    def _command(self, recipe: RecipeSection, task: Task, slot: int) -> CommandProcess:
        resources = self._bench.resources
        processes = (resources.gpus or resources.workers) if self._bench.launched else 0
        gpus = range(slot, slot + 1) if resources.gpus and not self._bench.final else None
        command = own.command(recipe, self._bench.code, processes)
        return CommandProcess(command, own.environment(recipe, os.environ, gpus), task.folder, recipe.space)

    def _report(self, attempt: "_Attempt", result: TrialResult) -> None:
        task = attempt.task
        seconds = time.monotonic() - attempt.began
        self._events.trial_ended(task.trial, task.budget, seconds, result.failure, result.log, final=self._bench.final)


def _followed(task: Task) -> contract.MetricsTail:
    """Open the metrics of a trial, to read only further lines. If the existing file is not valid, it is removed first."""
    try:
        return contract.MetricsTail(task.folder, task.budget)
    except ContractViolation:
        contract.remove_metrics(task.folder)
        return contract.MetricsTail(task.folder, task.budget)


class _Attempt:
    """One start of a trial: its process, and the metrics that the process writes."""

    def __init__(
        self,
        bench: Bench,
        task: Task,
        process: TrialProcess,
        metrics: contract.MetricsTail,
        slot: int,
        deadline: float | None,
    ) -> None:
        self.task = task
        self.process = process
        self.slot = slot
        self.began = time.monotonic()
        self._bench = bench
        self._metrics = metrics
        self._deadline = deadline
        self._measured = self.began

    def result(self, events: TrialEvents) -> TrialResult | None:
        """Return the result if the trial has ended, else None. New metrics are reported to `events`.

        Raises ProcessDied, Fatal.
        """
        outcome = self.process.ended()
        try:
            for line in self._metrics.new_lines(ended=outcome is not None):
                events.metrics(self.task.trial, line.budget, line.values, final=self._bench.final)
            self._check_limits(ended=outcome is not None)
            if outcome is None:
                return None
            if outcome:
                raise ContractViolation(outcome)
            return self._succeeded()
        except ContractViolation as violation:
            if outcome is None:
                self.process.stop()
            return self.failed(str(violation))

    def failed(self, reason: str) -> TrialResult:
        """Return the result of a failed trial. Its checkpoint and model are removed, unless this is a final training."""
        log = contract.log_tail(self.task.folder)
        if not self._bench.final:
            contract.remove_outputs(self.task.folder)
        return TrialResult(None, self.task.budget, reason, log)

    def _check_limits(self, *, ended: bool) -> None:
        """Raise ContractViolation if a command has reached its deadline or the limit of its files."""
        recipe = self._bench.recipe
        if not isinstance(recipe, RecipeSection):
            return
        now = time.monotonic()
        if ended or now - self._measured >= SPACE_SECONDS:
            self._measured = now
            used = contract.size(self.task.folder)
            if used >= recipe.space:
                raise ContractViolation(f"it wrote {used:,} bytes of files; the limit is {recipe.space:,} (recipe.space)")
        if not ended and self._deadline and now - self.began > self._deadline:
            raise ContractViolation(f"it did not end within {written(recipe.deadline)} (recipe.deadline)")

    def _succeeded(self) -> TrialResult:
        """Check the outputs of a recipe that ended with exit code 0. Raises ContractViolation."""
        task = self.task
        if self._bench.final:
            contract.check_model(task.folder)
            return TrialResult(None, task.budget)
        reached, score = self._metrics.score(self._bench.metric)
        return TrialResult(score, reached)
