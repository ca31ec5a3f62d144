"""Plays a round on a stage: load, faults at their seconds, rest, and the count by two auditors."""

import json
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from confluent_kafka import KafkaException

from tests.chaos.plan import Round, Step
from tests.chaos.result import Result
from tests.chaos.watch import Watch
from tests.support.processes import command
from tests.support.waiting import within

DRAIN_SECONDS = 120.0
AUDIT_SECONDS = 300.0
PATIENCE_SECONDS = 40.0  # for a step whose time has come and that must wait for a process
LONGEST_SECONDS = 90.0  # for all to settle, after the load's seconds

Outcome = TypeVar("Outcome", bound=Result)
Stated = TypeVar("Stated", bound=Result, contravariant=True)


class Stage(Protocol[Stated]):
    """Where a round is played: processes, load and a reader."""

    folder: Path
    watch: Watch
    verbs: Mapping[str, Callable[[str], object]]
    """What a step may ask for."""
    rest_seconds: float
    """How long the load goes on after the last step, at least."""

    @property
    def strays(self) -> int:
        """EndTxn requests that were delivered late so far, in all rounds."""

    @property
    def settled(self) -> bool:
        """Whether nothing is still to come of the steps that were done."""
        return True

    def begin(self) -> None:
        """Start processes, then, when they work, the load. Raises RuntimeError where they do not."""

    def may(self, _: Step) -> bool:
        return True

    def tend(self, now: float) -> None:
        """Start again what has ended and is wanted."""

    def heal(self) -> None:
        """End every fault, and the load: the round must come to rest from here on."""

    def count(self, result: Stated) -> None:
        """Wait until all is answered, and count."""

    def close(self, keep: bool) -> None:
        """End all processes; `keep` leaves the folder with their logs."""

    def note(self, result: Stated) -> None:
        """Note what was written, and how processes ended."""


def play(stage: Stage[Outcome], played: Round, result: Outcome) -> Outcome:
    began, strays = time.monotonic(), stage.strays
    try:
        stage.watch.start()
        stage.begin()
        _act(stage, played)
        stage.heal()
        stage.count(result)
    except (AssertionError, KafkaException, OSError, RuntimeError, subprocess.SubprocessError) as error:
        result.trouble = result.trouble or f"{type(error).__name__}: {error}"
    finally:
        stage.close(keep=not result.clean)
        stage.note(result)
    result.strays = stage.strays - strays
    result.stall_seconds = round(stage.watch.stalls.longest, 2)
    result.seconds = round(time.monotonic() - began, 1)
    if not result.clean:
        result.logs = str(stage.folder)
        result.trouble = f"{result.trouble or 'damage'}; logs in {stage.folder}"
    return result


def drained(stage: Stage[Outcome], count: int, result: Outcome) -> None:
    """Wait until the reader has seen so many records; if it does not, that is the round's trouble."""
    if not within(lambda: stage.watch.seen >= count, DRAIN_SECONDS, stage.tend):
        result.trouble = f"only {stage.watch.seen} of {count} are there {DRAIN_SECONDS:.0f} s after the faults"


def audited(result: Result, names: Sequence[str], *arguments: str) -> None:
    """Let `publisher audit` count too; what it finds of these faults."""
    done = subprocess.run(
        [command("publisher"), "audit", *arguments, "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=AUDIT_SECONDS,
    )
    if done.returncode not in (0, 1):
        result.trouble = f"publisher audit ended with {done.returncode}: {done.stderr.strip()}"
        return
    report: dict[str, Any] = json.loads(done.stdout)
    result.audited = {name: report[name] for name in names if name in report}


def _act(stage: Stage[Outcome], played: Round) -> None:
    """Do the steps at their seconds, until the stage has settled after the last one."""
    began, steps = time.monotonic(), list(played.steps)
    last = began - stage.rest_seconds

    def act(now: float) -> None:
        nonlocal last
        while steps and now - began >= steps[0].at and (stage.may(steps[0]) or now - began > PATIENCE_SECONDS):
            step = steps.pop(0)
            stage.verbs[step.verb](step.argument)
            last = now
        stage.tend(now)

    def over() -> bool:
        return not steps and stage.settled and time.monotonic() > max(began + played.seconds, last + stage.rest_seconds)

    latest = max([played.seconds, *(step.at for step in played.steps)])
    within(over, latest + LONGEST_SECONDS, act)
