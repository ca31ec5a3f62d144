"""The history of training runs, folded from the records of the topic `<name>.runs`. Pure.

The records are untrusted. The history holds a bounded number of bytes. Beyond this limit it removes the oldest runs.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from model_registry.untrusted_input.json_documents import UnreadableDocument, decode
from scorer.console.training.documents import (
    ComparisonDocument,
    EvaluationDocument,
    Parameters,
    SearchDocument,
    Values,
)
from scorer.console.training.run_records import (
    MAX_RESULT,
    AnyRecord,
    RunAlive,
    RunEnded,
    RunStarted,
    StepEnded,
    StepFailed,
    StepRecord,
    StepStarted,
    TrialEnded,
    TrialMetrics,
    TrialRecord,
    TrialStarted,
)
from scorer.console.training.step_documents import EvaluatedDocument, JoinDocument, PushedDocument

HEARTBEAT_SECONDS = 10.0
STALE_SECONDS = 35.0  # three heartbeats, and some time for a slow broker
MAX_RUNS = 2_000
MAX_BYTES = 128 << 20  # of all records
MAX_RUN_BYTES = 16 << 20  # of the records of one run
MAX_TRIALS = 1_024  # of one run
MAX_ATTEMPTS = 100  # of one run: the first one and the newest ones
MAX_STEPS = 64
LOG_LINES = 200  # newest events of a run that are kept as lines

RUNNING = "running"
INTERRUPTED = "interrupted"
FAILED = "failed"
STOPPED = "stopped"
UNENDED = (RUNNING, INTERRUPTED, FAILED, STOPPED)
"""The states of a run without an outcome. The next `scorer train run` continues such a run."""
Document = TypeVar("Document")


@dataclass(slots=True)
class RunAttempt:
    """One process that works on a run. Times are Unix ms by the clock of its host.

    Attributes:
        started: The record of the start; None if it is missing.
        ended: The record of the end; None if the process runs or was killed.
    """

    id: str
    first_ms: int
    last_ms: int
    started: RunStarted | None = None
    ended: RunEnded | None = None
    dropped: int = 0

    @property
    def seconds(self) -> float:
        """How long the process has worked on the run, as far as its records show."""
        shown = max(0, self.last_ms - self.first_ms) / 1_000
        return max(shown, self.ended.seconds) if self.ended else shown


@dataclass(slots=True)
class RecordedStep:
    """A step of a run. `seconds` is None until the step has ended or failed; `failure` is empty unless it failed."""

    step: str
    seconds: float | None = None
    failure: str = ""
    result: bytes = b"null"


@dataclass(slots=True)
class RecordedTrial:
    """A trial of a run, or the training of the final model.

    Attributes:
        points: The metric values by budget. A budget is a number of trees or epochs to which the trial is trained.
        seconds: The training time by budget, from the previous budget to this one.
        running: The budget to which the trial is being trained now; None if it is not being trained.
        failure: Why the trial failed; empty if it did not.
    """

    trial: int
    final: bool
    parameters: Parameters = field(default_factory=dict)
    points: dict[int, Values] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)
    running: int | None = None
    failure: str = ""
    log_tail: str = ""

    @property
    def budget(self) -> int:
        """The largest budget that was reached."""
        return max([*self.points, *self.seconds], default=0)

    @property
    def cost(self) -> float:
        """The training time in seconds."""
        return sum(self.seconds.values())

    def curve(self, metric: str) -> list[tuple[int, float]]:
        """Return the values of a metric by budget, in ascending order."""
        return [(budget, value) for budget, values in sorted(self.points.items()) if (value := values.get(metric)) is not None]


@dataclass(slots=True)
class RecordedRun:
    """A run as its records describe it.

    Attributes:
        last_seen: When the newest record was stored, in Unix seconds.
        log: The newest events: the time of each (Unix ms) and its text.
        left_out: The number of records that exceeded a limit and were ignored.
    """

    key: str
    last_seen: float = 0.0
    attempts: dict[str, RunAttempt] = field(default_factory=dict)
    steps: dict[str, RecordedStep] = field(default_factory=dict)
    trials: dict[tuple[bool, int], RecordedTrial] = field(default_factory=dict)
    log: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=LOG_LINES))
    left_out: int = 0
    weight: int = 0
    _documents: dict[tuple[str, type], object] = field(default_factory=dict)

    @property
    def last_attempt(self) -> RunAttempt | None:
        """The attempt that was started last."""
        return next(reversed(self.attempts.values()), None)

    @property
    def started(self) -> RunStarted | None:
        """The record of the newest start; None without one."""
        return next((each.started for each in reversed(self.attempts.values()) if each.started), None)

    @property
    def ended(self) -> RunEnded | None:
        """The record with which the newest attempt ended; None if that attempt has not ended."""
        return self.last_attempt.ended if self.last_attempt else None

    @property
    def began_ms(self) -> int:
        """When the run began (Unix ms)."""
        return next(iter(self.attempts.values())).first_ms if self.attempts else 0

    @property
    def seconds(self) -> float:
        """The cost of the run: the time of all its attempts, in seconds."""
        return sum(each.seconds for each in self.attempts.values())

    @property
    def trial_seconds(self) -> float:
        """The training time of all trials and of the final model, in seconds; trials may run in parallel."""
        return sum(each.cost for each in self.trials.values())

    @property
    def dropped(self) -> int:
        """The number of events that the run could not write to the topic."""
        return sum(each.dropped for each in self.attempts.values())

    @property
    def because(self) -> str:
        """The reason for the outcome, or for the last failure; empty while the run is running."""
        return self.ended.because if self.ended else ""

    @property
    def log_tail(self) -> str:
        """The end of the log of the last attempt that ended with a log."""
        logs = (each.ended.log_tail for each in reversed(self.attempts.values()) if each.ended)
        return next((log for log in logs if log), "")

    @property
    def step(self) -> str:
        """The name of the step that was started last; empty before the first step."""
        return next(reversed(self.steps), "")

    @property
    def id(self) -> str:
        """The id of the run; empty before the step `join` is complete."""
        joined = self.document("join", JoinDocument)
        return joined.run if joined else ""

    @property
    def version(self) -> str:
        """The name of the version that the run trains; empty before the step `join` is complete."""
        joined = self.document("join", JoinDocument)
        return joined.version if joined else ""

    @property
    def digest(self) -> str:
        """The digest of the version; empty before the step `push` is complete."""
        pushed = self.document("push", PushedDocument)
        return pushed.digest if pushed else ""

    @property
    def search(self) -> SearchDocument | None:
        """The result of the search; None before it is complete."""
        return self.document("search", SearchDocument)

    @property
    def comparison(self) -> ComparisonDocument | None:
        """The result of the validation gate; None before it is complete."""
        return self.document("gate", ComparisonDocument)

    @property
    def evaluation(self) -> EvaluationDocument | None:
        """The result of the evaluation; None before it is complete."""
        evaluated = self.document("evaluate", EvaluatedDocument)
        return evaluated.evaluation if evaluated else None

    @property
    def metric(self) -> str:
        """The metric of the search; empty if unknown."""
        if self.search and self.search.metric:
            return self.search.metric
        return self.started.metric if self.started else ""

    @property
    def metrics(self) -> list[str]:
        """The names of all metrics of the trials; the metric of the search is first."""
        names = dict.fromkeys(name for trial in self.trials.values() for values in trial.points.values() for name in values)
        return sorted(names, key=lambda name: name != self.metric)

    def state(self, now: float) -> str:
        """Return the outcome of the run, or else one of UNENDED. `now` is in Unix seconds."""
        if self.ended:
            return self.ended.outcome
        return RUNNING if now - self.last_seen < STALE_SECONDS else INTERRUPTED

    def document(self, step: str, type_: type[Document]) -> Document | None:
        """Return the result of a step as a document; None if it is missing or cannot be decoded as `type_`."""
        recorded = self.steps.get(step)
        if recorded is None or recorded.result == b"null":
            return None
        if (step, type_) not in self._documents:
            try:
                self._documents[step, type_] = decode(recorded.result, type_, max_bytes=MAX_RESULT)
            except UnreadableDocument:
                self._documents[step, type_] = None
        document = self._documents[step, type_]
        return document if isinstance(document, type_) else None

    def add(self, record: AnyRecord, size: int, max_bytes: int = MAX_RUN_BYTES) -> None:
        """Add a record of this run. Beyond a size limit the record is counted in `left_out` and otherwise ignored."""
        attempt = self.attempts.setdefault(record.attempt, RunAttempt(record.attempt, record.at_ms, record.at_ms))
        attempt.last_ms = max(attempt.last_ms, record.at_ms)
        if len(self.attempts) > MAX_ATTEMPTS:
            del self.attempts[list(self.attempts)[1]]
            self.left_out += 1
        match record:
            case RunAlive():
                attempt.dropped = max(attempt.dropped, record.dropped)
                return
            case RunStarted():
                attempt.started = record
                self._note(
                    record.at_ms,
                    f"run started on {record.host}" if len(self.attempts) == 1 else f"run resumed on {record.host}",
                )
            case RunEnded():
                attempt.ended = record
                attempt.dropped = max(attempt.dropped, record.dropped)
                self._note(record.at_ms, f"run ended: {record.outcome}{': ' if record.because else ''}{record.because}")
            case _ if self.weight + size > max_bytes:
                self.left_out += 1
                return
            case StepRecord():
                self._add_step(record)
            case TrialRecord():
                self._add_trial(record)
        self.weight += size

    def _add_step(self, record: StepStarted | StepEnded | StepFailed) -> None:
        if record.step not in self.steps and len(self.steps) >= MAX_STEPS:
            self.left_out += 1
            return
        if isinstance(record, StepStarted):
            self.steps.pop(record.step, None)  # the newest started step is the last one
            self.steps[record.step] = RecordedStep(record.step)
            self._note(record.at_ms, f"step {record.step} started")
            return
        result = bytes(record.result) if isinstance(record, StepEnded) else b"null"
        failure = record.reason if isinstance(record, StepFailed) else ""
        step = RecordedStep(record.step, record.seconds, failure, result)
        if self.steps.get(record.step) == step:
            return  # a resumed run reports its completed steps again
        self.steps[record.step] = step
        self._documents = {key: document for key, document in self._documents.items() if key[0] != record.step}
        self._note(record.at_ms, f"step {record.step} {f'failed: {failure}' if failure else f'took {record.seconds:.1f} s'}")

    def _add_trial(self, record: TrialStarted | TrialMetrics | TrialEnded) -> None:
        place = (record.final, record.trial)
        trial = self.trials.get(place)
        if trial is None:
            if len(self.trials) >= MAX_TRIALS:
                self.left_out += 1
                return
            trial = self.trials[place] = RecordedTrial(record.trial, record.final)
        name = "final training" if record.final else f"trial {record.trial}"
        match record:
            case TrialStarted():
                trial.parameters = record.parameters
                trial.running = record.budget
                trial.failure = trial.log_tail = ""
                self._note(record.at_ms, f"{name} started up to {record.budget}")
            case TrialMetrics():
                trial.points[record.budget] = record.values
            case TrialEnded():
                trial.seconds[record.budget] = record.seconds
                trial.running = None
                trial.failure = record.failure
                trial.log_tail = record.log_tail
                result = f"failed: {record.failure}" if record.failure else f"took {record.seconds:.1f} s"
                self._note(record.at_ms, f"{name} up to {record.budget} {result}")

    def _note(self, at_ms: int, text: str) -> None:
        self.log.append((at_ms, text))


@dataclass(slots=True)
class RunHistory:
    """The runs of a topic by key, in the order of their first records.

    Attributes:
        forgotten: The number of older runs that were removed to limit the memory.
        max_bytes: The maximum size of all records in bytes.
        max_run_bytes: The maximum size of the records of one run in bytes.
    """

    max_bytes: int = MAX_BYTES
    max_run_bytes: int = MAX_RUN_BYTES
    runs: dict[str, RecordedRun] = field(default_factory=dict)
    forgotten: int = 0
    _weight: int = 0

    def add(self, record: AnyRecord, size: int, stored: float, now: float) -> None:
        """Add a record.

        Args:
            record: The record.
            size: Its size in bytes.
            stored: When the broker stored it, in Unix seconds.
            now: The current time in Unix seconds; a later `stored` counts as `now`.
        """
        run = self.runs.setdefault(record.run, RecordedRun(record.run))
        before = run.weight
        run.last_seen = max(run.last_seen, min(stored, now))
        run.add(record, size, self.max_run_bytes)
        self._weight += run.weight - before
        while len(self.runs) > MAX_RUNS or (self._weight > self.max_bytes and len(self.runs) > 1):
            oldest = min((each for each in self.runs.values() if each is not run), key=lambda each: each.last_seen)
            self._weight -= oldest.weight
            del self.runs[oldest.key]
            self.forgotten += 1

    def running(self, now: float) -> frozenset[str]:
        """Return the keys of the runs that are running at `now` (Unix seconds)."""
        return frozenset(run.key for run in self.runs.values() if run.state(now) == RUNNING)

    def newest_first(self) -> list[RecordedRun]:
        """Return the runs, sorted from the newest to the oldest start."""
        return sorted(self.runs.values(), key=lambda run: run.began_ms, reverse=True)

    def find(self, name: str | None) -> Sequence[RecordedRun]:
        """Return the runs with this key, id or version, newest first; all runs for None."""
        return [run for run in self.newest_first() if name is None or name in (run.key, run.id, run.version)]
