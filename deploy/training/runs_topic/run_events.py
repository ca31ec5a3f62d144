"""The events of a run, as its steps and trials report them while they happen. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class RunDescription:
    """The facts about a run and its process, as reported when the process starts.

    Attributes:
        folder: The folder of the run on this host.
        metric: The metric by which the search compares trials; empty for the default of the target.
    """

    folder: str
    recipe: str
    metric: str
    seed: int
    workers: int
    gpus: int
    channel: str


class RunEvents(Protocol):
    """Receives the events of one run. A call never raises, never waits longer than a second, and may come from any thread."""

    def run_started(self, description: RunDescription) -> None:
        """Report that a process begins or continues the run. This is the first event of the process."""

    def run_ended(self, outcome: str, because: str, exit_code: int, log_tail: str) -> None:
        """Report that the process ends the run. This is the last event of the process.

        `outcome` is the outcome of the run, `failed` after an error, or `stopped` if the run stopped after a requested step.
        """

    def step_started(self, step: str) -> None:
        """Report the start of a step."""

    def step_ended(self, step: str, seconds: float, result: object) -> None:
        """Report the end of a step with its duration and its result."""

    def step_failed(self, step: str, seconds: float, reason: str) -> None:
        """Report the failure of a step with its reason."""

    def trial_started(self, trial: int, budget: int, parameters: Mapping[str, Any], *, final: bool = False) -> None:
        """Report the start of a trial up to a budget; `final` is the training of the final model."""

    def metrics(self, trial: int, budget: int, values: Mapping[str, float], *, final: bool = False) -> None:
        """Report the metric values of a trial at a budget: one line of its `metrics.jsonl`."""

    def trial_ended(self, trial: int, budget: int, seconds: float, failure: str, log_tail: str, *, final: bool = False) -> None:
        """Report the end of a trial. `failure` is empty if it succeeded; `log_tail` is the end of its log."""


class NoEvents:
    """Discards all events (implements `RunEvents`)."""

    def run_started(self, description: RunDescription) -> None: ...

    def run_ended(self, outcome: str, because: str, exit_code: int, log_tail: str) -> None: ...

    def step_started(self, step: str) -> None: ...

    def step_ended(self, step: str, seconds: float, result: object) -> None: ...

    def step_failed(self, step: str, seconds: float, reason: str) -> None: ...

    def trial_started(self, trial: int, budget: int, parameters: Mapping[str, Any], *, final: bool = False) -> None: ...

    def metrics(self, trial: int, budget: int, values: Mapping[str, float], *, final: bool = False) -> None: ...

    def trial_ended(
        self, trial: int, budget: int, seconds: float, failure: str, log_tail: str, *, final: bool = False
    ) -> None: ...
