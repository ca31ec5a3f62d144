"""Events of a run with a producer in memory: written events, thinned metrics, and the effect of a broken producer."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException

from scorer.console.training.documents import MAX_LOG
from scorer.console.training.run_history import HEARTBEAT_SECONDS, RunHistory
from scorer.console.training.run_records import AnyRecord, RunEnded, StepEnded, TrialMetrics, decode_run_record
from training.runs_topic.run_events import RunDescription
from training.runs_topic.topic_events import TopicEvents, run_key


class MemoryProducer:
    """A producer that stores the records, or raises an error for each of them."""

    def __init__(self, error: Exception | None = None, delivery: KafkaError | None = None) -> None:
        self.records: list[AnyRecord] = []
        self.keys: list[bytes] = []
        self._error = error
        self._delivery = delivery

    def produce(self, topic: str, value: bytes, key: bytes, *, on_delivery: Callable[[Any, Any], None]) -> None:
        assert topic == "m.runs"
        if self._error is not None:
            raise self._error
        on_delivery(self._delivery, None)
        if self._delivery is None:
            self.records.append(decode_run_record(value))
            self.keys.append(key)

    def poll(self, _: float, /) -> int:
        return 0

    def flush(self, _: float, /) -> int:
        return 0


class Clock:
    """A clock that is set by hand."""

    now = 1_772_000_000.0

    def __call__(self) -> float:
        return self.now


def writer(producer: MemoryProducer, clock: Clock | None = None) -> TopicEvents:
    time = clock or Clock()
    return TopicEvents(producer, "m.runs", "run-1", time, time)


def history(producer: MemoryProducer) -> RunHistory:
    folded = RunHistory()
    for record in producer.records:
        folded.add(record, 100, record.at_ms / 1_000, record.at_ms / 1_000)
    return folded


def report(events: TopicEvents) -> None:
    """Report every kind of event."""
    events.run_started(RunDescription("/runs/1", "trees", "auc", 7, 2, 0, "prod"))
    events.step_started("join")
    events.step_ended("join", 1.25, {"run": "a" * 12, "version": "20260301-" + "a" * 12})
    events.trial_started(3, 27, {"rate": 0.1, "layers": (64, 32), "far": math.inf, "huge": 10**40})
    events.metrics(3, 9, {"auc": 0.9, "loss": math.nan, "far": -math.inf})
    events.trial_ended(3, 27, 2.0, "exit code 1", "x" * (MAX_LOG + 5))
    events.step_failed("search", 3.0, "all trials failed")
    events.run_ended("failed", "all trials failed", 3, "the log")


def test_every_event_is_written_and_read_back() -> None:
    producer = MemoryProducer()
    report(writer(producer))
    (run,) = history(producer).runs.values()
    assert (run.state(0), run.version, run.steps["join"].seconds, run.steps["search"].failure) == (
        "failed",
        "20260301-" + "a" * 12,
        1.25,
        "all trials failed",
    )
    trial = run.trials[False, 3]
    assert trial.parameters == {"rate": 0.1, "layers": [64, 32], "far": "inf", "huge": str(10**40)}
    assert trial.points == {9: {"auc": 0.9, "loss": None, "far": None}}
    assert (trial.failure, len(trial.log_tail)) == ("exit code 1", MAX_LOG)
    assert (run.started and run.started.recipe, run.log_tail) == ("trees", "the log")
    assert len(set(producer.keys)) == len(producer.keys)


@pytest.mark.parametrize(
    "producer",
    [
        MemoryProducer(BufferError()),
        MemoryProducer(KafkaException(KafkaError(KafkaError._FATAL))),
        MemoryProducer(delivery=KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)),
    ],
)
def test_broken_producer_drops_events_and_raises_nothing(producer: MemoryProducer, caplog: pytest.LogCaptureFixture) -> None:
    with writer(producer) as events:
        report(events)
    assert events.dropped == 8
    assert "the run continues" in caplog.text
    assert "8 events of the run were not written to m.runs" in caplog.text


def test_heartbeat_is_written_once_per_interval() -> None:
    producer = MemoryProducer()
    clock = Clock()
    events = writer(producer, clock)
    for _ in range(10):
        clock.now += HEARTBEAT_SECONDS / 4
        events.beat()
    assert producer.keys == [producer.keys[0]] * 2
    assert producer.keys[0].endswith(b"/alive")


def test_metric_lines_of_a_long_trial_are_thinned_and_the_last_one_is_written() -> None:
    producer = MemoryProducer()
    events = writer(producer)
    for step in range(1, 100_002):
        events.metrics(0, step, {"loss": 1 / step})
    events.trial_ended(0, 100_001, 1.0, "", "")
    steps = [record.budget for record in producer.records if isinstance(record, TrialMetrics)]
    assert steps[:500] == list(range(1, 501))
    assert len(steps) < 3_000
    assert steps[-1] == 100_001


def test_result_from_the_journal_is_written_without_its_white_space() -> None:
    producer = MemoryProducer()
    events = writer(producer)
    events.step_ended("join", 1.0, msgspec.Raw(b'{\n  "run": "0f3c",\n  "version": "1"\n}'))
    record = producer.records[-1]
    assert isinstance(record, StepEnded)
    assert bytes(record.result) == b'{"run":"0f3c","version":"1"}'


def test_log_of_an_earlier_attempt_is_retained_if_the_end_is_published_again() -> None:
    producer = MemoryProducer()
    report(writer(producer))
    writer(producer).run_ended("failed", "all trials failed", 3, "")
    (run,) = history(producer).runs.values()
    assert (len(run.attempts), run.log_tail) == (2, "the log")


def test_result_that_is_too_large_is_omitted() -> None:
    producer = MemoryProducer()
    events = writer(producer)
    events.step_ended("join", 1.0, {"run": "x" * (512 << 10)})
    events.run_ended("promoted", "y" * 5_000, 0, "")
    (run,) = history(producer).runs.values()
    assert (run.id, run.steps["join"].seconds) == ("", 1.0)
    assert isinstance(producer.records[-1], RunEnded)
    assert len(producer.records[-1].because) == 2_000


def test_key_of_a_run_is_stable_and_differs_from_others(tmp_path: Path) -> None:
    first = run_key(tmp_path / "a" / "20260301T041200000Z")
    assert first.startswith("20260301T041200000Z-")
    assert run_key(tmp_path / "a" / "20260301T041200000Z") == first
    assert run_key(tmp_path / "b" / "20260301T041200000Z") != first


def test_text_that_is_not_unicode_is_replaced() -> None:
    producer = MemoryProducer()
    events = writer(producer)
    events.run_started(RunDescription("/runs/\udcff", "trees", "auc", 7, 2, 0, "prod"))
    events.step_ended("join", 1.0, {"path": "\udcff"})
    events.run_ended("failed", "no file \udcff", 3, "log \udcff")
    assert events.dropped == 1  # the result of the step
    (run,) = history(producer).runs.values()
    assert (run.state(0), run.because, run.log_tail) == ("failed", "no file ?", "log ?")
    assert run.started is not None
    assert run.started.folder == "/runs/?"


def test_reasons_and_logs_have_no_credentials_of_urls() -> None:
    producer = MemoryProducer()
    events = writer(producer)
    secret = "https://user:secret@registry.example.com/model refused the request"
    events.step_failed("push", 1.0, secret)
    events.trial_ended(0, 27, 1.0, secret, secret)
    events.run_ended("failed", secret, 3, secret)
    (run,) = history(producer).runs.values()
    texts = [run.because, run.log_tail, run.steps["push"].failure, run.trials[False, 0].failure, run.trials[False, 0].log_tail]
    assert not [text for text in texts if "secret" in text or "refused the request" not in text]
