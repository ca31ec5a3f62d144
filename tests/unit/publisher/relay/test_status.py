"""What a relay's process tells in its metrics is read back as it was, and what a second look adds."""

import time
from dataclasses import replace

from prometheus_client import CollectorRegistry, generate_latest

from publisher.relay.lag_report import Standing, Status, with_rates
from publisher.relay.metrics import RelayMetrics
from publisher.relay.scrape_metrics import LaneStanding, Process, ask, parsed
from publisher.relay.status import RelayState
from publisher.relay.transform import Route

NOW_MS = 1_000_000


def told(state: RelayState) -> str:
    registry = CollectorRegistry()
    registry.register(RelayMetrics(state, "eu", "us"))
    return generate_latest(registry).decode()


def status(at_ms: int, copied: int, records: int) -> Status:
    state = RelayState(1, "r")
    state.lanes[0].tally.copied = records
    row = Standing("t", 0, 0, copied, 100, 100 - copied, 0.0, 0.0)
    return Status("r", at_ms, None, True, parsed(told(state), "r"), [row])


def test_a_process_is_read_from_its_own_metrics() -> None:
    state = RelayState(2, "r")
    state.began()
    lane = state.lanes[1]
    lane.tally.copied, lane.counters.commits, lane.counters.aborts = 1_234_567, 89, 2
    lane.routes = {("t", 0): Route("eu", "t", 0, "t", 5)}
    lane.routes["t", 0].end = 12
    found = parsed(told(state), "r")
    assert found is not None
    assert (found.copying, found.restarts, found.last_error, found.last_error_ms) == (True, 0, None, None)
    assert [(row.lane, row.records, row.transactions, row.aborts) for row in found.lanes] == [
        (0, 0, 0, 0),
        (1, 1_234_567, 89, 2),
    ]
    assert [row.lag_records for row in found.lanes] == [0, 7]
    state.note("aborted", RuntimeError('lane 1: "so"\nand so'))
    before = time.time_ns() // 1_000_000
    again = parsed(told(state), "r")
    assert again is not None
    assert again.last_error == 'lane 1: "so"\nand so'
    assert again.last_error_ms is not None
    assert abs(again.last_error_ms - before) < 60_000


def test_metrics_of_another_relay_are_nobodys_and_those_of_an_older_version_are_read() -> None:
    assert parsed(told(RelayState(1, "other")), "r") is None
    assert parsed("# HELP x y\nx 1\n", "r") is None
    assert ask("127.0.0.1:1", "r") is None
    lines = told(RelayState(1, "r")).splitlines(keepends=True)  # an older version counts less
    found = parsed("".join(line for line in lines if "records_refused" not in line), "r")
    assert found is not None
    assert [lane.refused for lane in found.lanes] == [0]


def test_a_second_look_tells_records_a_second() -> None:
    first, second = status(NOW_MS, 10, 5), status(NOW_MS + 2_000, 30, 45)
    found = with_rates(second, first)
    assert found.partitions[0].records_per_second == 10.0
    assert [lane.records_per_second for lane in lanes(found)] == [20.0]
    assert with_rates(first, None) == first
    assert with_rates(status(NOW_MS, 30, 45), first).partitions[0].records_per_second is None


def test_what_began_anew_or_is_new_has_no_rate() -> None:
    restarted = with_rates(status(NOW_MS + 1_000, 5, 0), status(NOW_MS, 10, 5))
    assert restarted.partitions[0].records_per_second is None
    assert [lane.records_per_second for lane in lanes(restarted)] == [None]
    silent = with_rates(status(NOW_MS + 1_000, 20, 9), replace(status(NOW_MS, 10, 5), process=None))
    assert [lane.records_per_second for lane in lanes(silent)] == [None]
    assert with_rates(replace(silent, process=None), status(NOW_MS, 1, 1)).process is None


def lanes(found: Status) -> list[LaneStanding]:
    assert isinstance(found.process, Process)
    return list(found.process.lanes)
