"""Processes that train and score trials. A process that dies is replaced, and its trial is repeated.

No process outlives its parent.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np

from model_registry.package.signature import Signature
from publisher.errors import REFUSED, Fatal
from scorer.evaluation.quality_metrics import auc
from training.recipes import Params, Recipe
from training.search import shared_rows

ATTEMPTS = 3  # the search fails after this many processes have died on the same task


@dataclass(frozen=True, slots=True)
class Bench:
    """The inputs of all trials: the folders with the rows (see `shared_rows`), the signature, the recipe and the seed."""

    training: Path
    validation: Path
    signature: Signature
    recipe: Recipe
    seed: int


@dataclass(frozen=True, slots=True)
class Task:
    """A trial to train up to a budget, from the checkpoints in its folder."""

    trial: int
    parameters: Params
    budget: int
    folder: Path


class Workers:
    """A pool of up to `count` processes that train and score trials.

    A process is started when a task waits and no process is idle. All processes are killed when the context exits.
    """

    def __init__(self, bench: Bench, count: int) -> None:
        self._bench = bench
        self._count = count
        self._idle: list[_TrialProcess] = []

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._idle:
            worker.stop()

    def scores(self, tasks: Sequence[Task], started: Callable[[Task], None] = lambda _: None) -> Iterator[tuple[Task, float]]:
        """Train and score the tasks; yield each task with its score as soon as the task is complete.

        `started` is called with a task when a process begins or repeats it.

        Raises:
            Fatal: The recipe failed; exit code 3 if `ATTEMPTS` processes died with the same task.
        """
        waiting = list(reversed(tasks))
        attempts = dict.fromkeys((task.trial for task in tasks), 0)
        busy: dict[Any, tuple[_TrialProcess, Task]] = {}
        try:
            while waiting or busy:
                while waiting and len(busy) < self._count:
                    worker = self._idle.pop() if self._idle else _TrialProcess(self._bench)
                    task = waiting.pop()
                    busy[worker.connection] = worker, task
                    started(task)
                    worker.give(task)
                for ready in wait(list(busy)):
                    worker, task = busy.pop(ready)
                    score = worker.score()
                    if score is not None:
                        self._idle.append(worker)
                        yield task, score
                        continue
                    attempts[task.trial] += 1
                    if attempts[task.trial] == ATTEMPTS:
                        _died(task, worker.process)
                    waiting.append(task)
        finally:
            for worker, _ in busy.values():
                worker.stop()


def _died(task: Task, process: BaseProcess) -> None:
    code = process.exitcode or 0
    outcome = f"signal {-code}" if code < 0 else f"exit code {code}"
    hint = "run again: the completed trials are kept; if the memory was exhausted, lower the setting workers first"
    raise Fatal(
        f"the process of trial {task.trial} died {ATTEMPTS} times before {task.budget} trees or epochs, "
        f"the last time with {outcome}",
        hint,
        REFUSED,
    )


class _TrialProcess:
    """A child process that trains and scores one task at a time, and the parent's end of the pipe to the child."""

    def __init__(self, bench: Bench) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__, type(bench.recipe).__module__])  # imported once, by the fork server
        self.connection, child_end = context.Pipe()
        self.process = context.Process(target=_serve, args=(child_end, bench), daemon=True)
        self.process.start()
        child_end.close()

    def give(self, task: Task) -> None:
        with contextlib.suppress(OSError):  # the process has died: `score` then returns None
            self.connection.send(task)

    def score(self) -> float | None:
        """Wait for the score of the current task; return None if the process died. Raises Fatal if the recipe failed."""
        try:
            reply = self.connection.recv()
        except (EOFError, OSError):
            self.stop()
            return None
        if isinstance(reply, float):
            return reply
        self.stop()
        raise Fatal(*reply)

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


def _serve(connection: Connection, bench: Bench) -> None:
    """Train and score the tasks that the parent sends, until the pipe ends. The parent alone handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    training = shared_rows.read(bench.training)
    validation = shared_rows.read(bench.validation)
    while True:
        try:
            task: Task = connection.recv()
        except EOFError:
            return
        try:
            fitted = bench.recipe.fit(
                training, bench.signature, task.parameters, task.budget, task.folder, seed=bench.seed, workers=1
            )
            score = auc(np.asarray(fitted.scores(validation.tensors), np.float64), validation.outcomes == 1)
        except Fatal as error:
            connection.send((str(error), error.hint, error.exit_code))
        else:
            alone = ("the validation part has one class only", "make snapshot.validation longer", REFUSED)
            connection.send(alone if score is None else score)


def _end_with_parent() -> None:
    """Wait for the end of the parent process, then end this process, even during a training."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
