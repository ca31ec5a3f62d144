"""Records of training runs, as `TopicEvents` writes them, for tests of their readers."""

import math
from collections.abc import Iterator
from typing import Any

import msgspec

from scorer.console.training.run_history import RunHistory
from scorer.console.training.run_records import (
    AnyRecord,
    RunEnded,
    RunStarted,
    StepEnded,
    StepFailed,
    StepStarted,
    TrialEnded,
    TrialMetrics,
    TrialStarted,
)
from tests.support import trained

BEGAN_MS = 1_772_000_000_000
DIGEST = "sha256:" + "c" * 64


class RecordedEvents:
    """Collects the records of one run, second by second.

    `number` gives the run its key and its start; the version is the one that `trained` gives this number.
    """

    def __init__(self, number: int, attempt: str = "first") -> None:
        self.run = f"20260301T0{number % 10}0000000Z-{number:06x}"
        self.number = number
        self.attempt = attempt
        self.at_ms = BEGAN_MS + number * 86_400_000
        self.records: list[AnyRecord] = []

    @property
    def identity(self) -> dict[str, Any]:
        self.at_ms += 1_000
        return {"run": self.run, "attempt": self.attempt, "at_ms": self.at_ms}

    def start(self) -> None:
        facts: dict[str, Any] = {
            "program": "0.1.0",
            "python": "3.11.9",
            "recipe": "trees",
            "metric": "auc",
            "seed": 2013,
            "workers": 2,
        }
        self.records.append(RunStarted(**self.identity, host="trainer-1", pid=7, folder="/runs/1", **facts))

    def step(self, name: str, result: object, seconds: float = 1.5) -> None:
        self.records.append(StepStarted(**self.identity, step=name))
        raw = msgspec.Raw(msgspec.json.encode(result))
        self.records.append(StepEnded(**self.identity, step=name, seconds=seconds, result=raw))

    def fail(self, step: str, reason: str) -> None:
        self.records.append(StepStarted(**self.identity, step=step))
        self.records.append(StepFailed(**self.identity, step=step, seconds=0.5, reason=reason))
        self.end("failed", reason, "INFO step plan took 0.1 s\nERROR " + reason, 3)

    def join(self) -> None:
        self.step("join", {"run": trained.run_id(self.number), "version": trained.version(self.number), "mature": 10})

    def trials(self, count: int = 6, lines: int = 9) -> None:
        """Begin the step `search`, with one training per trial and metric lines up to a budget of 3 times `lines`."""
        self.records.append(StepStarted(**self.identity, step="search"))
        for trial in range(count):
            parameters = {"learning_rate": 0.01 * (trial + 1), "num_leaves": 15 << trial % 3, "kind": "ab"[trial % 2]}
            self.trial(trial, 3 * lines, parameters)
            for line in range(1, lines + 1):
                auc = 0.9 - 0.2 * math.exp(-line / 3) - 0.004 * (trial - 2) ** 2
                self.line(trial, 3 * line, auc=auc, loss=0.2 + 0.6 * math.exp(-line / 4))
            self.records.append(TrialEnded(**self.identity, trial=trial, budget=3 * lines, seconds=2.5 + trial))

    def trial(self, trial: int, budget: int, parameters: dict[str, Any]) -> None:
        self.records.append(TrialStarted(**self.identity, trial=trial, budget=budget, parameters=parameters))

    def line(self, trial: int, budget: int, **values: float | None) -> None:
        self.records.append(TrialMetrics(**self.identity, trial=trial, budget=budget, values=values))

    def fail_trial(self, trial: int, failure: str, log_tail: str) -> None:
        ended = TrialEnded(**self.identity, trial=trial, budget=27, seconds=1.0, failure=failure, log_tail=log_tail)
        self.records.append(ended)

    def end(self, outcome: str, because: str = "", log_tail: str = "", exit_code: int = 0) -> None:
        ended = RunEnded(**self.identity, outcome=outcome, because=because, exit_code=exit_code, log_tail=log_tail)
        self.records.append(ended)

    def encoded(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the key and the value of each record."""
        for record in self.records:
            yield record.key, msgspec.json.encode(record)


def history(*runs: RecordedEvents, into: RunHistory | None = None) -> RunHistory:
    """Return the history of these runs, each record stored when it happened."""
    folded = into or RunHistory()
    for run in runs:
        for record in run.records:
            folded.add(record, len(msgspec.json.encode(record)), record.at_ms / 1_000, record.at_ms / 1_000)
    return folded


def refused(number: int) -> RecordedEvents:
    """Return a run that was refused by its gate."""
    run = RecordedEvents(number)
    run.start()
    run.step("plan", {"environment": "sha256:" + "e" * 64})
    run.join()
    run.trials()
    run.step("search", trained.search(6), 12.0)
    run.step("push", {"digest": DIGEST})
    matrix = {"labels": trained.LABELS, "counts": [[40, 2], [3, 50]]}
    run.step("evaluate", {"metrics": {"auc": 0.88}, "confusion_matrix": matrix})
    run.step("gate", trained.comparison(number, DIGEST, ("1.0.0", "sha256:" + "b" * 64), change=-0.0061))
    run.end("refused", "rule auc failed", "WARNING the version was refused", 1)
    return run
