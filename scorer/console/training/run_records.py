"""The records of the topic `<name>.runs`: one record per event of a training run, as JSON.

Every record names its run and the attempt, which is one process that works on the run. Every principal with the right to write
to the topic can write such records, so every text, list and number is bounded.
"""

# Key and retention. The key of a record is `<run>/<attempt>/<event>`, so each event of each attempt has a key of its own. The
# topic is compacted and has no retention by time or size: the history of all runs stays, and compaction removes only the older
# copies of a record that was written twice and the older heartbeats of an attempt. A resumed run repeats events in a new
# attempt; `RunHistory` recognises a repeated event by the run and the event's name, which `event_name` returns.
#
# There is one partition, so the order of the records is the order in which they happened.

from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec
from msgspec import Meta

from model_registry.untrusted_input.json_documents import DocumentDecoder
from scorer.console.training.documents import Count, LogText, Number, Parameters, Sentence, Text, UnixMs

SCHEMA: Final = 1
MAX_RESULT = (
    384 << 10
)  # bytes of a step's result; a larger result is omitted, so that every record fits a topic's default limit
MAX_RECORD = 1 << 20  # bytes
MAX_REASON = 2_000  # characters, as a Sentence
MAX_METRICS = 64  # of one line
MAX_PARAMETERS = 64

NULL = msgspec.Raw(b"null")
RunKey = Annotated[str, Meta(pattern=r"\A[0-9A-Za-z][0-9A-Za-z.-]{0,63}\Z")]
Seconds = Annotated[float, Meta(ge=0, le=1e9)]
Values = Annotated[dict[Text, Number | None], Meta(max_length=MAX_METRICS)]


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    """An event of a run.

    Attributes:
        schema: The version of the schema. New keys may be added without a new version, so readers ignore unknown keys.
        run: The key of the run, which is unique among all runs of a scorer.
        attempt: The process that works on the run; a resumed run has several attempts.
        at_ms: When the event happened, by the clock of the run's host (Unix ms).
    """

    NAME: ClassVar[str] = ""

    schema: Literal[1] = SCHEMA
    run: RunKey
    attempt: RunKey
    at_ms: UnixMs

    @property
    def event_name(self) -> str:
        """The name of the event within its run. If a resumed run repeats an event, the name is the same."""
        return self.NAME

    @property
    def key(self) -> bytes:
        """The key of the Kafka record."""
        return f"{self.run}/{self.attempt}/{self.event_name}".encode()


class RunStarted(RunRecord, frozen=True, kw_only=True, tag="run_started"):
    """An attempt of a run has started on a host.

    Attributes:
        folder: The folder of the run on its host.
        program: The version of the package `scorestream`.
        metric: The metric by which the search compares trials.
    """

    NAME: ClassVar[str] = "started"

    host: Text
    pid: Count = 0
    folder: Annotated[str, Meta(max_length=1_000)] = ""
    program: Text = ""
    python: Text = ""
    recipe: Text = ""
    metric: Text = ""
    seed: Count = 0
    workers: Count = 0
    gpus: Count = 0
    channel: Text = ""


class RunAlive(RunRecord, frozen=True, kw_only=True, tag="run_alive"):
    """The attempt is running. `dropped` is the number of its events that could not be written so far."""

    NAME: ClassVar[str] = "alive"

    dropped: Count = 0


class StepRecord(RunRecord, frozen=True, kw_only=True):
    """An event of a step of the run, such as the step `join`."""

    step: RunKey

    @property
    def event_name(self) -> str:
        return f"step/{self.step}/{self.NAME}"


class StepStarted(StepRecord, frozen=True, kw_only=True, tag="step_started"):
    """A step has started."""

    NAME: ClassVar[str] = "started"


class StepEnded(StepRecord, frozen=True, kw_only=True, tag="step_ended"):
    """A step is complete. `result` is its result as JSON; null if it is larger than MAX_RESULT bytes."""

    NAME: ClassVar[str] = "ended"

    seconds: Seconds
    result: msgspec.Raw = NULL


class StepFailed(StepRecord, frozen=True, kw_only=True, tag="step_failed"):
    """A step has failed."""

    NAME: ClassVar[str] = "failed"

    seconds: Seconds
    reason: Sentence


class TrialRecord(RunRecord, frozen=True, kw_only=True):
    """An event in the training of a trial or, if `final` is True, of the final model.

    `budget` is the number of trees, epochs or other units to which the model is trained.
    """

    trial: Count
    budget: Count
    final: bool = False

    @property
    def event_name(self) -> str:
        return f"{'final' if self.final else f'trial/{self.trial}'}/{self.NAME}/{self.budget}"


class TrialStarted(TrialRecord, frozen=True, kw_only=True, tag="trial_started"):
    """The training of a trial up to a budget has started."""

    NAME: ClassVar[str] = "started"

    parameters: Parameters = {}


class TrialMetrics(TrialRecord, frozen=True, kw_only=True, tag="trial_metrics"):
    """The metric values of a trial at a budget; None for a value that is no finite number."""

    NAME: ClassVar[str] = "metrics"

    values: Values


class TrialEnded(TrialRecord, frozen=True, kw_only=True, tag="trial_ended"):
    """The training of a trial up to a budget has ended. `failure` is empty if it succeeded."""

    NAME: ClassVar[str] = "ended"

    seconds: Seconds
    failure: Sentence = ""
    log_tail: LogText = ""


class RunEnded(RunRecord, frozen=True, kw_only=True, tag="run_ended"):
    """An attempt has ended.

    Attributes:
        outcome: The outcome of the run. If it has none: `failed`, or `stopped` if the attempt ended after a requested step.
        because: The reason, as a sentence.
        exit_code: The exit code of the process.
        log_tail: The end of the log of the attempt.
        dropped: The number of events of the attempt that could not be written.
    """

    NAME: ClassVar[str] = "ended"

    outcome: Text
    because: Sentence = ""
    exit_code: Count = 0
    seconds: Seconds = 0.0
    log_tail: LogText = ""
    dropped: Count = 0


AnyRecord = RunStarted | RunAlive | StepStarted | StepEnded | StepFailed | TrialStarted | TrialMetrics | TrialEnded | RunEnded
_DECODER: DocumentDecoder[Any] = DocumentDecoder[Any](AnyRecord, max_bytes=MAX_RECORD)  # type: ignore[arg-type]


def decode_run_record(value: bytes | None) -> AnyRecord:
    """Decode a record of the topic. Raises UnreadableDocument if it is no event of a run or exceeds a limit."""
    record: AnyRecord = _DECODER.decode(value)
    return record
