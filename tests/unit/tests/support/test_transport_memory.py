"""The transport in memory: it passes the session's conformance suite, and a loop over it answers each event once, in order."""

import json
from pathlib import Path

import pytest

from publisher.session.exactly_once import TransactionSession
from publisher.session.transactional_ids import transactional_ids
from tests.conformance.session import SessionConformance, Stage
from tests.proofs.gpu.drain import Ground
from tests.proofs.gpu.drain import paced as in_turn
from tests.support import models
from tests.support.transport_memory import MemoryLog, MemoryProducer
from tests.unit.publisher.session.scripted import Fails, Log


class Failing(MemoryProducer):
    """One that fails as the suite wants it."""

    def __init__(self, name: str, log: MemoryLog, fails: Fails) -> None:
        super().__init__(name, log)
        self.fails = fails


class TestMemory(SessionConformance):
    exactly_once = True

    def stage(self, fails: Fails = lambda _: None) -> Stage:
        log = MemoryLog()
        session = TransactionSession(
            lambda name: Failing(name, log, fails),  # type: ignore[arg-type, return-value]
            transactional_ids("app.r"),
            transaction_seconds=0.0,
            clock=lambda: log.now,
        )
        session.open()
        assert isinstance(log, Log)
        return Stage(session, log)


@pytest.mark.parametrize("paced", [False, True])
def test_each_event_is_answered_once_and_in_order(tmp_path: Path, paced: bool) -> None:
    ground = Ground(models.linear_package(tmp_path / "m", 2.0), "json", tmp_path)
    events = [json.dumps({"a": number, "b": 0}).encode() for number in range(300)]
    log = MemoryLog()
    began = log.clock()
    due = in_turn(300, 3_000) if paced else None
    drained = ground.run(events, log, max_events=64, due=due)
    records = [json.loads(value) for value in log.visible if b'"score"' in value]
    assert [(record["source"]["offset"], record["score"]) for record in records] == [(n, 2.0 * n) for n in range(300)]
    assert log.positions["events", 0][0] == 300
    assert drained.events_per_second > 0
    assert 0 < drained.p99 <= log.clock() - began
