"""The transport in memory: a loop over it answers each event once, in order. It shares its producers with tests of sessions."""

import json
from pathlib import Path

import pytest

from tests.benchmarks.gpu.drain import Ground
from tests.benchmarks.gpu.drain import paced as in_turn
from tests.support import models
from tests.support.transport_memory import MemoryLog


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
