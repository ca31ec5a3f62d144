"""The status records that a scorer writes."""

from threading import Event
from typing import Any

import msgspec
from confluent_kafka import Message

from scorer.observability.status_record import HEARTBEAT_SECONDS, ScorerStatus
from scorer.service.report_status import StartUpReporter, StatusReporter
from tests.support.waiting import STEP_SECONDS, until
from tests.unit.scorer.console.console_records import status
from tests.unit.scorer.minimal import minimal


class Topic:
    """A producer that collects the records."""

    def __init__(self) -> None:
        self.records: list[ScorerStatus] = []

    def produce(self, _: str, value: bytes, __: bytes, *, on_delivery: Any) -> None:
        self.records.append(msgspec.json.decode(value, type=ScorerStatus))
        on_delivery(None, Message("status", 0, len(self.records), None, value))

    def poll(self, _: float) -> None:
        """Confirm nothing: `produce` has confirmed every record."""

    flush = poll


def reporter(topic: Topic, *, replaced: bool = False) -> StatusReporter:
    def current(state: str) -> ScorerStatus:
        return status(state=state, counters={"recoveries": 0})

    return StatusReporter(topic, "status", current, lambda: replaced)  # type: ignore[arg-type]


def test_a_record_is_written_at_a_start_and_with_each_heartbeat() -> None:
    topic = Topic()
    status_reporter = reporter(topic)
    for now in (0.0, 1.0, HEARTBEAT_SECONDS):
        status_reporter.tick(now)
    assert [record.state for record in topic.records] == ["running", "running"]


def test_a_scorer_reports_its_stop_unless_another_process_runs_under_its_name() -> None:
    topic = Topic()
    reporter(topic, replaced=True).close()
    assert topic.records == []
    reporter(topic).close()
    assert [record.state for record in topic.records] == ["stopped"]


class TopicFactory:
    """A factory of producers of a topic, which counts them."""

    def __init__(self) -> None:
        self.topic = Topic()
        self.producers = 0

    def __call__(self) -> Topic:
        self.producers += 1
        return self.topic


def start_up(factory: TopicFactory, waits_for: str | None) -> StartUpReporter:
    return StartUpReporter(factory, minimal(), lambda: waits_for)  # type: ignore[arg-type]


def test_a_start_up_that_waits_is_reported_with_the_reason_and_its_stop() -> None:
    factory = TopicFactory()
    reports = start_up(factory, "model-registry: no answer")
    until(lambda: factory.topic.records, "the record")
    reports.close()
    assert [(record.state, record.waiting) for record in factory.topic.records] == [
        ("waiting", "model-registry: no answer"),
        ("stopped", ""),
    ]
    assert {record.scorer for record in factory.topic.records} == {minimal().owner}


def test_after_a_start_up_that_has_waited_no_stop_is_reported() -> None:
    factory = TopicFactory()
    reports = start_up(factory, "model-registry: no answer")
    until(lambda: factory.topic.records, "the record")
    reports.end()
    reports.close()
    assert [record.state for record in factory.topic.records] == ["waiting"]


def test_a_start_up_that_proceeds_opens_no_producer() -> None:
    factory = TopicFactory()
    checked = Event()

    def check_wait() -> None:
        checked.set()

    reports = StartUpReporter(factory, minimal(), check_wait)  # type: ignore[arg-type]
    assert checked.wait(STEP_SECONDS)
    reports.close()
    assert (factory.producers, factory.topic.records) == (0, [])
