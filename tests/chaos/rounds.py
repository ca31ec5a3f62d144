"""Play a round on a stage: load, faults at their times, recovery, and the count by two auditors."""

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
STEP_WAIT_SECONDS = 40.0  # for a step that is due but must wait for a process
SETTLE_SECONDS = 90.0  # until the round has settled, after the seconds of load

Outcome = TypeVar("Outcome", bound=Result)
Stated = TypeVar("Stated", bound=Result, contravariant=True)


class Stage(Protocol[Stated]):
    """Where a round is played: processes, load and a reader."""

    folder: Path
    watch: Watch
    verbs: Mapping[str, Callable[[str], object]]
    """The actions of steps, by verb."""
    rest_seconds: float
    """The shortest time for which the load continues after the last step."""

    @property
    def strays(self) -> int:
        """EndTxn requests that were delivered late so far, in all rounds."""

    @property
    def settled(self) -> bool:
        """Whether all steps have taken effect."""
        return True

    def begin(self) -> None:
        """Start the processes and, when they work, the load. Raises RuntimeError if they do not."""

    def may(self, _: Step) -> bool:
        return True

    def tend(self, now: float) -> None:
        """Restart ended processes that are to run."""

    def heal(self) -> None:
        """End every fault and the load, so that the round settles."""

    def count(self, result: Stated) -> None:
        """Wait until all events have answers, and count."""

    def close(self, keep: bool) -> None:
        """End all processes; `keep` leaves the folder with their logs."""

    def note(self, result: Stated) -> None:
        """Record the number of written events, and how processes ended."""


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
    """Wait until the reader has received `count` records; a timeout is noted as the round's trouble."""
    if not within(lambda: stage.watch.seen >= count, DRAIN_SECONDS, stage.tend):
        result.trouble = f"only {stage.watch.seen} of {count} arrived within {DRAIN_SECONDS:.0f} s after the faults"


def audited(result: Result, names: Sequence[str], *arguments: str) -> None:
    """Run `publisher audit`, and note its counts of these faults."""
    completed = subprocess.run(
        [command("publisher"), "audit", *arguments, "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=AUDIT_SECONDS,
    )
    if completed.returncode not in (0, 1):
        result.trouble = f"publisher audit ended with {completed.returncode}: {completed.stderr.strip()}"
        return
    report: dict[str, Any] = json.loads(completed.stdout)
    result.audited = {name: report[name] for name in names if name in report}


def _act(stage: Stage[Outcome], played: Round) -> None:
    """Run the steps at their times, until the stage has settled after the last one."""
    began, steps = time.monotonic(), list(played.steps)
    last = began - stage.rest_seconds

    def act(now: float) -> None:
        nonlocal last
        while steps and now - began >= steps[0].at and (stage.may(steps[0]) or now - began > STEP_WAIT_SECONDS):
            step = steps.pop(0)
            stage.verbs[step.verb](step.argument)
            last = now
        stage.tend(now)

    def ended() -> bool:
        return not steps and stage.settled and time.monotonic() > max(began + played.seconds, last + stage.rest_seconds)

    latest = max([played.seconds, *(step.at for step in played.steps)])
    within(ended, latest + SETTLE_SECONDS, act)
