"""The writer of the topic `<name>.runs`: it publishes the events of one run in the background while they happen.

An unavailable broker neither stops nor slows a run. Events wait in a bounded queue. An event that does not fit, or that the
broker rejects, is counted as dropped.
"""

import logging
import math
import os
import platform
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message

from model_registry import atomic_files
from model_registry.redaction import redacted
from publisher.kafka import clients as kafka
from scorer.console.training.documents import LARGEST, MAX_LOG
from scorer.console.training.run_history import HEARTBEAT_SECONDS
from scorer.console.training.run_records import (
    MAX_METRICS,
    MAX_PARAMETERS,
    MAX_REASON,
    MAX_RESULT,
    NULL,
    AnyRecord,
    RunAlive,
    RunEnded,
    RunStarted,
    StepEnded,
    StepFailed,
    StepStarted,
    TrialEnded,
    TrialMetrics,
    TrialStarted,
)
from scorer.settings import Settings
from training.runs_topic.run_events import RunDescription

KEY_FILE = "run.key"
DENSE_LINES = 500  # metric lines of a trial that are all published; then every second of twice as many, and so on
QUEUED_EVENTS = 20_000
QUEUED_KIBIBYTES = 32_768
MISSING_TOPIC_MS = 5_000  # after this time, events for a topic that does not exist are dropped
POLL_SECONDS = 0.2
FLUSH_SECONDS = 5.0  # at the end of a run, for the events that are still queued
MAX_TEXT = 200  # characters of a name or a parameter's value
LARGEST_NUMBER = 1e15
log = logging.getLogger(__name__)


class EventProducer(Protocol):
    """The calls of a Kafka producer that the writer needs. All calls may come from any thread."""

    def produce(
        self, topic: str, value: bytes, key: bytes, *, on_delivery: Callable[[KafkaError | None, Message], None]
    ) -> None:
        """Queue a record. Raises BufferError if the queue is full, KafkaException after a fatal error of the producer."""

    def poll(self, timeout: float, /) -> int:
        """Wait up to `timeout` seconds, and call `on_delivery` for the records whose outcome is known."""

    def flush(self, timeout: float, /) -> int:
        """Wait up to `timeout` seconds for all outcomes; return the number of records that are still queued."""


def run_key(folder: Path) -> str:
    """Return the key of the run in this folder: its name and a random suffix, stored in the folder at the first call.

    Two runs of one scorer never have the same key, even if they begin in the same millisecond on two hosts.
    """
    path = folder / KEY_FILE
    try:
        return path.read_text().strip()
    except OSError:
        key = f"{folder.name[:40]}-{secrets.token_hex(3)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        atomic_files.replace(path, [key.encode()])
    except OSError:
        log.warning("%s cannot be written: a resumed run is shown as another run", path)
    return key


class TopicEvents:
    """Publishes the events of one process of a run (implements `RunEvents`). Use it as a context manager.

    The exit waits up to FLUSH_SECONDS for the events that are still queued, and logs how many were dropped.
    """

    def __init__(
        self,
        producer: EventProducer,
        topic: str,
        run: str,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._identity: dict[str, Any] = {"run": run, "attempt": secrets.token_hex(4)}
        self._clock = clock
        self._monotonic = monotonic
        self._begin = monotonic()
        self._beat = self._begin
        self._lines: dict[tuple[bool, int], int] = {}
        self._thinned: dict[tuple[bool, int], TrialMetrics] = {}
        self._reasons: set[str] = set()
        self.dropped = 0
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="run-events", daemon=True)

    def __enter__(self) -> "TopicEvents":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join(2 * POLL_SECONDS + 1)
        self.dropped += self._producer.flush(FLUSH_SECONDS)
        if self.dropped:
            log.warning(
                "%d events of the run were not written to %s; its figures there are incomplete", self.dropped, self._topic
            )

    def run_started(self, description: RunDescription) -> None:
        self._publish(
            RunStarted(
                **self._now(),
                host=socket.gethostname()[:MAX_TEXT],
                pid=os.getpid(),
                folder=_text(description.folder)[:1_000],
                program=version("scorestream"),
                python=platform.python_version(),
                recipe=_text(description.recipe)[:MAX_TEXT],
                metric=_text(description.metric)[:MAX_TEXT],
                seed=description.seed,
                workers=description.workers,
                gpus=description.gpus,
                channel=_text(description.channel)[:MAX_TEXT],
            )
        )

    def run_ended(self, outcome: str, because: str, exit_code: int, log_tail: str) -> None:
        seconds = self._monotonic() - self._begin
        self._publish(
            RunEnded(
                **self._now(),
                outcome=outcome,
                because=_text(because)[:MAX_REASON],
                exit_code=exit_code,
                seconds=round(seconds, 3),
                log_tail=_text(log_tail)[-MAX_LOG:],
                dropped=self.dropped,
            )
        )

    def step_started(self, step: str) -> None:
        self._publish(StepStarted(**self._now(), step=step))

    def step_ended(self, step: str, seconds: float, result: object) -> None:
        encoded = NULL
        try:
            # The result of a repeated step is the indented text of the journal.
            encoded = msgspec.Raw(msgspec.json.format(msgspec.json.encode(result), indent=-1))
        except UnicodeEncodeError as error:
            self._drop(f"the result of the step {step} cannot be encoded: {error.reason}")
        small = len(bytes(encoded)) <= MAX_RESULT
        self._publish(StepEnded(**self._now(), step=step, seconds=round(seconds, 3), result=encoded if small else NULL))

    def step_failed(self, step: str, seconds: float, reason: str) -> None:
        self._publish(StepFailed(**self._now(), step=step, seconds=round(seconds, 3), reason=_text(reason)[:MAX_REASON]))

    def trial_started(self, trial: int, budget: int, parameters: Mapping[str, Any], *, final: bool = False) -> None:
        shown = {_text(name)[:MAX_TEXT]: _plain(value) for name, value in list(parameters.items())[:MAX_PARAMETERS]}
        self._publish(TrialStarted(**self._now(), trial=trial, budget=budget, final=final, parameters=shown))

    def metrics(self, trial: int, budget: int, values: Mapping[str, float], *, final: bool = False) -> None:
        """Report the metric values of a trial at a budget.

        After DENSE_LINES lines of a trial, fewer and fewer of its lines are published, so that a recipe that writes a line per
        batch does not fill the topic. The last line of a trial is always published.
        """
        shown = {_text(name)[:MAX_TEXT]: _finite(value) for name, value in list(values.items())[:MAX_METRICS]}
        record = TrialMetrics(**self._now(), trial=trial, budget=budget, final=final, values=shown)
        place = (final, trial)
        with self._lock:
            count = self._lines[place] = self._lines.get(place, 0) + 1
            wanted = count % _stride(count) == 0
            if wanted:
                self._thinned.pop(place, None)
            else:
                self._thinned[place] = record
        if wanted:
            self._publish(record)

    def trial_ended(self, trial: int, budget: int, seconds: float, failure: str, log_tail: str, *, final: bool = False) -> None:
        with self._lock:
            last = self._thinned.pop((final, trial), None)
        if last is not None:
            self._publish(last)
        self._publish(
            TrialEnded(
                **self._now(),
                trial=trial,
                budget=budget,
                final=final,
                seconds=round(seconds, 3),
                failure=_text(failure)[:MAX_REASON],
                log_tail=_text(log_tail)[-MAX_LOG:],
            )
        )

    def _now(self) -> dict[str, Any]:
        return {**self._identity, "at_ms": int(self._clock() * 1_000)}

    def _publish(self, record: AnyRecord) -> None:
        try:
            self._producer.produce(self._topic, msgspec.json.encode(record), record.key, on_delivery=self._delivered)
        except BufferError:
            self._drop("the queue of unwritten events is full")
        except (KafkaException, SystemError) as error:  # SystemError: see `clients.unwrap_kafka_errors`
            self._drop(str(error))

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            missing = error.code() in (KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART)
            self._drop(f"{error.str()}; `scorer check CONFIG --create` creates the topic" if missing else error.str())

    def _drop(self, reason: str) -> None:
        with self._lock:
            self.dropped += 1
            first = reason not in self._reasons
            self._reasons.add(reason)
        if first:
            log.warning("an event of the run was not written to %s: %s; the run continues", self._topic, reason)

    def _serve(self) -> None:
        """Handle delivery reports, and write a heartbeat every HEARTBEAT_SECONDS."""
        while not self._closing.is_set():
            try:
                if not self._producer.poll(POLL_SECONDS):
                    self._closing.wait(POLL_SECONDS)
            except (KafkaException, SystemError) as error:
                self._drop(str(error))
                self._closing.wait(POLL_SECONDS)
            self.beat()

    def beat(self) -> None:
        """Publish a heartbeat if the last one is HEARTBEAT_SECONDS old."""
        if self._monotonic() - self._beat >= HEARTBEAT_SECONDS:
            self._beat = self._monotonic()
            self._publish(RunAlive(**self._now(), dropped=self.dropped))


def topic_events(settings: Settings, run: str) -> TopicEvents:
    """Create the writer for the events of a run, which connects in the background.

    Raises Fatal (exit code 2) if the client rejects the settings.
    """
    properties = {
        "allow.auto.create.topics": False,  # a created topic would not be compacted: `scorer check --create` creates it
        "linger.ms": 50,
        "message.timeout.ms": 0,  # events wait for the broker; the queue bounds their number
        "message.max.bytes": 1_048_576,
        "topic.metadata.propagation.max.ms": MISSING_TOPIC_MS,
        "queue.buffering.max.messages": QUEUED_EVENTS,
        "queue.buffering.max.kbytes": QUEUED_KIBIBYTES,
    }
    producer = kafka.plain_producer(settings.kafka, f"{settings.name}.training", **properties)
    return TopicEvents(producer, settings.runs_topic, run)


def _text(text: str) -> str:
    """Remove the credentials of URLs from a text, and replace lone surrogates, which UTF-8 cannot encode, by `?`."""
    return redacted(text).encode(errors="replace").decode()


def _stride(count: int) -> int:
    """Return n, where every n-th line of a trial is published from line `count` on.

    n is 1 for the first DENSE_LINES lines, and doubles as `count` grows.
    """
    return 1 << max(0, (count - 1) // DENSE_LINES).bit_length()


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) and abs(value) <= LARGEST_NUMBER else None


def _plain(value: Any) -> Any:
    """Convert the value of a parameter to a value that a record can contain; other types become text."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int) and abs(value) <= LARGEST:
        return value
    if isinstance(value, float) and _finite(value) is not None:
        return value
    if isinstance(value, list | tuple):
        return [_plain(one) if not isinstance(one, list | tuple | dict) else _text(str(one))[:MAX_TEXT] for one in value[:64]]
    return _text(str(value))[:MAX_TEXT]
