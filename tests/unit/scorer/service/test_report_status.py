"""The status records that a scorer writes."""

from typing import Any

import msgspec
from confluent_kafka import Message

from scorer.observability.status_record import HEARTBEAT_SECONDS, ScorerStatus
from scorer.service.report_status import StatusReporter
from tests.unit.scorer.console.console_records import status


class Topic:
    """A producer that keeps the records."""

    def __init__(self) -> None:
        self.written: list[ScorerStatus] = []

    def produce(self, _: str, value: bytes, __: bytes, *, on_delivery: Any) -> None:
        self.written.append(msgspec.json.decode(value, type=ScorerStatus))
        on_delivery(None, Message("status", 0, len(self.written), None, value))

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
    assert [each.state for each in topic.written] == ["running", "running"]


def test_a_scorer_reports_its_stop_unless_another_process_runs_under_its_name() -> None:
    topic = Topic()
    reporter(topic, replaced=True).close()
    assert topic.written == []
    reporter(topic).close()
    assert [each.state for each in topic.written] == ["stopped"]
